// What no recorded conversation shows: operations newer than any PyTorch we have recorded.
#include "rendezvous/server/store_service.h"

#include "runtime/wire/tcpstore_reply_decoder.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace distrun::rendezvous {
namespace {

using wire::tcpstore::Op;
using wire::tcpstore::Reply;
using wire::tcpstore::ReplyDecoder;
using wire::tcpstore::Request;

class StoreServiceTest : public testing::Test {
 protected:
  using Args = std::vector<std::string_view>;

  // One request of connection 1 and its answer, as a client would read it.
  Reply ask(Op op, const Args& args, std::int64_t number = 0) {
    const Request request{.op = op, .args = args, .number = number};
    wire::ByteBuffer out;
    const auto done = service.handle(ConnectionId{1}, request, out, released);
    EXPECT_TRUE(done) << done.error().detail;
    ReplyDecoder decoder(request);
    while (decoder.wanted() > 0 && decoder.wanted() <= out.size()) {
      const std::size_t n = decoder.wanted();
      EXPECT_TRUE(decoder.feed(out.view().substr(0, n)));
      out.consume(n);
    }
    EXPECT_EQ(decoder.wanted(), 0u) << "no answer to " << name(op);
    EXPECT_TRUE(out.empty()) << "more than an answer to " << name(op);
    return decoder.take();
  }

  MemoryBudget budget{1 << 20};
  StoreService service{budget};
  Released released;
};

TEST_F(StoreServiceTest, QueuesAreAnsweredWithTheirLengthBeforeThePop) {
  ask(Op::queue_push, {"q", "1"});
  ask(Op::queue_push, {"q", ""});
  EXPECT_EQ(ask(Op::queue_len, {"q"}).number, 2);
  const Reply first = ask(Op::queue_pop, {"q"});
  EXPECT_EQ(first.number, 2);
  EXPECT_EQ(first.blobs, std::vector<std::string>{"1"});
  EXPECT_EQ(ask(Op::queue_pop, {"q"}).blobs, std::vector<std::string>{""});
  const Reply none = ask(Op::queue_pop, {"q"});
  EXPECT_EQ(none.number, 0);
  EXPECT_EQ(none.blobs, std::vector<std::string>{});
}

TEST_F(StoreServiceTest, ListKeysNamesEveryKeyAsItIsStored) {
  ask(Op::set, {"/k", "v"});
  ask(Op::add, {"init/"}, 1);
  ask(Op::queue_push, {"/q", "item"});
  Reply reply = ask(Op::list_keys, {});
  std::sort(reply.blobs.begin(), reply.blobs.end());
  EXPECT_EQ(reply.number, 2);
  EXPECT_EQ(reply.blobs, (std::vector<std::string>{"/k", "init/"}));
}

TEST_F(StoreServiceTest, TheLastAtABarrierIsAnsweredAtOnceAndTheOthersAreReleased) {
  wire::ByteBuffer out;
  const Args key{"b"};
  const Request arrive{.op = Op::barrier, .args = key, .number = 2};
  ASSERT_TRUE(service.handle(ConnectionId{7}, arrive, out, released));
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(ask(Op::barrier, key, 2).number, wire::tcpstore::kStopWaiting);
  EXPECT_EQ(released, Released{ConnectionId{7}});
}

TEST_F(StoreServiceTest, PingAnswersTheNonceAndCancelWaitIsAnsweredAlsoWithoutAWait) {
  EXPECT_EQ(ask(Op::ping, {}, 0xFFFFFFFF).number, 0xFFFFFFFF);
  EXPECT_EQ(ask(Op::cancel_wait, {}).number, wire::tcpstore::kWaitCanceled);
}

TEST_F(StoreServiceTest, GetAndMultiGetOfMissingKeysAreEmptyValues) {
  EXPECT_EQ(ask(Op::get, {"missing"}).blobs, std::vector<std::string>{""});
  ask(Op::set, {"k", "v"});
  EXPECT_EQ(ask(Op::multi_get, {"missing", "k"}).blobs, (std::vector<std::string>{"", "v"}));
}

TEST_F(StoreServiceTest, ADisconnectedConnectionIsNotReleased) {
  wire::ByteBuffer out;
  const Args key{"k"};
  ASSERT_TRUE(service.handle(ConnectionId{7}, {.op = Op::wait, .args = key}, out, released));
  service.disconnected(ConnectionId{7});
  ask(Op::set, {"k", "v"});
  EXPECT_EQ(released, Released{});
}

TEST_F(StoreServiceTest, AnErrorNamesTheOperation) {
  wire::ByteBuffer out;
  const Args key{"k"};
  const auto refused =
      service.handle(ConnectionId{1}, {.op = Op::watch_key, .args = key}, out, released);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().detail, "WATCH_KEY: watching keys is not served");
}

}  // namespace
}  // namespace distrun::rendezvous
