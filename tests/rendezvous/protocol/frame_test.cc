#include "rendezvous/protocol/frame.h"

#include "tests/rendezvous/protocol/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace distrun::rendezvous {
namespace {

using testing::HasSubstr;

std::string payload_of(const std::string& frame) {
  return frame.substr(kFrameHeaderBytes);
}

// All payloads in `bytes`, or the error.
struct Decoded {
  std::vector<std::string> payloads;
  std::string error;
};
Decoded drain(FrameDecoder& decoder) {
  Decoded out;
  for (;;) {
    const auto payload = decoder.next();
    if (!payload) {
      out.error = payload.error().detail;
      return out;
    }
    if (!payload->has_value()) return out;
    out.payloads.emplace_back(**payload);
  }
}

std::string agent_error(const std::string& payload) {
  const auto message = decode_agent_message(payload);
  return message ? "" : message.error().detail;
}

// `payload` with `from` put in the place of `to`, which must be there.
std::string with(std::string payload, const std::string& from, const std::string& to) {
  const auto at = payload.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << payload;
  if (at != std::string::npos) payload.replace(at, from.size(), to);
  return payload;
}

TEST(FrameTest, EveryMessageOfAnAgentComesBackAsItWas) {
  for (const auto& message : agent_messages()) {
    const auto decoded = decode_agent_message(payload_of(encode(message)));
    ASSERT_TRUE(decoded) << decoded.error().detail;
    EXPECT_EQ(*decoded, message) << encode(message);
  }
}

TEST(FrameTest, EveryMessageOfACoordinatorComesBackAsItWas) {
  for (const auto& message : coordinator_messages()) {
    const auto decoded = decode_coordinator_message(payload_of(encode(message)));
    ASSERT_TRUE(decoded) << decoded.error().detail;
    EXPECT_EQ(*decoded, message) << encode(message);
  }
}

TEST(FrameTest, EveryRefusalHasItsOwnName) {
  for (int code = 0; code <= static_cast<int>(RefusalCode::not_yet); ++code) {
    const CoordinatorMessage message = Refused{static_cast<RefusalCode>(code), "why", "", 0};
    const auto decoded = decode_coordinator_message(payload_of(encode(message)));
    ASSERT_TRUE(decoded) << decoded.error().detail;
    EXPECT_EQ(*decoded, message);
  }
}

// The worked exchange of rendezvous/README.md, byte by byte: other builds rely on it.
TEST(FrameTest, TheBytesOnTheWireAreThoseOfTheManual) {
  EXPECT_EQ(greeting(), "DRUN1\n");
  Join join;
  join.job = "train";
  join.node = "host-a.17.5eed";
  join.host = "host-a";
  join.address = "10.0.0.1";
  join.store_port = 40001;
  join.nproc = 2;
  join.terms.command = "train.py";
  EXPECT_EQ(
      encode(AgentMessage(join)),
      std::string("\0\0\x01\x8E", 4) +
          R"({"type":"join","version":1,"job":"train","token":"","node":"host-a.17.5eed",)"
          R"("host":"host-a","address":"10.0.0.1","store_port":40001,"takeover_port":0,"nproc":2,)"
          R"("role":"default","hosts":false,"terms":{"min_nodes":1,"max_nodes":1,)"
          R"("command":"train.py","fixed_ranks":false,"max_restarts":0,"join_timeout_us":600000000,)"
          R"("last_call_us":30000000,"rejoin_wait_us":100000,"beat_us":1000000,"beats_missed":3}})");
  Welcome welcome;
  welcome.round = Fence{0, Generation(0)};
  welcome.founder = "host-a.17.5eed";
  welcome.world_size = 2;
  welcome.role_world_size = 2;
  welcome.master_addr = "10.0.0.1";
  welcome.master_port = 40001;
  EXPECT_EQ(
      encode(CoordinatorMessage(welcome)),
      std::string("\0\0\x01\x11", 4) +
          R"({"type":"welcome","round":{"epoch":0,"generation":0},)"
          R"("founder":"host-a.17.5eed","node_rank":0,"node_count":1,"base_rank":0,"world_size":2,"base_role_rank":0,)"
          R"("role_world_size":2,"master_addr":"10.0.0.1","master_port":40001,)"
          R"("restart_count":0,"coordinator":"","successors":[]})");
  EXPECT_EQ(encode(CoordinatorMessage(Ping{7, Fence{0, Generation(0)}})),
            std::string("\0\0\0\x59", 4) +
                R"({"type":"ping","number":7,"last":{"epoch":0,"generation":0},"quorum":true,)"
                R"("silence_us":0})");
  EXPECT_EQ(encode(AgentMessage(Pong{7})),
            std::string("\0\0\0\x1A", 4) + R"({"type":"pong","number":7})");
}

TEST(FrameTest, AConnectionCutAtAnyByteYieldsTheWholeMessagesBeforeTheCut) {
  std::string bytes(greeting());
  std::vector<std::size_t> ends;
  for (const auto& message : agent_messages()) {
    bytes += encode(message);
    ends.push_back(bytes.size());
  }
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameDecoder decoder(kMaxAgentFrame);
    decoder.feed(bytes.substr(0, cut));
    const Decoded decoded = drain(decoder);
    EXPECT_EQ(decoded.error, "");
    const auto whole = std::upper_bound(ends.begin(), ends.end(), cut) - ends.begin();
    ASSERT_EQ(decoded.payloads.size(), static_cast<std::size_t>(whole)) << "cut at " << cut;
  }
}

