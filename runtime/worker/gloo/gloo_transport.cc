#include "runtime/worker/gloo/gloo_transport.h"

#include "runtime/worker/gloo/store_adapter.h"

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace distrun {
namespace {

// Gloo's own timeouts close every connection; ours never do, so Gloo's must not come first.
constexpr auto kNever = std::chrono::hours(24 * 365);

// Connections are in order, and a group does one thing at a time: one slot is enough.
constexpr std::uint64_t kSlot = 0x64725f00;

// Calls a function at a time, from its own thread, unless it is called off before.
class AlarmClock {
 public:
  AlarmClock() : thread_([this] { run(); }) {}
  ~AlarmClock() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void set(TimePoint when, std::function<void()> ring) {
    const std::lock_guard lock(mutex_);
    ring_ = std::move(ring);
    when_ = when;
    // A later time than the thread sleeps for needs no waking: it looks again by itself.
    if (!sleeps_until_ || when < *sleeps_until_) changed_.notify_one();
  }
  // Now instead of later, if one is set.
  void ring_now() {
    const std::lock_guard lock(mutex_);
    if (ring_) std::exchange(ring_, nullptr)();
  }
  // After it returns the function does not run, and will not.
  void call_off() {
    const std::lock_guard lock(mutex_);
    ring_ = nullptr;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      if (!ring_) {
        // Stays asleep until the last time that was set: the next call often has the same deadline,
        // and a wake-up per message would cost more than the message.
        if (sleeps_until_ && Clock::now() < *sleeps_until_) {
          changed_.wait_until(lock, *sleeps_until_);
        } else {
          sleeps_until_.reset();
          changed_.wait(lock);
        }
        continue;
      }
      if (Clock::now() >= when_) {
        std::exchange(ring_, nullptr)();
        continue;
      }
      sleeps_until_ = when_;
      changed_.wait_until(lock, when_);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> ring_;
  TimePoint when_;
  std::optional<TimePoint> sleeps_until_;
  bool over_ = false;
  std::thread thread_;
};

using gloo::transport::UnboundBuffer;

class GlooTransfer final : public Transfer {
 public:
  enum class Direction { send, receive };

  GlooTransfer(AlarmClock& alarm, const std::atomic<bool>& closed, int peer, Direction direction,
               std::unique_ptr<UnboundBuffer> buffer)
      : alarm_(alarm),
        closed_(closed),
        peer_(peer),
        direction_(direction),
        buffer_(std::move(buffer)) {
    guarded([&] {
      direction_ == Direction::send ? buffer_->send(peer_, kSlot) : buffer_->recv(peer_, kSlot);
      return true;
    });
  }

  bool wait(TimePoint deadline) override {
    if (done_) return true;
    alarm_.set(deadline, [this] {
      direction_ == Direction::send ? buffer_->abortWaitSend() : buffer_->abortWaitRecv();
    });
    struct CallOff {
      AlarmClock& alarm;
      ~CallOff() { alarm.call_off(); }
    } const call_off{alarm_};
    done_ = guarded([&] {
      return direction_ == Direction::send ? buffer_->waitSend(nullptr, kNever)
                                           : buffer_->waitRecv(nullptr, kNever);
    });
    if (!done_ && closed_) throw PeerLost(peer_, "this rank has closed its connections");
    return done_;
  }

 private:
  // Whatever Gloo throws here is about the connection to this one peer.
  template <class Step>
  bool guarded(Step step) {
    try {
      return step();
    } catch (const std::exception& error) {
      std::string text = error.what();
      if (const auto end = text.find("] "); text.starts_with('[') && end != std::string::npos)
        text.erase(0, end + 2);  // the place in Gloo's source
      throw PeerLost(peer_, text);
    }
  }

  AlarmClock& alarm_;
  const std::atomic<bool>& closed_;
  const int peer_;
  const Direction direction_;
  bool done_ = false;
  std::unique_ptr<UnboundBuffer> buffer_;
};

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(std::shared_ptr<gloo::rendezvous::Context> context)
      : context_(std::move(context)) {}

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  std::unique_ptr<Transfer> send(int peer, std::span<const std::byte> message) override {
    // Gloo's one class of buffer is for both directions, hence not const.
    auto buffer =
        context_->createUnboundBuffer(const_cast<std::byte*>(message.data()), message.size());
    return std::make_unique<GlooTransfer>(alarm_, closed_, peer, GlooTransfer::Direction::send,
                                          std::move(buffer));
  }
  std::unique_ptr<Transfer> receive(int peer, std::span<std::byte> room) override {
    auto buffer = context_->createUnboundBuffer(room.data(), room.size());
    return std::make_unique<GlooTransfer>(alarm_, closed_, peer, GlooTransfer::Direction::receive,
                                          std::move(buffer));
  }
  void close() override {
    closed_ = true;
    context_->closeConnections();
    alarm_.ring_now();
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::atomic<bool> closed_ = false;
  AlarmClock alarm_;
};

// Gloo writes to a peer that may be gone, in the caller's thread and in its own, and takes no care
// of the signal: it would end this process, whose error says which rank left.
void ignore_broken_pipes() {
  struct sigaction now {};
  const bool untouched = ::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL;
  if (untouched) ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::unique_ptr<Transport> connect_gloo(Store& store, int rank, int size,
                                        const GlooAddress& address, TimePoint deadline) {
  ignore_broken_pipes();
  gloo::transport::tcp::attr attributes;
  attributes.iface = address.interface;
  attributes.hostname = address.address;
  const std::string at =
      address.interface.empty() ? "address " + address.address : "interface " + address.interface;
  try {
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    const auto left = std::chrono::duration_cast<Timeout>(deadline - Clock::now());
    // Zero would mean at once.
    context->setTimeout(std::clamp<Timeout>(left, Timeout(1), kNever));
    GlooStoreAdapter adapter(store, deadline);
    context->connectFullMesh(adapter, device);
    return std::make_unique<GlooTransport>(std::move(context));
  } catch (const DistError&) {
    throw;
  } catch (const std::exception& error) {
    throw DistBackendError("rank " + std::to_string(rank) +
                           ": connecting to the other ranks from " + at + ": " + error.what());
  }
}

}  // namespace distrun
