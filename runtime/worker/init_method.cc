#include "runtime/worker/init_method.h"

#include <charconv>
#include <string_view>

namespace distrun {
namespace {

[[noreturn]] void refuse(const GroupOptions& options, const std::string& what) {
  throw DistArgumentError("init_process_group: init_method \"" + options.init_method +
                          "\": " + what);
}

int number(const GroupOptions& options, std::string_view text, const char* name) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end)
    refuse(options, std::string(name) + " is no number: \"" + std::string(text) + "\"");
  return value;
}

void take_query(const GroupOptions& options, std::string_view query, Meeting& meeting) {
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), one.size() + 1));
    const std::size_t equals = one.find('=');
    const std::string_view name = one.substr(0, equals);
    const std::string_view value = equals == one.npos ? "" : one.substr(equals + 1);
    if (name == "rank" && options.rank == -1)
      meeting.rank = number(options, value, "rank");
    else if (name == "world_size" && options.world_size == -1)
      meeting.world_size = number(options, value, "world_size");
    else if (name == "rank" || name == "world_size")
      refuse(options, std::string(name) + " is given here and beside it");
    else
      refuse(options, "\"" + std::string(name) + "\" is unknown; there are rank and world_size");
  }
}

}  // namespace

Meeting meeting_of(const GroupOptions& options, const Lookup& variable) {
  std::string_view url = options.init_method;
  Meeting meeting;
  if (url == "env://") {
    if (options.rank != -1 || options.world_size != -1)
      refuse(options, "rank and world_size come from RANK and WORLD_SIZE there; give no others");
    const WorkerInfo info = rendezvous_info_from(variable);
    meeting.host = info.master_addr;
    meeting.port = info.master_port;
    meeting.rank = info.rank;
    meeting.world_size = info.world_size;
    meeting.attempt = info.restart_count;
    if (info.world_size > 1 && !info.use_agent_store)
      throw DistUnsupportedError(
          "init_process_group: TORCHELASTIC_USE_AGENT_STORE is not True, so nobody serves a store "
          "at MASTER_ADDR:MASTER_PORT, and this library's rank 0 does not; start with distrun, or "
          "give init_method tcp:// with a server, or file://, or a store");
    return meeting;
  }
  const std::size_t question = url.find('?');
  meeting.rank = options.rank;
  meeting.world_size = options.world_size;
  if (question != url.npos) take_query(options, url.substr(question + 1), meeting);
  url = url.substr(0, question);
  if (url.starts_with("file://")) {
    meeting.kind = Meeting::Kind::file;
    meeting.path = url.substr(7);
    if (meeting.path.empty() || meeting.path.front() != '/')
      refuse(options, "it needs an absolute path: file:///shared/folder/name");
  } else if (url.starts_with("tcp://")) {
    const std::string_view address = url.substr(6);
    const std::size_t colon = address.rfind(':');
    if (colon == address.npos || colon == 0) refuse(options, "it needs HOST:PORT");
    const std::string_view host = address.substr(0, colon);
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    meeting.host = brackets ? host.substr(1, host.size() - 2) : host;
    const int port = number(options, address.substr(colon + 1), "the port");
    if (port < 1 || port > 65535)
      refuse(options, "port " + std::to_string(port) + " is not in 1..65535");
    meeting.port = static_cast<std::uint16_t>(port);
  } else {
    refuse(options, "there are env://, tcp://HOST:PORT and file:///PATH");
  }
  if (meeting.rank < 0 || meeting.world_size <= meeting.rank)
    refuse(options, "with it go rank and world_size, 0 <= rank < world_size; got rank " +
                        std::to_string(meeting.rank) + " of " + std::to_string(meeting.world_size));
  return meeting;
}

std::shared_ptr<Store> open_store(const Meeting& meeting, Timeout timeout) {
  if (meeting.kind == Meeting::Kind::file)
    return std::make_shared<FileStore>(meeting.path, meeting.world_size, timeout);
  return std::make_shared<TCPStore>(
      TCPStoreOptions{.host = meeting.host, .port = meeting.port, .timeout = timeout});
}

}  // namespace distrun
