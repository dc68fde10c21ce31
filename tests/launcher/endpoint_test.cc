#include "launcher/endpoint.h"

#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

TEST(Endpoint, TakesHostAndPortApart) {
  EXPECT_EQ(*parse_endpoint("head:29400"), (Endpoint{"head", 29400}));
  EXPECT_EQ(*parse_endpoint("head"), (Endpoint{"head", std::nullopt}));
  EXPECT_EQ(*parse_endpoint("10.0.0.7:0"), (Endpoint{"10.0.0.7", 0}));
  EXPECT_EQ(*parse_endpoint("[fe80::1%eth0]:65535"), (Endpoint{"fe80::1%eth0", 65535}));
  EXPECT_EQ(*parse_endpoint("[::1]"), (Endpoint{"::1", std::nullopt}));
}

TEST(Endpoint, RefusesWhatIsNotOne) {
  for (const char* text :
       {"", ":", ":29400", "head:", "head:x", "head:65536", "head:-1", "head:+1", "head:000080",
        "a b:1", "a/b:1", "[::1", "[]:1", "2001:db8::5", "::1", "::1:29400"}) {
    EXPECT_FALSE(parse_endpoint(text)) << text;
  }
}

TEST(Endpoint, RefusesAHostThatNoDnsNameCanHave) {
  EXPECT_FALSE(parse_host(std::string(254, 'a')));
  EXPECT_FALSE(parse_host("a\nb"));
}

}  // namespace
}  // namespace distrun::launcher
