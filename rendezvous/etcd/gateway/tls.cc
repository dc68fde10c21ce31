#include "rendezvous/etcd/gateway/tls.h"

#include "runtime/base/check.h"

#include <boost/asio/ip/address.hpp>

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace distrun::rendezvous::etcd {
namespace {

constexpr const char* kLibrary = "libssl.so.3";

// What is used of OpenSSL; never unloaded.
struct OpenSsl {
  decltype(::BIO_ctrl_pending)* BIO_ctrl_pending = nullptr;
  decltype(::BIO_new)* BIO_new = nullptr;
  decltype(::BIO_read)* BIO_read = nullptr;
  decltype(::BIO_s_mem)* BIO_s_mem = nullptr;
  decltype(::BIO_write)* BIO_write = nullptr;
  decltype(::ERR_clear_error)* ERR_clear_error = nullptr;
  decltype(::ERR_peek_last_error)* ERR_peek_last_error = nullptr;
  decltype(::ERR_reason_error_string)* ERR_reason_error_string = nullptr;
  decltype(::SSL_CTX_check_private_key)* SSL_CTX_check_private_key = nullptr;
  decltype(::SSL_CTX_ctrl)* SSL_CTX_ctrl = nullptr;
  decltype(::SSL_CTX_free)* SSL_CTX_free = nullptr;
  decltype(::SSL_CTX_load_verify_file)* SSL_CTX_load_verify_file = nullptr;
  decltype(::SSL_CTX_new)* SSL_CTX_new = nullptr;
  decltype(::SSL_CTX_set_default_verify_paths)* SSL_CTX_set_default_verify_paths = nullptr;
  decltype(::SSL_CTX_set_verify)* SSL_CTX_set_verify = nullptr;
  decltype(::SSL_CTX_use_PrivateKey_file)* SSL_CTX_use_PrivateKey_file = nullptr;
  decltype(::SSL_CTX_use_certificate_chain_file)* SSL_CTX_use_certificate_chain_file = nullptr;
  decltype(::SSL_ctrl)* SSL_ctrl = nullptr;
  decltype(::SSL_do_handshake)* SSL_do_handshake = nullptr;
  decltype(::SSL_free)* SSL_free = nullptr;
  decltype(::SSL_get0_param)* SSL_get0_param = nullptr;
  decltype(::SSL_get_error)* SSL_get_error = nullptr;
  decltype(::SSL_get_verify_result)* SSL_get_verify_result = nullptr;
  decltype(::SSL_new)* SSL_new = nullptr;
  decltype(::SSL_read)* SSL_read = nullptr;
  decltype(::SSL_set1_host)* SSL_set1_host = nullptr;
  decltype(::SSL_set_bio)* SSL_set_bio = nullptr;
  decltype(::SSL_set_connect_state)* SSL_set_connect_state = nullptr;
  decltype(::SSL_write)* SSL_write = nullptr;
  decltype(::TLS_client_method)* TLS_client_method = nullptr;
  decltype(::X509_VERIFY_PARAM_set1_ip_asc)* X509_VERIFY_PARAM_set1_ip_asc = nullptr;
  decltype(::X509_verify_cert_error_string)* X509_verify_cert_error_string = nullptr;
};

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* in, OpenSsl& o) {
  return find(in, "BIO_ctrl_pending", o.BIO_ctrl_pending) && find(in, "BIO_new", o.BIO_new) &&
         find(in, "BIO_read", o.BIO_read) && find(in, "BIO_s_mem", o.BIO_s_mem) &&
         find(in, "BIO_write", o.BIO_write) && find(in, "ERR_clear_error", o.ERR_clear_error) &&
         find(in, "ERR_peek_last_error", o.ERR_peek_last_error) &&
         find(in, "ERR_reason_error_string", o.ERR_reason_error_string) &&
         find(in, "SSL_CTX_check_private_key", o.SSL_CTX_check_private_key) &&
         find(in, "SSL_CTX_ctrl", o.SSL_CTX_ctrl) && find(in, "SSL_CTX_free", o.SSL_CTX_free) &&
         find(in, "SSL_CTX_load_verify_file", o.SSL_CTX_load_verify_file) &&
         find(in, "SSL_CTX_new", o.SSL_CTX_new) &&
         find(in, "SSL_CTX_set_default_verify_paths", o.SSL_CTX_set_default_verify_paths) &&
         find(in, "SSL_CTX_set_verify", o.SSL_CTX_set_verify) &&
         find(in, "SSL_CTX_use_PrivateKey_file", o.SSL_CTX_use_PrivateKey_file) &&
         find(in, "SSL_CTX_use_certificate_chain_file", o.SSL_CTX_use_certificate_chain_file) &&
         find(in, "SSL_ctrl", o.SSL_ctrl) && find(in, "SSL_do_handshake", o.SSL_do_handshake) &&
         find(in, "SSL_free", o.SSL_free) && find(in, "SSL_get0_param", o.SSL_get0_param) &&
         find(in, "SSL_get_error", o.SSL_get_error) &&
         find(in, "SSL_get_verify_result", o.SSL_get_verify_result) &&
         find(in, "SSL_new", o.SSL_new) && find(in, "SSL_read", o.SSL_read) &&
         find(in, "SSL_set1_host", o.SSL_set1_host) && find(in, "SSL_set_bio", o.SSL_set_bio) &&
         find(in, "SSL_set_connect_state", o.SSL_set_connect_state) &&
         find(in, "SSL_write", o.SSL_write) && find(in, "TLS_client_method", o.TLS_client_method) &&
         find(in, "X509_VERIFY_PARAM_set1_ip_asc", o.X509_VERIFY_PARAM_set1_ip_asc) &&
         find(in, "X509_verify_cert_error_string", o.X509_verify_cert_error_string);
}

Result<OpenSsl> load() {
  OpenSsl found;
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr || !find_all(library, found)) {
    return Error{Errc::not_found,
                 std::string("TLS to etcd needs OpenSSL 3, which cannot be loaded (") +
                     ::dlerror() + "); install it: apt-get install libssl3"};
  }
  return found;
}

