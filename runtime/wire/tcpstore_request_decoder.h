// RequestDecoder: the server's side of one connection.  Bytes in, in any pieces; whole requests
// out.
//
//   recognising --first bytes--> decoding --over a limit, or not the protocol--> failed
//
// Who speaks is known from the first bytes: VALIDATE with the magic number is g4 or newer (read as
// g8), a bare magic is g3, everything else is g0 or g1 (read as g1; g2 cannot be told from them).
// Handshakes are taken care of here and never come out as requests.
//
// A request that is only partly there costs what has arrived, never what its lengths announce, and
// is not parsed again from its start when more of it comes.
#pragma once

#include "runtime/base/result.h"
#include "runtime/wire/byte_buffer.h"
#include "runtime/wire/tcpstore.h"
#include "runtime/wire/tcpstore_layout.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace distrun::wire::tcpstore {

class RequestDecoder {
 public:
  // Recognises the generation; with `expected`, the connection must speak that one: from g4 on an
  // unvalidated first request is refused.
  explicit RequestDecoder(Limits limits = {}, std::optional<Generation> expected = std::nullopt);

  // Room to read into, and how much of it was filled.  Ends the life of the last request's views.
  std::span<char> prepare();
  void commit(std::size_t n) { buffer_.commit(n); }
  void feed(std::string_view bytes) { buffer_.append(bytes); }

  // The next whole request; nullopt: more bytes are needed.  Its views live until the next call of
  // any function but the const ones.  After an error the decoder only repeats it.
  Result<std::optional<Request>> next();

  // Nothing of an unfinished request is held; memory beyond `keep` bytes is given back.
  bool idle() const { return buffer_.empty(); }
  void shrink(std::size_t keep);

  std::optional<Generation> generation() const { return generation_; }
  std::size_t memory() const;

 private:
  struct Slice {
    std::size_t offset;  // from the start of the request
    std::size_t size;
  };
  // more: the bytes end here.
  enum class Step : std::uint8_t { done, more, failed };

  Step recognise();
  Step begin();
  Step parse_field(Field field);
  Step parse_list(Field element, Field next_element);
  Step parse_blob(Field kind);
  template <class T>
  bool take(T& value);
  Step fail(Errc code, std::string detail);
  Request finish();
  std::string_view rest() const { return buffer_.view().substr(parsed_); }

  Limits limits_;
  std::optional<Generation> generation_;
  bool must_validate_ = false;
  ByteBuffer buffer_;
  std::optional<Error> error_;

  // The unfinished request at the front of the buffer.
  const Layout* layout_ = nullptr;  // null: its number has not been read
  std::size_t field_ = 0;
  std::size_t parsed_ = 0;  // bytes of it
  std::size_t wanted_ = 0;  // bytes of the blob at hand that have not come yet
  std::optional<std::uint64_t> elements_left_;
  std::vector<Slice> slices_;
  std::int64_t number_ = 0;
  std::vector<std::string_view> args_;
};

}  // namespace distrun::wire::tcpstore
