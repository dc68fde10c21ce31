// Every recorded conversation, through the codec in both directions.
#include "tests/runtime/wire/golden.h"

#include "runtime/wire/tcpstore_reply_decoder.h"
#include "runtime/wire/tcpstore_request_decoder.h"

#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

namespace distrun::wire::tcpstore {
namespace {

using Kind = GoldenLine::Kind;

class Golden : public testing::TestWithParam<std::string> {};

// Feeds what connections sent in pieces of `piece` bytes; calls `visit` with each request.
template <class Visit>
void decode(const std::vector<GoldenLine>& lines, std::size_t piece, Visit visit) {
  std::map<std::string, std::unique_ptr<RequestDecoder>> decoders;
  for (const auto& line : lines) {
    auto& decoder = decoders[line.connection];
    if (!decoder) decoder = std::make_unique<RequestDecoder>();
    if (line.kind != Kind::to_server) continue;
    for (std::string_view rest = line.content; !rest.empty();) {
      decoder->feed(rest.substr(0, piece));
      rest.remove_prefix(std::min(piece, rest.size()));
      for (;;) {
        auto request = decoder->next();
        if (!request || !request->has_value()) break;
        visit(line.connection, *decoder, **request);
      }
    }
  }
}

TEST_P(Golden, DecodesToTheSameRequestsInAnySegmentation) {
  const auto lines = read_golden(GetParam());
  std::map<std::string, std::vector<std::string>> expected;
  for (const auto& line : lines)
    if (line.kind == Kind::request) expected[line.connection].push_back(line.content);

  std::map<std::string, std::vector<std::string>> whole;
  decode(lines, std::string::npos,
         [&](const auto& connection, const auto&, const Request& request) {
           whole[connection].push_back(describe(request));
         });
  for (const auto& [connection, requests] : expected) EXPECT_EQ(whole[connection], requests);
  EXPECT_FALSE(whole.empty());

  for (const std::size_t piece : {1, 2, 7, 64}) {
    std::map<std::string, std::vector<std::string>> pieces;
    decode(lines, piece, [&](const auto& connection, const auto&, const Request& request) {
      pieces[connection].push_back(describe(request));
    });
    EXPECT_EQ(pieces, whole) << "in pieces of " << piece;
  }
}

TEST_P(Golden, EncodesToTheBytesThatTheClientSent) {
  const auto lines = read_golden(GetParam());
  std::map<std::string, std::string> sent;
  for (const auto& line : lines)
    if (line.kind == Kind::to_server) sent[line.connection] += line.content;
  for (const auto& line : lines)
    if (line.kind == Kind::closed) sent.erase(line.connection);

  std::map<std::string, std::string> encoded;
  decode(lines, std::string::npos,
         [&](const auto& connection, const RequestDecoder& decoder, const Request& request) {
           auto& bytes = encoded[connection];
           if (bytes.empty()) bytes = encode_hello(*decoder.generation());
           const auto more = encode_request(*decoder.generation(), request);
           ASSERT_TRUE(more) << more.error().detail;
           bytes += *more;
         });
  for (const auto& [connection, bytes] : sent) EXPECT_EQ(encoded[connection], bytes) << connection;
}

// The client's side of one connection.  A wait that is followed by another request before it is
// answered may be answered late, or never.
struct Asked {
  RequestDecoder requests;
  std::deque<ReplyDecoder> awaited;
  bool last_is_wait = false;
  int late_waits = 0;

  void send(std::string_view bytes) {
    requests.feed(bytes);
    for (;;) {
      const auto request = requests.next();
      if (!request || !request->has_value()) return;
      if (last_is_wait && !awaited.empty()) {
        awaited.pop_back();
        ++late_waits;
      }
      ReplyDecoder decoder(**request);
      last_is_wait = (*request)->op == Op::wait;
      if (decoder.wanted() > 0) awaited.push_back(std::move(decoder));
    }
  }
  // What is left over.
  std::string_view receive(std::string_view bytes) {
    while (!bytes.empty() && !awaited.empty()) {
      const auto piece = bytes.substr(0, awaited.front().wanted());
      if (!awaited.front().feed(piece)) return bytes;
      bytes.remove_prefix(piece.size());
      if (awaited.front().wanted() == 0) awaited.pop_front();
    }
    for (; !bytes.empty() && late_waits > 0; --late_waits) bytes.remove_prefix(1);
    return bytes;
  }
};

TEST_P(Golden, EveryAnswerIsDecodedToItsLastByteAndNoFurther) {
  std::map<std::string, Asked> connections;
  for (const auto& line : read_golden(GetParam())) {
    Asked& connection = connections[line.connection];
    if (line.kind == Kind::to_server) connection.send(line.content);
    if (line.kind == Kind::to_client) {
      const auto left = connection.receive(line.content);
      EXPECT_TRUE(left.empty()) << "to " << line.connection << ": " << left.size()
                                << " bytes belong to no request";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Golden, testing::ValuesIn(golden_files()),
                         [](const testing::TestParamInfo<std::string>& file) {
                           std::string name = std::filesystem::path(file.param).stem().string();
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

TEST(GoldenFiles, AreFound) {
  EXPECT_GE(golden_files().size(), 4u);
}

}  // namespace
}  // namespace distrun::wire::tcpstore
