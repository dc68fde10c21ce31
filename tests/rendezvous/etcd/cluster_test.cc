// The URL of --state, what a replica says of itself and keeps, and the JSON of etcd's gateway.
#include "rendezvous/etcd/cluster.h"

#include "rendezvous/etcd/gateway/json.h"
#include "rendezvous/etcd/replica.h"
#include "rendezvous/protocol/record_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace distrun::rendezvous::etcd {
namespace {

using testing::HasSubstr;

TEST(EtcdClusterTest, TakesEndpointsAndAPrefix) {
  const auto cluster = parse_cluster("etcd://10.0.0.1:2379,etcd-b,[::1]:2381/site/a/");
  ASSERT_TRUE(cluster);
  EXPECT_EQ(cluster->endpoints,
            (std::vector<Endpoint>{{"10.0.0.1", 2379}, {"etcd-b", 2379}, {"::1", 2381}}));
  EXPECT_EQ(cluster->prefix, "/site/a");
  EXPECT_EQ(parse_cluster("etcd://h")->prefix, "/distrun");
}

TEST(EtcdClusterTest, RefusesWhatCannotBeWithTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"etcd://h:70000", "h:70000: the port"},
      {"etcd://", "has no host"},
      {"etcd://a,,b", "has no host"},
      {"etcd://::1:2379", "in brackets"},
      {"https://h", "etcds:// if etcd speaks TLS"},
      {"http://h:2379", "begins with etcd://"},
      {"etcd:h", "begins with etcd://"},
      {"etcd://root:pw@h", "ETCDCTL_PASSWORD"},
      {"etcd://h?ttl=1", "has no options"},
      {"http://root:pw@h", "http://...@h: begins with etcd://"},
      {"etcd:root:pw@h", "...@h: begins with etcd://"},
      {"etcd://root:pw@h?x", "etcd://...@h?x: has no options"},
      {"etcd://us/er:pw@h/prefix", "ETCDCTL_USER"},
  };
  for (const auto& [text, why] : cases) {
    const auto cluster = parse_cluster(text);
    ASSERT_FALSE(cluster) << text;
    EXPECT_THAT(cluster.error().detail, HasSubstr(why));
    EXPECT_THAT(cluster.error().detail, testing::Not(HasSubstr("pw")));
  }
}

TEST(EtcdClusterTest, AReplicaAdvertisesWhatItWasToldOrWhereItListens) {
  const std::pair<const char*, const char*> cases[] = {{"", "10.0.0.1:29400"},
                                                       {"h2", "h2:29400"},
                                                       {"10.0.0.2:80", "10.0.0.2:80"},
                                                       {"fd77::1", "[fd77::1]:29400"},
                                                       {"[fd77::1]:80", "[fd77::1]:80"}};
  for (const auto& [told, means] : cases) {
    const auto text = advertised(told, "10.0.0.1", 29400);
    ASSERT_TRUE(text) << told;
    EXPECT_EQ(*text, means);
  }
  EXPECT_EQ(*advertised("", "fd77::1", 29400), "[fd77::1]:29400");
}

TEST(EtcdClusterTest, NoReplicaAdvertisesWhereNobodyCanGo) {
  for (const char* told : {"h:abc", "h:0", "h:70000", "h 1", "[::1", "0.0.0.0", "[::]:80", ":80"}) {
    const auto text = advertised(told, "10.0.0.1", 29400);
    ASSERT_FALSE(text) << *text;
    EXPECT_THAT(text.error().detail, testing::StartsWith("--advertise: "));
  }
  EXPECT_THAT(advertised("", "0.0.0.0", 29400).error().detail, HasSubstr("--advertise is missing"));
  EXPECT_THAT(advertised("", "::", 29400).error().detail, HasSubstr("--advertise is missing"));
}

TEST(EtcdRecordTest, ThatOfTheLargestJobIsOneThatEtcdTakesAndEightAreOnePage) {
  Record record;
  record.job = "train";
  record.node_count = kMaxNodes;
  record.hosts.assign(kMaxNodes, std::string(40, 'h'));
  record.over.emplace();
  record.over->report = std::string(kMaxReport, '\x01');  // six bytes each as JSON
  record.over->why = std::string(2000, '\x01');
  const std::string text = record_for_etcd(record);
  EXPECT_LT(text.size() * static_cast<std::size_t>(LeaderLimits{}.page), 4UL * 1024 * 1024);
  record.hosts.clear();
  EXPECT_EQ(*record_from_json(text), *record_from_json(record_to_json(record)));
}

TEST(EtcdClusterTest, TakesTlsAndAUser) {
  const auto cluster = parse_cluster("etcds://job@h1,h2:2380/a");
  ASSERT_TRUE(cluster);
  EXPECT_TRUE(cluster->security.tls);
  EXPECT_EQ(cluster->security.user, "job");
  EXPECT_EQ(to_text(cluster->endpoints), "h1:2379,h2:2380");
  EXPECT_FALSE(parse_cluster("etcd://h")->security.tls);
}

