// Tls: TLS to etcd by OpenSSL, without a socket: bytes in, bytes out.
//
//   peer's bytes --take()--> TlsSession --said()--> what the peer says
//        to_send() <------------/   \<-----say()--- what this end says
//
// OpenSSL is loaded when TLS is asked for, and by nothing else: to be linked with it would cost
// each start of the launcher more time than all of its own work.
//
// One thread.
#pragma once

#include "runtime/base/result.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace distrun::rendezvous::etcd {

struct TlsFiles {    // PEM
  std::string ca;    // who is trusted to sign; empty: whom this machine trusts
  std::string cert;  // this client's, if etcd asks for one; both or neither
  std::string key;
  bool operator==(const TlsFiles&) const = default;
};

class TlsSession {
 public:
  virtual ~TlsSession() = default;

  virtual void take(std::string_view bytes) = 0;
  // As far as it can be gone on with what was taken, from the first call on.  The error says what
  // to do.
  virtual Result<void> advance() = 0;
  virtual bool is_open() const = 0;  // the peer is who it should be
  // The peer has said that no more will come.
  virtual bool has_ended() const = 0;
  virtual std::string said() = 0;
  // REQUIRES: is_open().
  virtual void say(std::string_view text) = 0;
  virtual std::string to_send() = 0;
};

class Tls {
 public:
  // The error names the file, or the library that is missing.
  static Result<std::shared_ptr<const Tls>> open(const TlsFiles& files);
  virtual ~Tls() = default;
  // `host`: the name, or address, for which the peer's certificate has to be.
  virtual std::unique_ptr<TlsSession> begin(const std::string& host) const = 0;
};

// TlsSource: certificates end, and others take their place in the same files.
class TlsSource {
 public:
  static Result<std::unique_ptr<TlsSource>> open(const TlsFiles& files);
  // For a new connection: of the files as they are now.  While these cannot be used, as they were.
  const std::shared_ptr<const Tls>& current();

 private:
  struct Stamp {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::int64_t size = 0;
    std::int64_t changed_s = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 3>;
  explicit TlsSource(TlsFiles files) : files_(std::move(files)) {}
  Stamps look() const;

  TlsFiles files_;
  Stamps stamps_{};
  std::shared_ptr<const Tls> tls_;
};

}  // namespace distrun::rendezvous::etcd