TEST(FrameTest, BytesThatComeOneByOneDecodeTheSame) {
  std::string bytes(greeting());
  for (const auto& message : agent_messages()) bytes += encode(message);
  FrameDecoder decoder(kMaxAgentFrame);
  std::vector<AgentMessage> messages;
  for (const char byte : bytes) {
    const auto room = decoder.prepare();
    room[0] = byte;
    decoder.commit(1);
    const auto payload = decoder.next();
    ASSERT_TRUE(payload) << payload.error().detail;
    if (payload->has_value()) messages.push_back(*decode_agent_message(**payload));
  }
  EXPECT_EQ(messages, agent_messages());
  EXPECT_TRUE(decoder.idle());
}

TEST(FrameTest, APayloadCutAtAnyByteIsRefused) {
  const std::string payload = payload_of(encode(AgentMessage(some_join())));
  for (std::size_t cut = 0; cut < payload.size(); ++cut)
    ASSERT_FALSE(decode_agent_message(payload.substr(0, cut))) << "cut at " << cut;
}

TEST(FrameTest, GreetingsOfOtherProtocolsAreTold) {
  for (const char* other : {"GET / HTTP/1.1\r\n", "HEAD / ", "\x0b\x00\x00\x00", "drun1\n", "DRUX"})
    EXPECT_FALSE(greets_as_agent(other)) << other;
  for (const char* ours : {"", "D", "DRUN", "DRUN1\n", "DRUN2\n"})
    EXPECT_TRUE(greets_as_agent(ours)) << ours;
}

TEST(FrameTest, AnotherVersionIsRefusedInWords) {
  FrameDecoder decoder(kMaxAgentFrame);
  decoder.feed("DRUN2\n");
  const auto refused = decoder.next();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_THAT(refused.error().detail, HasSubstr("the same version of distrun"));
  decoder.feed("DRUN1\n");
  EXPECT_EQ(decoder.next().error(), refused.error()) << "an error is for good";
}

TEST(FrameTest, AnotherProtocolInPlaceOfTheGreetingIsRefusedAtTheFirstWrongByte) {
  FrameDecoder decoder(kMaxAgentFrame);
  decoder.feed("H");
  EXPECT_EQ(drain(decoder).error, "not the agent protocol: no greeting");
}

TEST(FrameTest, AnAnnouncedLengthOverTheLimitIsRefusedBeforeItsBytesCome) {
  FrameDecoder decoder(1000);
  decoder.feed(std::string(greeting()) + std::string("\0\0\x03\xE9", 4));
  EXPECT_EQ(drain(decoder).error, "a message of 1001 bytes, at most 1000");
  EXPECT_LT(decoder.memory(), 8192U);
}

