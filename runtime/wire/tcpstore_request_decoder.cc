#include "runtime/wire/tcpstore_request_decoder.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace distrun::wire::tcpstore {
namespace {

constexpr std::size_t kReadAtLeast = 4UL * 1024;
constexpr std::size_t kReadAtMost = 256UL * 1024;

constexpr std::string_view kHello("\x00\xCE\xF7\x85\x3C", 5);
constexpr std::string_view kBareMagic = kHello.substr(1);

std::string over(std::string_view what, std::uint64_t value, std::size_t limit) {
  return std::string(what) + " " + std::to_string(value) + ", at most " + std::to_string(limit);
}

// A person who points a browser or a health check at the port should read so in the log.
std::string unknown_type(std::uint8_t type) {
  std::string text = "unknown request type " + std::to_string(type);
  if (type >= 0x20 && type < 0x7F)
    text += " ('" + std::string(1, static_cast<char>(type)) + "'): not a TCPStore client";
  return text;
}

}  // namespace

RequestDecoder::RequestDecoder(Limits limits, std::optional<Generation> expected)
    : limits_(limits),
      generation_(expected),
      must_validate_(expected && number_of(*expected, Op::validate).has_value()) {}

std::span<char> RequestDecoder::prepare() {
  const auto room = buffer_.prepare(std::clamp(wanted_, kReadAtLeast, kReadAtMost));
  return room.first(std::min(room.size(), kReadAtMost));
}

void RequestDecoder::shrink(std::size_t keep) {
  buffer_.shrink(keep);
  if (!idle() || memory() <= keep + sizeof(Slice)) return;
  slices_ = {};
  args_ = {};
}

std::size_t RequestDecoder::memory() const {
  return buffer_.capacity() + slices_.capacity() * sizeof(Slice) +
         args_.capacity() * sizeof(std::string_view);
}

Result<std::optional<Request>> RequestDecoder::next() {
  Step step = error_ ? Step::failed : Step::done;
  if (step == Step::done && (!generation_ || must_validate_)) step = recognise();
  if (step == Step::done && layout_ == nullptr) step = begin();
  while (step == Step::done && field_ < layout_->fields.size()) {
    step = parse_field(layout_->fields[field_]);
    if (step == Step::done) ++field_;
  }
  switch (step) {
    case Step::done:
      return std::optional(finish());
    case Step::more:
      return std::optional<Request>();
    case Step::failed:
      break;
  }
  return *error_;
}

RequestDecoder::Step RequestDecoder::recognise() {
  const std::string_view seen = buffer_.view();
  const auto starts = [&](std::string_view magic) {
    return magic.substr(0, seen.size()) == seen.substr(0, magic.size());
  };
  if (starts(kHello)) {
    if (seen.size() < kHello.size()) return Step::more;
    buffer_.consume(kHello.size());
    if (!must_validate_) generation_ = Generation::g8;
    must_validate_ = false;
    return Step::done;
  }
  if (must_validate_)
    return fail(Errc::protocol, "the first request is not VALIDATE with the magic number");
  if (starts(kBareMagic)) {
    if (seen.size() < kBareMagic.size()) return Step::more;
    generation_ = Generation::g3;
  } else {
    generation_ = Generation::g1;
  }
  return Step::done;
}

RequestDecoder::Step RequestDecoder::begin() {
  const std::size_t magic = *generation_ == Generation::g3 ? kBareMagic.size() : 0;
  const std::string_view seen = buffer_.view();
  if (seen.size() <= magic) return Step::more;
  if (seen.substr(0, magic) != kBareMagic.substr(0, magic))
    return fail(Errc::protocol, "a request without the magic number before it");
  const auto type = static_cast<std::uint8_t>(seen[magic]);
  const auto known = operations(*generation_);
  if (type >= known.size()) return fail(Errc::protocol, unknown_type(type));
  layout_ = &layout(known[type]);
  if (layout_->op == Op::validate) return fail(Errc::protocol, "only once, as the first request");
  field_ = 0;
  parsed_ = magic + 1;
  return Step::done;
}

RequestDecoder::Step RequestDecoder::parse_field(Field field) {
  switch (field) {
    case Field::none:
      return Step::done;
    case Field::key:
    case Field::value:
      return parse_blob(field);
    case Field::keys:
      return parse_list(Field::key, Field::key);
    case Field::pairs:
      return parse_list(Field::key, Field::value);
    case Field::number:
      return take(number_) ? Step::done : Step::more;
    case Field::nonce: {
      std::uint32_t nonce = 0;
      if (!take(nonce)) return Step::more;
      number_ = nonce;
      return Step::done;
    }
  }
  return Step::done;
}

RequestDecoder::Step RequestDecoder::parse_list(Field element, Field next_element) {
  if (!elements_left_) {
    std::uint64_t count = 0;
    if (!take(count)) return Step::more;
    if (count > limits_.keys_per_request)
      return fail(Errc::limit, over("key count", count, limits_.keys_per_request));
    elements_left_ = element == next_element ? count : 2 * count;
  }
  while (*elements_left_ > 0) {
    const bool second = element != next_element && *elements_left_ % 2 == 1;
    if (const Step step = parse_blob(second ? next_element : element); step != Step::done)
      return step;
    --*elements_left_;
  }
  return Step::done;
}

RequestDecoder::Step RequestDecoder::parse_blob(Field kind) {
  const std::size_t before = parsed_;
  std::uint64_t size = 0;
  if (!take(size)) return Step::more;
  const bool is_key = kind == Field::key;
  const std::size_t limit = is_key ? limits_.key_bytes : limits_.value_bytes;
  if (size > limit)
    return fail(Errc::limit, over(is_key ? "key length" : "value length", size, limit));
  const std::size_t held = parsed_ + size + (slices_.size() + 1) * kHeldPerArgument;
  if (held > limits_.request_bytes)
    return fail(Errc::limit, over("request size", held, limits_.request_bytes));
  if (rest().size() < size) {
    wanted_ = size - rest().size();
    parsed_ = before;
    return Step::more;
  }
  slices_.push_back({parsed_, size});
  wanted_ = 0;
  parsed_ += size;
  return Step::done;
}

template <class T>
bool RequestDecoder::take(T& value) {
  const std::string_view bytes = rest();
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  parsed_ += sizeof value;
  return true;
}

RequestDecoder::Step RequestDecoder::fail(Errc code, std::string detail) {
  if (layout_ != nullptr) detail = std::string(layout_->name) + ": " + detail;
  error_ = Error{code, std::move(detail)};
  return Step::failed;
}

Request RequestDecoder::finish() {
  const std::string_view bytes = buffer_.view();
  args_.clear();
  for (const Slice slice : slices_) args_.push_back(bytes.substr(slice.offset, slice.size));
  const Request request{.op = layout_->op, .args = args_, .number = number_};
  buffer_.consume(parsed_);  // the bytes stay where they are until there is more to read
  layout_ = nullptr;
  parsed_ = 0;
  number_ = 0;
  elements_left_.reset();
  slices_.clear();
  return request;
}

}  // namespace distrun::wire::tcpstore
