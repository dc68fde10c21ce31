// Certificates are replaced in their files while the program runs.
#include "rendezvous/etcd/gateway/tls.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <dlfcn.h>
#include <fstream>
#include <string>
#include <unistd.h>

namespace distrun::rendezvous::etcd {
namespace {

// Of two CAs; their keys are nobody's.
constexpr const char* kOne =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBdDCCARmgAwIBAgIUavH+bucYUKgiMY1n5kQGaOMh1PMwCgYIKoZIzj0EAwIw\n"
    "DjEMMAoGA1UEAwwDb25lMCAXDTI2MTEzMDA5MDAyMVoYDzIxMjYxMTA2MDkwMDIx\n"
    "WjAOMQwwCgYDVQQDDANvbmUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARJP+gD\n"
    "oXzql40V4wr+MNcLLcYGcGnBSuB9drWKNZLuhOdqrXbfxFMyPf7joXT+jfaPyuOW\n"
    "8lYdNYFD99B5GXQEo1MwUTAdBgNVHQ4EFgQULyEoe/2O9XwA7wonWracKx7sOQow\n"
    "HwYDVR0jBBgwFoAULyEoe/2O9XwA7wonWracKx7sOQowDwYDVR0TAQH/BAUwAwEB\n"
    "/zAKBggqhkjOPQQDAgNJADBGAiEA1avEFatxx7+xjOaOag5ZE3sqaR7DtX2652bX\n"
    "GA7ARFwCIQCK0CDZcUcB5R4SipRXHBiWfh9d5bEIowaCmH46i/5qZg==\n"
    "-----END CERTIFICATE-----\n";
constexpr const char* kTwo =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBcjCCARmgAwIBAgIUcf9UbY6PzrSHA/VvhmrOK4LsM6gwCgYIKoZIzj0EAwIw\n"
    "DjEMMAoGA1UEAwwDdHdvMCAXDTI2MTEzMDA5MDAyMloYDzIxMjYxMTA2MDkwMDIy\n"
    "WjAOMQwwCgYDVQQDDAN0d28wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASbrXgv\n"
    "/p2MeDkw3Y6gVl1mbMlByK5oOfLPGtBZmo+CPMbLjSzT3IAiuceQSaABfdMBqcPI\n"
    "Vd4HxginpploKP3ko1MwUTAdBgNVHQ4EFgQUfvukkFNwCtEx+AMmdbsghD23R9ww\n"
    "HwYDVR0jBBgwFoAUfvukkFNwCtEx+AMmdbsghD23R9wwDwYDVR0TAQH/BAUwAwEB\n"
    "/zAKBggqhkjOPQQDAgNHADBEAiAM9nok9+X6zn+ylz4X5bmy1Xf7g9+urHGnTx6q\n"
    "p7mYzgIgBNMMBGVsWGdLXonmUJSE5ajknwtXpYuEzk6tIpNDFYs=\n"
    "-----END CERTIFICATE-----\n";

class EtcdTlsSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::dlopen("libssl.so.3", RTLD_LAZY) == nullptr) GTEST_SKIP() << "no OpenSSL 3 (libssl3)";
    put(kOne);
    files_.ca = path_;
    auto opened = TlsSource::open(files_);
    ASSERT_TRUE(opened) << opened.error().detail;
    source_ = std::move(*opened);
  }
  void TearDown() override { std::remove(path_.c_str()); }
  // As who renews certificates does: a new file takes the old one's name.
  void put(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    ASSERT_EQ(std::rename((path_ + ".new").c_str(), path_.c_str()), 0);
  }

  const std::string path_ = testing::TempDir() + "ca." + std::to_string(::getpid()) + ".pem";
  TlsFiles files_;
  std::unique_ptr<TlsSource> source_;
};

TEST_F(EtcdTlsSourceTest, FilesThatDidNotChangeAreReadOnce) {
  const auto first = source_->current();
  EXPECT_EQ(source_->current(), first);
}

TEST_F(EtcdTlsSourceTest, AFileThatWasReplacedIsReadAgain) {
  const auto first = source_->current();
  put(kTwo);
  const auto second = source_->current();
  EXPECT_NE(second, first);
  EXPECT_EQ(source_->current(), second);
}

TEST_F(EtcdTlsSourceTest, WhileAFileIsNotWholeTheOldOneServes) {
  const auto first = source_->current();
  put(std::string(kTwo).substr(0, 100));
  EXPECT_EQ(source_->current(), first);
  std::remove(path_.c_str());
  EXPECT_EQ(source_->current(), first);
  put(kTwo);
  EXPECT_NE(source_->current(), first);
}

}  // namespace
}  // namespace distrun::rendezvous::etcd