TEST(FrameTest, AnAnnouncedLengthCostsNothingUntilItsBytesCome) {
  FrameDecoder decoder(kMaxCoordinatorFrame);
  decoder.feed(std::string(greeting()) + std::string("\0\x0F\xFF\xFF", 4));
  EXPECT_EQ(drain(decoder).error, "");
  EXPECT_LT(decoder.prepare().size(), 16'384U);
}

TEST(FrameTest, UnknownFieldsAreIgnored) {
  const std::string payload = payload_of(encode(AgentMessage(Pong{7})));
  const auto decoded = decode_agent_message(with(payload, "{", R"({"colour":{"deep":[[[[1]]]]},)"));
  ASSERT_TRUE(decoded) << decoded.error().detail;
  EXPECT_EQ(*decoded, AgentMessage(Pong{7}));
}

TEST(FrameTest, AnUnknownTypeIsNamed) {
  EXPECT_EQ(agent_error(R"({"type":"sing"})"), R"(type: not known to this version: "sing")");
  EXPECT_EQ(agent_error(R"({"type":7})"), "type: not known to this version: 7");
  EXPECT_EQ(agent_error(R"({})"), "type: missing");
}

TEST(FrameTest, AMessageOfTheOtherSideIsNotKnown) {
  EXPECT_THAT(agent_error(payload_of(encode(CoordinatorMessage(Ping{})))), HasSubstr("type: not"));
}

TEST(FrameTest, ValuesOutOfTheirRangeAreNamedWithTheirPlace) {
  const std::string join = payload_of(encode(AgentMessage(some_join())));
  const auto error = [&](const std::string& from, const std::string& to) {
    return agent_error(with(join, from, to));
  };
  EXPECT_EQ(error("\"nproc\":8", "\"nproc\":0"), "join: nproc: not in 1..4096: 0");
  EXPECT_EQ(error("\"nproc\":8", "\"nproc\":\"8\""), "join: nproc: not in 1..4096: \"8\"");
  EXPECT_EQ(error("\"nproc\":8", "\"nproc\":8.5"), "join: nproc: not in 1..4096: 8.5");
  EXPECT_EQ(error("\"nproc\":8", "\"nproc\":18446744073709551615"),
            "join: nproc: not in 1..4096: 18446744073709551615");
  EXPECT_EQ(error("\"nproc\":8", "\"nproc\":1e400"), "not a JSON object");
  EXPECT_EQ(error("\"nproc\":8,", ""), "join: nproc: missing");
  EXPECT_EQ(error("\"nproc\":8", "\"nproc\":null"), "join: nproc: missing");
  EXPECT_EQ(error("\"store_port\":40001", "\"store_port\":65536"),
            "join: store_port: not in 0..65535: 65536");
  EXPECT_EQ(error("\"min_nodes\":2", "\"min_nodes\":-1"),
            "join: terms.min_nodes: not in 1..65536: -1");
  EXPECT_EQ(error("\"min_nodes\":2", "\"min_nodes\":5"),
            "join: terms: min_nodes is more than max_nodes");
  EXPECT_EQ(error("\"beat_us\":4000", "\"beat_us\":0"), "join: terms: beat_us: not in 1 ms..24 h");
  EXPECT_EQ(error("\"last_call_us\":2000", "\"last_call_us\":9223372036854775807"),
            "join: terms.last_call_us: not in 0..315360000000000: 9223372036854775807");
  EXPECT_EQ(error("\"hosts\":true", "\"hosts\":1"), "join: hosts: not true or false: 1");
  EXPECT_EQ(error("\"epoch\":17", "\"epoch\":-1"),
            "join: held.round.epoch: not in 0..2147483647: -1");
  EXPECT_EQ(error("\"result\":\"failed\"", "\"result\":\"won\""),
            "join: held.outcome.result: not known to this version: \"won\"");
  EXPECT_EQ(error("\"result\":\"failed\"", "\"result\":\"stopped\""),
            "join: held.outcome: a failure is to be given exactly if the result is \"failed\"");
  EXPECT_EQ(error("\"terms\":{", "\"terms\":7,\"x\":{"), "join: terms: not an object: 7");
}

TEST(FrameTest, NamesAreShortAndWithoutControlCharacters) {
  const std::string join = payload_of(encode(AgentMessage(some_join())));
  EXPECT_EQ(
      agent_error(with(join, "\"job\":\"train\"", "\"job\":\"" + std::string(257, 'x') + "\"")),
      "join: job: 257 bytes, at most 256");
  EXPECT_EQ(agent_error(with(join, "\"host\":\"host-b\"", R"("host":"a\u001b[2Jb")")),
            R"(join: host: has a control character: "a\u001b[2Jb")");
}

TEST(FrameTest, ListsAreBounded) {
  Waiting waiting;
  waiting.hosts.assign(kMaxHosts + 1, "h");
  const auto decoded = decode_coordinator_message(payload_of(encode(CoordinatorMessage(waiting))));
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().detail, "waiting: hosts: 9 elements, at most 8");
}

TEST(FrameTest, AReportThatIsNoUtf8AndTooLongArrivesCutAtACharacter) {
  Outcome outcome = some_outcome();
  outcome.report = "\xFF" + std::string(kMaxReport, '\xC3');
  const auto decoded = decode_agent_message(payload_of(encode(AgentMessage(Ended{outcome, 1}))));
  ASSERT_TRUE(decoded) << decoded.error().detail;
  const std::string& report = std::get<Ended>(*decoded).outcome.report;
  EXPECT_EQ(report.size(), kMaxReport);
  EXPECT_EQ(report.substr(0, 6), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(FrameTest, TheLongestMessagesFitTheirFrames) {
  Ended ended{some_outcome(), 1};
  ended.outcome.report = std::string(2 * kMaxReport, '\x01');  // six bytes each
  ended.outcome.failure->status = std::string(kMaxStatus, '\x01');
  EXPECT_LE(encode(AgentMessage(ended)).size() - kFrameHeaderBytes, kMaxAgentFrame);
  Join join = some_join();
  join.terms.command = std::string(kMaxCommand, '\x01');
  join.held->outcome = ended.outcome;
  for (std::string* name : {&join.job, &join.token, &join.node, &join.host, &join.role})
    *name = std::string(kMaxName, '"');
  EXPECT_LE(encode(AgentMessage(join)).size() - kFrameHeaderBytes, kMaxAgentFrame);
  Over over = some_over();
  over.report = ended.outcome.report;
  over.why = std::string(kMaxWhy, '\x01');
  EXPECT_LE(encode(CoordinatorMessage(over)).size() - kFrameHeaderBytes, kMaxCoordinatorFrame);
}

TEST(FrameTest, NestingDeeperThanAnyOfOursIsHarmless) {
  const std::string deep(100'000, '[');
  EXPECT_EQ(agent_error(deep), "not a JSON object");
  const std::string closed =
      R"({"x":)" + deep + std::string(100'000, ']') + R"(,"type":"pong","number":1})";
  EXPECT_EQ(agent_error(closed), "");
}

}  // namespace
}  // namespace distrun::rendezvous
