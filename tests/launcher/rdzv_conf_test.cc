#include "launcher/rdzv_conf.h"

#include <gmock/gmock.h>

namespace distrun::launcher {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::string refusal(std::string_view text) {
  const auto result = parse_rdzv_conf(text);
  return result ? "taken" : result.error().detail;
}

TEST(RdzvConf, NoTextGivesTheDefaults) {
  EXPECT_EQ(*parse_rdzv_conf(""), RdzvConf{});
  EXPECT_EQ(*parse_rdzv_conf("  "), RdzvConf{});
}

TEST(RdzvConf, TakesEveryDocumentedKey) {
  const auto conf = parse_rdzv_conf(
      "timeout=1,join_timeout=2,last_call_timeout=3,close_timeout=4,heartbeat_timeout=5,"
      "keep_alive_interval=6,keep_alive_max_attempt=7,is_host=no,read_timeout=8,store_type=file,"
      "protocol=https,ssl_cert=a,ssl_cert_key=b,ca_cert=c,cert=d,key=e,cacert=f,etcd_prefix=/g,"
      "etcd_ttl=9,user=h,password=i=j");
  ASSERT_TRUE(conf);
  RdzvConf expected;
  expected.timeout = 1s;
  expected.join_timeout = 2s;
  expected.last_call_timeout = 3s;
  expected.close_timeout = 4s;
  expected.heartbeat_timeout = 5s;
  expected.keep_alive_interval = 6s;
  expected.keep_alive_max_attempt = 7;
  expected.is_host = false;
  expected.read_timeout = 8s;
  expected.store_type = "file";
  expected.protocol = "https";
  expected.ssl_cert = "a";
  expected.ssl_cert_key = "b";
  expected.ca_cert = "c";
  expected.cert = "d";
  expected.key = "e";
  expected.cacert = "f";
  expected.etcd_prefix = "/g";
  expected.etcd_ttl = 9;
  expected.user = "h";
  expected.password = "i=j";
  EXPECT_EQ(*conf, expected);
}

TEST(RdzvConf, BlanksAroundKeysAndValuesDoNotCount) {
  EXPECT_EQ(parse_rdzv_conf(" timeout = 7 , is_host = T ")->timeout, Duration(7s));
}

TEST(RdzvConf, OnlyTheFirstEqualsSignSeparates) {
  EXPECT_EQ(parse_rdzv_conf("etcd_prefix=/a=b")->etcd_prefix, "/a=b");
}

TEST(RdzvConf, OfAKeyThatIsGivenTwiceTheLastCounts) {
  EXPECT_EQ(parse_rdzv_conf("timeout=1,timeout=2")->timeout, Duration(2s));
}

TEST(RdzvConf, BooleansHaveTenSpellings) {
  for (const char* yes : {"1", "true", "T", "Yes", "y"}) {
    EXPECT_EQ(parse_rdzv_conf("is_host=" + std::string(yes))->is_host, true) << yes;
  }
  for (const char* no : {"0", "false", "F", "No", "n"}) {
    EXPECT_EQ(parse_rdzv_conf("is_host=" + std::string(no))->is_host, false) << no;
  }
  EXPECT_THAT(refusal("is_host=maybe"), HasSubstr("is_host: neither true nor false: 'maybe'"));
}

TEST(RdzvConf, AnUnknownKeyIsAnErrorThatListsTheKnownOnes) {
  EXPECT_THAT(refusal("join_timout=3"), HasSubstr("did you mean join_timeout?"));
  for (const std::string_view key : rdzv_conf_keys()) {
    EXPECT_THAT(refusal("nonsense=1"), HasSubstr(std::string(key)));
  }
}

TEST(RdzvConf, RefusesWhatIsNotAListOfPairs) {
  for (const char* text : {"=1", ",", "timeout=1,", "timeout=1,,read_timeout=2"}) {
    EXPECT_THAT(refusal(text), HasSubstr("not a list such as")) << text;
  }
  EXPECT_EQ(refusal("timeout"), "timeout has no value");
  EXPECT_EQ(refusal("timeout= "), "timeout has no value");
}

TEST(RdzvConf, ALeaseHasTwoSecondsToTenMinutes) {
  for (const char* value : {"1", "601", "2.5"}) {
    EXPECT_THAT(refusal("etcd_ttl=" + std::string(value)), HasSubstr("from 2 to 600")) << value;
  }
}

TEST(RdzvConf, NoErrorRepeatsAPasswordOrAPartOfOne) {
  for (const char* text : {"user=a,password=secret,", "password=se,secret", "password=x,secret=1",
                           "password=secret,=2"}) {
    EXPECT_THAT(refusal(text), Not(HasSubstr("secret"))) << text;
  }
  EXPECT_THAT(refusal("user=me,password=se,cret"), HasSubstr("part 3, after password"));
  EXPECT_THAT(refusal("password=a,timeout=0"), HasSubstr("timeout: not a whole number"));
}

TEST(RdzvConf, TimesArePositiveWholeSeconds) {
  for (const char* value : {"0", "-1", "1.5", "1s", "99999999999"}) {
    EXPECT_THAT(refusal("read_timeout=" + std::string(value)), HasSubstr("read_timeout: "))
        << value;
  }
}

}  // namespace
}  // namespace distrun::launcher
