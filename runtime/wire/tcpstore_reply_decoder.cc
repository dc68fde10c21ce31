#include "runtime/wire/tcpstore_reply_decoder.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <cstring>

namespace distrun::wire::tcpstore {
namespace {

// A length is a promise of the other side: memory is taken as the bytes come.
constexpr std::size_t kReserveAtMost = 64UL * 1024;

std::int64_t little_endian(std::string_view bytes) {
  std::int64_t value = 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

Error bad(Op op, std::string_view what, std::uint64_t value) {
  return Error{Errc::protocol, "the store's answer to " + std::string(name(op)) + " has " +
                                   std::string(what) + " " + std::to_string(value)};
}

}  // namespace

ReplyDecoder::ReplyDecoder(const Request& request, ReplyLimits limits)
    : op_(request.op), limits_(limits) {
  switch (reply_shape(op_)) {
    case ReplyShape::none:
      break;
    case ReplyShape::byte:
      expect(Part::scalar, 1);
      break;
    case ReplyShape::nonce:
      expect(Part::scalar, 4);
      break;
    case ReplyShape::number:
      expect(Part::scalar, 8);
      break;
    case ReplyShape::popped:
    case ReplyShape::list:
      expect(Part::count, 8);
      break;
    case ReplyShape::blob:
      expect_blobs(1);
      break;
    case ReplyShape::blob_per_key:
      expect_blobs(request.args.size());
      break;
  }
}

void ReplyDecoder::expect(Part part, std::size_t bytes) {
  part_ = part;
  wanted_ = bytes;
  scalar_.clear();
}

void ReplyDecoder::expect_blobs(std::uint64_t count) {
  blobs_left_ = count;
  if (count > 0) {
    expect(Part::blob_length, 8);
  } else {
    expect(Part::complete, 0);
  }
}

Result<void> ReplyDecoder::feed(std::string_view bytes) {
  DISTRUN_CHECK(bytes.size() <= wanted_);
  wanted_ -= bytes.size();
  (part_ == Part::blob_body ? reply_.blobs.back() : scalar_).append(bytes);
  if (wanted_ > 0) return {};
  return finish_part();
}

Result<void> ReplyDecoder::finish_part() {
  switch (part_) {
    case Part::scalar:
      reply_.number = little_endian(scalar_);
      expect(Part::complete, 0);
      return {};
    case Part::count: {
      reply_.number = little_endian(scalar_);
      if (reply_.number < 0)
        return bad(op_, "the count", static_cast<std::uint64_t>(reply_.number));
      const auto count = static_cast<std::uint64_t>(reply_.number);
      expect_blobs(reply_shape(op_) == ReplyShape::popped ? std::min<std::uint64_t>(count, 1)
                                                          : count);
      return {};
    }
    case Part::blob_length:
      return begin_blob(static_cast<std::uint64_t>(little_endian(scalar_)));
    case Part::blob_body:
      expect_blobs(blobs_left_ - 1);
      return {};
    case Part::complete:
      return {};
  }
  return {};
}

Result<void> ReplyDecoder::begin_blob(std::uint64_t length) {
  if (length > limits_.blob_bytes) return bad(op_, "a length over the limit:", length);
  // An empty blob costs memory too, so a list of a billion of them must end somewhere.
  total_ += length + sizeof(std::string);
  if (total_ > limits_.reply_bytes) return bad(op_, "more bytes than the limit:", total_);
  reply_.blobs.emplace_back().reserve(std::min<std::size_t>(length, kReserveAtMost));
  if (length == 0) {
    expect_blobs(blobs_left_ - 1);
  } else {
    expect(Part::blob_body, length);
  }
  return {};
}

}  // namespace distrun::wire::tcpstore
