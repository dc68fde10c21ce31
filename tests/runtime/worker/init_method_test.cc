#include "runtime/worker/init_method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace distrun {
namespace {

using ::testing::HasSubstr;

Lookup variables(std::map<std::string, std::string> held) {
  return [held = std::move(held)](const std::string& name) -> std::optional<std::string> {
    const auto found = held.find(name);
    return found == held.end() ? std::nullopt : std::optional(found->second);
  };
}

Meeting of(const std::string& url, int rank = -1, int world_size = -1) {
  return meeting_of({.init_method = url, .rank = rank, .world_size = world_size}, variables({}));
}

std::string refused(const std::string& url, int rank = -1, int world_size = -1) {
  try {
    of(url, rank, world_size);
  } catch (const DistArgumentError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(InitMethod, ReadsWhereAndAsWhichOfHowMany) {
  const Meeting named = of("tcp://head:29400", 1, 2);
  EXPECT_EQ(named.host, "head");
  EXPECT_EQ(named.port, 29400);
  EXPECT_EQ(named.rank, 1);
  EXPECT_EQ(named.world_size, 2);
  const Meeting six = of("tcp://[::1]:5?rank=3&world_size=4");
  EXPECT_EQ(six.host, "::1");
  EXPECT_EQ(six.rank, 3);
  const Meeting file = of("file:///shared/x?world_size=2", 0);
  EXPECT_EQ(file.kind, Meeting::Kind::file);
  EXPECT_EQ(file.path, "/shared/x");
}

TEST(InitMethod, TheEnvironmentIsTheLaunchers) {
  const Meeting meeting = meeting_of({}, variables({{"RANK", "1"},
                                                    {"WORLD_SIZE", "4"},
                                                    {"MASTER_ADDR", "10.0.0.1"},
                                                    {"MASTER_PORT", "123"},
                                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                    {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_EQ(meeting.rank, 1);
  EXPECT_EQ(meeting.host, "10.0.0.1");
  EXPECT_EQ(meeting.attempt, 2);
}

TEST(InitMethod, WhatCannotBeIsRefusedInWords) {
  EXPECT_THAT(refused("ftp://x"), HasSubstr("there are env://, tcp://HOST:PORT and file:///PATH"));
  EXPECT_THAT(refused("tcp://head", 0, 2), HasSubstr("it needs HOST:PORT"));
  EXPECT_THAT(refused("tcp://head:0", 0, 2), HasSubstr("port 0 is not in 1..65535"));
  EXPECT_THAT(refused("tcp://head:x", 0, 2), HasSubstr("the port is no number: \"x\""));
  EXPECT_THAT(refused("tcp://head:1"), HasSubstr("got rank -1 of -1"));
  EXPECT_THAT(refused("tcp://head:1?rank=1&world_size=1"), HasSubstr("got rank 1 of 1"));
  EXPECT_THAT(refused("tcp://head:1?rank=0", 0, 2), HasSubstr("rank is given here and beside it"));
  EXPECT_THAT(refused("tcp://head:1?size=2"), HasSubstr("\"size\" is unknown"));
  EXPECT_THAT(refused("file://relative", 0, 2), HasSubstr("it needs an absolute path"));
  EXPECT_THAT(refused("env://", 0, 2), HasSubstr("RANK and WORLD_SIZE"));
}

}  // namespace
}  // namespace distrun
