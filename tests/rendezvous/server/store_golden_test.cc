// Every recorded conversation again, through our server's logic: the same bytes must come back.
#include "rendezvous/server/store_service.h"
#include "runtime/wire/tcpstore_request_decoder.h"
#include "tests/runtime/wire/golden.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

namespace distrun::rendezvous {
namespace {

using wire::tcpstore::GoldenLine;
using Kind = GoldenLine::Kind;

// Connections without sockets.
class Replay {
 public:
  void feed(const std::string& name, std::string_view bytes) {
    Connection& connection = of(name);
    connection.decoder.feed(bytes);
    for (;;) {
      const auto request = connection.decoder.next();
      if (!request) {
        closed.insert(name);
        return;
      }
      if (!request->has_value()) return;
      Released released;
      if (!service_.handle(connection.id, **request, connection.out, released)) closed.insert(name);
      for (const ConnectionId id : released) StoreService::put_released(of(names_.at(id)).out);
    }
  }
  std::string answers(const std::string& name) { return std::string(of(name).out.view()); }

  std::set<std::string> closed;

 private:
  struct Connection {
    ConnectionId id;
    wire::tcpstore::RequestDecoder decoder;
    wire::ByteBuffer out;
  };
  Connection& of(const std::string& name) {
    auto& slot = connections_[name];
    if (!slot) {
      slot = std::make_unique<Connection>();
      slot->id = ConnectionId{connections_.size()};
      names_[slot->id] = name;
    }
    return *slot;
  }

  MemoryBudget budget_{1 << 24};
  StoreService service_{budget_};
  std::map<std::string, std::unique_ptr<Connection>> connections_;
  std::map<ConnectionId, std::string> names_;
};

class StoreGolden : public testing::TestWithParam<std::string> {};

TEST_P(StoreGolden, OurServerAnswersAsPyTorchsDid) {
  Replay replay;
  std::map<std::string, std::string> expected;
  std::set<std::string> closed;
  for (const auto& line : wire::tcpstore::read_golden(GetParam())) {
    switch (line.kind) {
      case Kind::to_server:
        replay.feed(line.connection, line.content);
        break;
      case Kind::to_client:
        expected[line.connection] += line.content;
        break;
      case Kind::closed:
        closed.insert(line.connection);
        break;
      case Kind::request:
        break;
    }
  }
  EXPECT_FALSE(expected.empty());
  for (const auto& [connection, bytes] : expected)
    EXPECT_EQ(replay.answers(connection), bytes) << "to " << connection;
  EXPECT_EQ(replay.closed, closed);
}

INSTANTIATE_TEST_SUITE_P(Recorded, StoreGolden, testing::ValuesIn(wire::tcpstore::golden_files()),
                         [](const testing::TestParamInfo<std::string>& file) {
                           std::string name = std::filesystem::path(file.param).stem().string();
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace distrun::rendezvous
