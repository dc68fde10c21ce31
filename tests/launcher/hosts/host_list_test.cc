#include "launcher/hosts/host_list.h"

#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

using Hosts = std::vector<Host>;

// The value; a test that has none fails and says why.
template <class T>
T got(Result<T> result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().detail);
  return result ? std::move(*result) : T();
}

std::string why(const Result<Hosts>& hosts) {
  return hosts ? "it was taken" : hosts.error().detail;
}

TEST(HostList, NamesUsersAddressesAndWorkers) {
  EXPECT_EQ(
      got(parse_hosts("h1,ann@h2:8, 10.0.0.3:2 ,[fd77::4],bob@[fe80::5%eth0]:1")),
      (Hosts{
          {"h1", {}}, {"ann@h2", 8}, {"10.0.0.3", 2}, {"fd77::4", {}}, {"bob@fe80::5%eth0", 1}}));
}

TEST(HostList, TheAddressIsWithoutTheUser) {
  EXPECT_EQ(address_of({"ann@h2", {}}), "h2");
  EXPECT_EQ(address_of({"h2", {}}), "h2");
}

TEST(HostList, AHostThatIsThereTwiceIsRefused) {
  EXPECT_EQ(why(parse_hosts("h1,h2,ann@H1:3")),
            "'h1' is there twice; give it once, with the number of its workers: h1:8");
}

TEST(HostList, WhatIsNoHostIsRefusedInWords) {
  EXPECT_EQ(why(parse_hosts("h1,")), "an empty name in the list: 'h1,'");
  EXPECT_EQ(why(parse_hosts("fd77::4")),
            "'fd77::4': an IPv6 address stands in brackets: [ADDRESS] or [ADDRESS]:8");
  EXPECT_EQ(why(parse_hosts("[h1]:8")), "'[h1]:8': only an IPv6 address stands in brackets");
  EXPECT_EQ(why(parse_hosts("[fd77::4")), "'[fd77::4': only an IPv6 address stands in brackets");
  EXPECT_EQ(why(parse_hosts("[fd77::4]8")), "'[fd77::4]8': behind ']' only :WORKERS may follow");
  EXPECT_EQ(why(parse_hosts("h1:many")),
            "'h1:many': not a number of workers from 1 to 65536: 'many'");
  EXPECT_EQ(why(parse_hosts("h1:0")), "'h1:0': not a number of workers from 1 to 65536: '0'");
  EXPECT_EQ(why(parse_hosts("h1:")), "'h1:': not a number of workers from 1 to 65536: ''");
  EXPECT_EQ(why(parse_hosts("@h1")), "'@h1': not a user: ''");
}

TEST(HostList, NothingThatAnSshClientCouldTakeForAnOptionOrACommandPasses) {
  for (const char* text : {"-oProxyCommand=x", "a@-oProxyCommand=x", "-l@h1", "h1;id", "$(id)",
                           "h1 id", "h1\nid", "h1/x"}) {
    EXPECT_FALSE(parse_hosts(text)) << text;
  }
}

TEST(HostList, AsManyAsThereMayBe) {
  std::string text = "h0";
  for (std::size_t i = 1; i < kHostsMax; ++i) text += ",h" + std::to_string(i);
  EXPECT_EQ(got(parse_hosts(text)).size(), kHostsMax);
  EXPECT_EQ(why(parse_hosts(text + ",one")), "more than 1024 hosts");
}

TEST(HostFile, TheFormsOfALine) {
  EXPECT_EQ(got(parse_hostfile(
                "# the cluster\n\nh1\nh2:8 # new\r\n\t ann@h3   slots=4\n[fd77::4] slots=2")),
            (Hosts{{"h1", {}}, {"h2", 8}, {"ann@h3", 4}, {"fd77::4", 2}}));
}

TEST(HostFile, AnErrorNamesTheLine) {
  EXPECT_EQ(why(parse_hostfile("h1\nh2 slots=x\n")),
            "line 2: 'slots=x': not a number of workers from 1 to 65536: 'x'");
  EXPECT_EQ(why(parse_hostfile("h1 max_slots=2")),
            "line 1: 'max_slots=2': only slots=N may stand behind the host");
  EXPECT_EQ(why(parse_hostfile("h1:2 slots=2")),
            "line 1: 'slots=2': the number of workers is there twice");
  EXPECT_EQ(why(parse_hostfile("h1\n\nh2\nh1\n")),
            "'h1' is there twice (line 1, line 4); give it once, with the number of its workers: "
            "h1:8");
}

TEST(HostFile, OneWithoutAHostIsRefused) {
  EXPECT_EQ(why(parse_hostfile("# nobody\n\n")), "there is no host in it");
}

}  // namespace
}  // namespace distrun::launcher