class Context final : public Tls, public std::enable_shared_from_this<Context> {
 public:
  explicit Context(const OpenSsl& openssl)
      : openssl_(openssl), context_(openssl_.SSL_CTX_new(openssl_.TLS_client_method())) {
    DISTRUN_CHECK(context_ != nullptr);
    openssl_.SSL_CTX_ctrl(context_, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
    openssl_.SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
  }
  ~Context() override { openssl_.SSL_CTX_free(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Result<void> read(const TlsFiles& files);
  std::unique_ptr<TlsSession> begin(const std::string& host) const override;

  const OpenSsl& openssl() const { return openssl_; }
  ::SSL_CTX* get() const { return context_; }
  std::string last_error() const;

 private:
  Error cannot_use(const std::string& file, const char* what) const;

  OpenSsl openssl_;
  ::SSL_CTX* context_;
};

std::string Context::last_error() const {
  const char* const reason = openssl_.ERR_reason_error_string(openssl_.ERR_peek_last_error());
  return reason == nullptr ? "unknown error" : reason;
}

Error Context::cannot_use(const std::string& file, const char* what) const {
  if (::access(file.c_str(), R_OK) != 0) {
    return Error{Errc::io,
                 std::string(what) + " cannot be read: " + file + ": " + std::strerror(errno)};
  }
  return Error{Errc::invalid_argument, std::string(what) + " cannot be used: " + file + " (" +
                                           last_error() + "); it has to be a PEM file"};
}

Result<void> Context::read(const TlsFiles& files) {
  openssl_.ERR_clear_error();
  if (files.ca.empty()) {
    openssl_.SSL_CTX_set_default_verify_paths(context_);
  } else if (openssl_.SSL_CTX_load_verify_file(context_, files.ca.c_str()) != 1) {
    return cannot_use(files.ca, "the CA's certificate");
  }
  if (files.cert.empty() && files.key.empty()) return {};
  if (files.cert.empty() || files.key.empty()) {
    return Error{Errc::invalid_argument,
                 "a client's certificate and its key: both are needed, or neither"};
  }
  if (openssl_.SSL_CTX_use_certificate_chain_file(context_, files.cert.c_str()) != 1) {
    return cannot_use(files.cert, "the client's certificate");
  }
  if (openssl_.SSL_CTX_use_PrivateKey_file(context_, files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return cannot_use(files.key, "the client's key");
  }
  if (openssl_.SSL_CTX_check_private_key(context_) != 1) {
    return Error{Errc::invalid_argument, files.key + " is not the key of " + files.cert};
  }
  return {};
}

class Session final : public TlsSession {
 public:
  Session(std::shared_ptr<const Context> context, const std::string& host)
      : context_(std::move(context)), openssl_(context_->openssl()) {
    ssl_ = openssl_.SSL_new(context_->get());
    DISTRUN_CHECK(ssl_ != nullptr);
    in_ = openssl_.BIO_new(openssl_.BIO_s_mem());
    out_ = openssl_.BIO_new(openssl_.BIO_s_mem());
    DISTRUN_CHECK(in_ != nullptr && out_ != nullptr);
    openssl_.SSL_set_bio(ssl_, in_, out_);  // which now belong to it
    openssl_.SSL_set_connect_state(ssl_);
    boost::system::error_code not_an_address;
    boost::asio::ip::make_address(host, not_an_address);
    int set = 0;
    if (!not_an_address) {
      set = openssl_.X509_VERIFY_PARAM_set1_ip_asc(openssl_.SSL_get0_param(ssl_), host.c_str());
    } else {
      set = openssl_.SSL_set1_host(ssl_, host.c_str());
      openssl_.SSL_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                        const_cast<char*>(host.c_str()));
    }
    DISTRUN_CHECK(set == 1);  // else any certificate would do
  }
  ~Session() override { openssl_.SSL_free(ssl_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void take(std::string_view bytes) override {
    const int taken = openssl_.BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
    DISTRUN_CHECK(taken == static_cast<int>(bytes.size()));
  }

  Result<void> advance() override {
    openssl_.ERR_clear_error();
    if (!open_) {
      const int done = openssl_.SSL_do_handshake(ssl_);
      if (done != 1) return outcome(done);
      open_ = true;
    }
    for (;;) {
      char bytes[16384];
      const int got = openssl_.SSL_read(ssl_, bytes, sizeof bytes);
      if (got <= 0) return outcome(got);
      said_.append(bytes, static_cast<std::size_t>(got));
    }
  }

  bool is_open() const override { return open_; }
  bool has_ended() const override { return ended_; }
  std::string said() override { return std::exchange(said_, {}); }

  void say(std::string_view text) override {
    DISTRUN_CHECK(open_);
    if (text.empty() || ended_) return;
    openssl_.ERR_clear_error();
    // Into memory, which takes all.
    (void)openssl_.SSL_write(ssl_, text.data(), static_cast<int>(text.size()));
  }

  std::string to_send() override {
    std::string bytes(openssl_.BIO_ctrl_pending(out_), '\0');
    if (bytes.empty()) return bytes;
    const int got = openssl_.BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }

 private:
  Result<void> outcome(int code) {
    switch (openssl_.SSL_get_error(ssl_, code)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return {};
      case SSL_ERROR_ZERO_RETURN:
        ended_ = true;
        return {};
    }
    const long verified = openssl_.SSL_get_verify_result(ssl_);
    if (verified != X509_V_OK) {
      return Error{Errc::unsupported, std::string("its certificate is not trusted: ") +
                                          openssl_.X509_verify_cert_error_string(verified)};
    }
    const std::string reason = context_->last_error();
    const bool no_tls = reason == "wrong version number" || reason == "http request" ||
                        reason == "packet length too long";
    if (no_tls) return Error{Errc::unsupported, "it speaks no TLS"};
    if (reason.find("alert certificate required") != std::string::npos ||
        reason.find("alert bad certificate") != std::string::npos ||
        reason.find("alert unknown ca") != std::string::npos) {
      return Error{Errc::unsupported,
                   "it does not take this client without another certificate (" + reason + ")"};
    }
    return Error{Errc::protocol, "TLS: " + reason};
  }

  std::shared_ptr<const Context> context_;
  const OpenSsl& openssl_;
  ::SSL* ssl_ = nullptr;
  ::BIO* in_ = nullptr;
  ::BIO* out_ = nullptr;
  bool open_ = false;
  bool ended_ = false;
  std::string said_;
};

std::unique_ptr<TlsSession> Context::begin(const std::string& host) const {
  return std::make_unique<Session>(shared_from_this(), host);
}

}  // namespace

Result<std::shared_ptr<const Tls>> Tls::open(const TlsFiles& files) {
  auto openssl = load();
  if (!openssl) return openssl.error();
  const auto context = std::make_shared<Context>(*openssl);
  if (const auto read = context->read(files); !read) return read.error();
  return std::shared_ptr<const Tls>(context);
}

Result<std::unique_ptr<TlsSource>> TlsSource::open(const TlsFiles& files) {
  std::unique_ptr<TlsSource> source(new TlsSource(files));
  source->stamps_ = source->look();  // before: what changes meanwhile is seen the next time
  auto opened = Tls::open(files);
  if (!opened) return opened.error();
  source->tls_ = std::move(*opened);
  return source;
}

const std::shared_ptr<const Tls>& TlsSource::current() {
  const Stamps now = look();
  if (now == stamps_) return tls_;
  // One of two files may be the new one already: then the next connection finds both.
  if (auto opened = Tls::open(files_)) {
    tls_ = std::move(*opened);
    stamps_ = now;
  }
  return tls_;
}

TlsSource::Stamps TlsSource::look() const {
  Stamps stamps;
  Stamp* stamp = stamps.data();
  for (const std::string* file : {&files_.ca, &files_.cert, &files_.key}) {
    struct stat found {};
    if (!file->empty() && ::stat(file->c_str(), &found) == 0) {
      *stamp = {found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec,
                found.st_mtim.tv_nsec};
    }
    ++stamp;
  }
  return stamps;
}

}  // namespace distrun::rendezvous::etcd