// As if these were set.
Variables variables(std::map<std::string, std::string> set) {
  return [set = std::move(set)](const char* name) -> std::optional<std::string> {
    const auto found = set.find(name);
    return found == set.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(EtcdSecurityTest, TakesFromTheEnvironmentWhatIsOpen) {
  Security security;
  security.tls = true;
  security.files.ca = "mine";
  ASSERT_TRUE(complete(security, variables({{"ETCDCTL_CACERT", "ca"},
                                            {"ETCDCTL_CERT", "cert"},
                                            {"ETCDCTL_KEY", "key"},
                                            {"ETCDCTL_USER", "job:a:b"},
                                            {"ETCDCTL_PASSWORD", "other"}})));
  EXPECT_EQ(security.files, (TlsFiles{"mine", "cert", "key"}));
  EXPECT_EQ(security.user, "job");
  EXPECT_EQ(security.password, "a:b");
}

TEST(EtcdSecurityTest, TakesNoCertificateWithoutTls) {
  Security security;
  ASSERT_TRUE(complete(security, variables({{"ETCDCTL_CACERT", "ca"}})));
  EXPECT_EQ(security, Security{});
}

TEST(EtcdSecurityTest, AUserHasAPassword) {
  Security security;
  security.user = "job";
  const auto completed = complete(security, variables({{"ETCDCTL_USER", "other:secret"}}));
  ASSERT_FALSE(completed);
  EXPECT_THAT(completed.error().detail, HasSubstr("user job"));
  EXPECT_THAT(completed.error().detail, HasSubstr("ETCDCTL_PASSWORD"));
  ASSERT_TRUE(complete(security, variables({{"ETCDCTL_PASSWORD", "secret"}})));
  EXPECT_EQ(security.password, "secret");
}

TEST(EtcdJsonTest, ATokenIsAWord) {
  EXPECT_EQ(*token_from(R"({"header":{},"token":"abc.9"})"), "abc.9");
  for (const char* bad :
       {"", "{}", "[]", R"({"token":""})", R"({"token":3})", R"({"token":"a\r\nb"})"}) {
    EXPECT_FALSE(token_from(bad)) << bad;
  }
}

TEST(EtcdJsonTest, Base64GoesThereAndBack) {
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("f"), "Zg==");
  for (const std::string& bytes :
       {std::string(), std::string("\0\xff\x80", 3), std::string("ab")}) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  }
  for (const char* bad : {"Zg=", "Z===", "Zg==Zg==", "Z g=", "=g=="}) {
    EXPECT_FALSE(from_base64(bad)) << bad;
  }
}

TEST(EtcdJsonTest, AFailedTransactionSaysWhatIsThere) {
  const auto answer = answer_from(
      Transaction{},
      R"({"header":{"revision":"9"},"responses":[{"response_range":{"kvs":[{"key":"YQ==","value":)"
      R"("Yg==","create_revision":"4","lease":"7587862094"}],"count":"1"}},{"response_range":{}}]})");
  ASSERT_TRUE(answer) << answer.error().detail;
  const auto& done = std::get<Transacted>(*answer);
  EXPECT_FALSE(done.succeeded);
  EXPECT_EQ(done.keys, (std::vector<KeyValue>{{"a", "b", 4, 7587862094}}));
}

TEST(EtcdJsonTest, AKeepAliveOfALeaseThatIsGoneHasNoTime) {
  const auto answer = answer_from(KeepAlive{5}, R"({"result":{"header":{},"ID":"5"}})");
  ASSERT_TRUE(answer) << answer.error().detail;
  EXPECT_EQ(std::get<KeptAlive>(*answer).ttl_seconds, 0);
}

TEST(EtcdJsonTest, AWatchTellsOfChangesAndOfItsEnd) {
  const auto line =
      watch_line_from(R"({"result":{"header":{},"events":[{"kv":{"key":"YQ==","value":"Yg=="}},)"
                      R"({"type":"DELETE","kv":{"key":"YQ=="}}]}})");
  ASSERT_TRUE(line);
  ASSERT_EQ(line->changes.size(), 2u);
  EXPECT_EQ(line->changes[0]->value, "b");
  EXPECT_FALSE(line->changes[1]);
  EXPECT_FALSE(line->ended);
  EXPECT_TRUE(watch_line_from(R"({"result":{"canceled":true,"compact_revision":"3"}})")->ended);
  EXPECT_EQ(watch_line_from(R"({"error":{"message":"gone"}})")->ended, "gone");
}

TEST(EtcdJsonTest, AnErrorIsOneLineAndNoLongerThanAMessageCanBear) {
  EXPECT_EQ(error_from(R"({"error":"a\nb\u001b[1m"})"), "a?b?[1m");
  EXPECT_EQ(error_from(R"({"message":")" + std::string(5000, 'x') + "\"}").size(), kMaxError);
  EXPECT_EQ(error_from("<html>\n"), "<html>?");
  EXPECT_TRUE(is_error_of_etcd(R"({"error":{"message":"gone"}})"));
  for (const char* other : {"", "[]", "<html>", R"({"status":404})", R"({"error":5})"}) {
    EXPECT_FALSE(is_error_of_etcd(other)) << other;
  }
}

TEST(EtcdJsonTest, WhatIsNoneOfEtcdsIsAnErrorAndNothingElse) {
  for (const char* text :
       {"", "[]", "null", "{", R"({"header":{"revision":"x"}})", R"({"kvs":[]})",
        R"({"header":{"revision":"1"},"kvs":[{"key":"?"}]})", R"({"header":[],"kvs":3})",
        R"({"header":{"revision":"1"},"kvs":[3]})"}) {
    EXPECT_FALSE(answer_from(Range{}, text)) << text;
  }
  EXPECT_FALSE(answer_from(Grant{}, R"({"TTL":"2"})"));
  EXPECT_FALSE(watch_line_from(R"({"result":{"events":[{}]}})"));
}

}  // namespace
}  // namespace distrun::rendezvous::etcd
