// Collectives of objects: JSON values, which travel as CBOR: data, never code.  Needs nlohmann_json
// (Debian: nlohmann-json3-dev) where this header is included.
//
//   for (const auto& report : distrun::all_gather_object(*group, nlohmann::json{{"loss", loss}}))
//     …
//
// All block.  All ranks call them in the same order as the group's other collectives.
#pragma once

#include <distrun/error.h>
#include <distrun/process_group.h>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distrun {

// What one rank may give at once, as CBOR.
inline constexpr std::uint64_t kMaxObjectBytes = std::uint64_t{1} << 30;

namespace detail {

using Bytes = std::vector<std::uint8_t>;

inline Bytes encode(const nlohmann::json& object) {
  Bytes bytes = nlohmann::json::to_cbor(object);
  if (bytes.size() > kMaxObjectBytes)
    throw DistArgumentError("an object of " + std::to_string(bytes.size()) + " bytes; at most " +
                            std::to_string(kMaxObjectBytes));
  return bytes;
}

inline nlohmann::json decode(const Bytes& bytes, int from) {
  auto object = nlohmann::json::from_cbor(bytes, true, false);
  if (object.is_discarded())
    throw DistBackendError("what rank " + std::to_string(from) + " sent as an object is no CBOR",
                           from);
  return object;
}

// Sizes that others say are not trusted with memory.
inline Bytes room_for(std::uint64_t bytes, int from) {
  if (bytes > kMaxObjectBytes)
    throw DistBackendError("rank " + std::to_string(from) + " announces an object of " +
                               std::to_string(bytes) + " bytes; at most " +
                               std::to_string(kMaxObjectBytes),
                           from);
  return Bytes(bytes);
}

inline std::vector<std::uint64_t> all_sizes(ProcessGroup& group, std::uint64_t mine) {
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(group.size()));
  group.all_gather_into_tensor(sizes, std::vector{mine});
  return sizes;
}

inline std::vector<Bytes> rooms_for(const std::vector<std::uint64_t>& sizes) {
  std::vector<Bytes> rooms;
  rooms.reserve(sizes.size());
  for (const std::uint64_t size : sizes)
    rooms.push_back(room_for(size, static_cast<int>(rooms.size())));
  return rooms;
}

inline std::vector<nlohmann::json> decode_all(const std::vector<Bytes>& all) {
  std::vector<nlohmann::json> objects;
  objects.reserve(all.size());
  for (const Bytes& bytes : all) objects.push_back(decode(bytes, static_cast<int>(objects.size())));
  return objects;
}

// Several objects as one array, so that one length and one message do.
inline void take_list(const Bytes& bytes, std::vector<nlohmann::json>& objects, int from) {
  nlohmann::json list = decode(bytes, from);
  if (!list.is_array() || list.size() != objects.size())
    throw DistBackendError("rank " + std::to_string(from) + " gave " + std::to_string(list.size()) +
                               " objects, where this rank expects " +
                               std::to_string(objects.size()),
                           from);
  for (std::size_t i = 0; i < objects.size(); ++i) objects[i] = std::move(list[i]);
}

}  // namespace detail

// One of each rank, in the order of ranks.
inline std::vector<nlohmann::json> all_gather_object(ProcessGroup& group,
                                                     const nlohmann::json& object) {
  const detail::Bytes mine = detail::encode(object);
  std::vector<detail::Bytes> all = detail::rooms_for(detail::all_sizes(group, mine.size()));
  group.all_gather(std::vector<Tensor>(all.begin(), all.end()), mine);
  return detail::decode_all(all);
}

// As above, at `root`; empty on the others.
inline std::vector<nlohmann::json> gather_object(ProcessGroup& group, const nlohmann::json& object,
                                                 int root) {
  const detail::Bytes mine = detail::encode(object);
  const auto sizes = detail::all_sizes(group, mine.size());
  if (group.rank() != root) {
    group.gather(mine, {}, root);
    return {};
  }
  std::vector<detail::Bytes> all = detail::rooms_for(sizes);
  group.gather(mine, std::vector<Tensor>(all.begin(), all.end()), root);
  return detail::decode_all(all);
}

// Root's objects into everybody's list, which has the same length on all ranks.
inline void broadcast_object_list(ProcessGroup& group, std::vector<nlohmann::json>& objects,
                                  int root) {
  const bool gives = group.rank() == root;
  detail::Bytes bytes = gives ? detail::encode(nlohmann::json(objects)) : detail::Bytes();
  std::vector<std::uint64_t> size{bytes.size()};
  group.broadcast(size, root);
  if (!gives) bytes = detail::room_for(size[0], root);
  group.broadcast(bytes, root);
  if (!gives) detail::take_list(bytes, objects, root);
}

// `objects`: one for each rank, at `root`.
inline nlohmann::json scatter_object(ProcessGroup& group,
                                     const std::vector<nlohmann::json>& objects, int root) {
  std::vector<detail::Bytes> all;
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(group.size()));
  if (group.rank() == root) {
    if (objects.size() != sizes.size())
      throw DistArgumentError("scatter_object: " + std::to_string(objects.size()) +
                              " objects, and the group has " + std::to_string(sizes.size()) +
                              " ranks");
    for (const auto& object : objects) all.push_back(detail::encode(object));
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = all[i].size();
  }
  group.broadcast(sizes, root);
  detail::Bytes mine = detail::room_for(sizes[static_cast<std::size_t>(group.rank())], root);
  group.scatter(mine, std::vector<ConstTensor>(all.begin(), all.end()), root);
  return detail::decode(mine, root);
}

inline void send_object_list(ProcessGroup& group, const std::vector<nlohmann::json>& objects,
                             int to, int tag = 0) {
  const detail::Bytes bytes = detail::encode(nlohmann::json(objects));
  group.send(std::vector<std::uint64_t>{bytes.size()}, to, tag);
  group.send(bytes, to, tag);
}

// As many as `objects` has.  Returns the sender.
inline int recv_object_list(ProcessGroup& group, std::vector<nlohmann::json>& objects,
                            std::optional<int> from = std::nullopt, int tag = 0) {
  std::vector<std::uint64_t> size(1);
  const int sender = group.recv(size, from, tag);
  detail::Bytes bytes = detail::room_for(size[0], sender);
  group.recv(bytes, sender, tag);  // of the same one, also if anybody may have begun
  detail::take_list(bytes, objects, sender);
  return sender;
}

}  // namespace distrun
