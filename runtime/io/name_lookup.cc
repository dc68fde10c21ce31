#include "runtime/io/name_lookup.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace distrun::io {
namespace {

namespace asio = boost::asio;

// Lookups that hang.  Tries go on all the while, so that there must be a limit.
constexpr int kMaxThreads = 16;
std::atomic<int> threads_running{0};

Result<NameLookup::Addresses> look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failure != 0) {
    const char* why = failure == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(failure);
    return Error{Errc::not_found, host + ": " + why};
  }
  NameLookup::Addresses addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    asio::ip::tcp::endpoint endpoint;
    if (entry->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), entry->ai_addr, entry->ai_addrlen);
    endpoint.resize(entry->ai_addrlen);
    const auto address = endpoint.address();
    const bool known = std::find(addresses.begin(), addresses.end(), address) != addresses.end();
    if (!known && addresses.size() < NameLookup::kMaxAddresses) addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  if (addresses.empty()) return Error{Errc::not_found, host + ": has no address"};
  return addresses;
}

// Signals are the loop's: none is to be delivered to a helper.
void start_without_signals(std::function<void()> work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(work)).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

struct NameLookup::Shared {
  // Written by the thread before it closes its end of the pipe, read after that was seen.
  std::atomic<bool> ready{false};
  Result<Addresses> result = Error{Errc::io, "the lookup was not finished"};
};

NameLookup::NameLookup(asio::io_context& io) : done_(io), timer_(io) {}

std::shared_ptr<NameLookup> NameLookup::start(asio::io_context& io, std::string host,
                                              Duration timeout, Answer answer) {
  std::shared_ptr<NameLookup> self(new NameLookup(io));
  self->answer_ = std::move(answer);
  boost::system::error_code not_one;
  const auto address = asio::ip::make_address(host, not_one);
  if (not_one) {
    self->run(std::move(host), timeout);
  } else {
    asio::post(io, [self, address] { self->finish(Addresses{address}); });
  }
  return self;
}

void NameLookup::run(std::string host, Duration timeout) {
  int pipe[2];
  Result<Addresses> problem = Error{Errc::limit, host + ": too many lookups are unanswered"};
  const bool started = threads_running.load() < kMaxThreads && [&] {
    if (::pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
      problem = os_error(host + ": cannot be looked up: pipe", errno);
      return false;
    }
    shared_ = std::make_shared<Shared>();
    try {
      start_without_signals([shared = shared_, host, end = pipe[1]] {
        shared->result = look_up(host);
        shared->ready.store(true, std::memory_order_release);
        --threads_running;
        ::close(end);
      });
      ++threads_running;
    } catch (const std::system_error& failure) {  // no thread to be had
      problem = Error{Errc::io, host + ": cannot be looked up: " + failure.what()};
      ::close(pipe[0]);
      ::close(pipe[1]);
      return false;
    }
    return true;
  }();
  if (!started) {
    asio::post(timer_.get_executor(),
               [self = shared_from_this(), problem] { self->finish(problem); });
    return;
  }
  done_.assign(pipe[0]);
  done_.async_wait(asio::posix::stream_descriptor::wait_read,
                   [self = shared_from_this()](const boost::system::error_code& failure) {
                     if (failure || !self->shared_->ready.load(std::memory_order_acquire)) return;
                     self->finish(self->shared_->result);
                   });
  timer_.expires_after(timeout);
  timer_.async_wait(
      [self = shared_from_this(), host, timeout](const boost::system::error_code& failure) {
        if (failure) return;
        self->finish(Error{Errc::timeout, host + ": not looked up within " +
                                              duration_text(timeout) + "; is a name server away?"});
      });
}

void NameLookup::finish(Result<Addresses> result) {
  const Answer answer = std::exchange(answer_, nullptr);
  cancel();
  if (answer) answer(std::move(result));
}

void NameLookup::cancel() {
  answer_ = nullptr;
  timer_.cancel();
  boost::system::error_code ignored;
  done_.close(ignored);
}

}  // namespace distrun::io
