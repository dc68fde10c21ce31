// ReplyDecoder: the client's side of one exchange.  Made for the request that was sent, fed with
// what the socket gives, it says when the answer is whole.
//
//   ReplyDecoder decoder(request);
//   while (decoder.wanted() > 0) {
//     … receive at least 1 and at most decoder.wanted() bytes …
//     if (auto fed = decoder.feed(bytes); !fed) return fed.error();
//   }
//   Reply reply = decoder.take();
//
// Who never receives more than `wanted()` never holds a byte of the next answer.
#pragma once

#include "runtime/base/result.h"
#include "runtime/wire/tcpstore.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::wire::tcpstore {

struct Reply {
  std::int64_t number = 0;  // byte, number, nonce; popped: length before the pop; list: its count
  std::vector<std::string> blobs;
};

// PyTorch's older servers have no limits of their own, so a client needs some.
struct ReplyLimits {
  std::size_t blob_bytes = 64UL * 1024 * 1024;
  std::size_t reply_bytes = 1024UL * 1024 * 1024;
};

class ReplyDecoder {
 public:
  // A request without an answer (SET) is complete at once.
  explicit ReplyDecoder(const Request& request, ReplyLimits limits = {});

  // How many bytes the answer still needs at least; 0: it is complete.
  std::size_t wanted() const { return wanted_; }

  // REQUIRES: bytes.size() <= wanted().  After an error the connection is of no more use.
  Result<void> feed(std::string_view bytes);

  // REQUIRES: wanted() == 0.
  Reply take() { return std::move(reply_); }

 private:
  enum class Part : std::uint8_t { scalar, count, blob_length, blob_body, complete };

  void expect(Part part, std::size_t bytes);
  void expect_blobs(std::uint64_t count);
  Result<void> finish_part();
  Result<void> begin_blob(std::uint64_t length);

  Op op_;
  ReplyLimits limits_;
  Part part_ = Part::complete;
  std::size_t wanted_ = 0;        // of the part at hand
  std::size_t total_ = 0;         // bytes of all blobs so far
  std::uint64_t blobs_left_ = 0;  // the one at hand included
  std::string scalar_;
  Reply reply_;
};

}  // namespace distrun::wire::tcpstore
