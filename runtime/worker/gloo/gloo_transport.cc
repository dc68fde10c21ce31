#include "runtime/worker/gloo/gloo_transport.h"

#include "runtime/base/check.h"
#include "runtime/worker/gloo/gloo_mesh.h"
#include "runtime/worker/gloo/interfaces.h"

#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace distrun {
namespace {

// Gloo's own timeouts close every connection; ours never do, so Gloo's must not come first.
constexpr auto kNever = std::chrono::hours(24 * 365);

// Calls functions at their times, from its own thread, unless they are called off before.
class AlarmClock {
 public:
  using Alarm = std::pair<TimePoint, std::uint64_t>;

  AlarmClock() : thread_([this] { run(); }) {}
  ~AlarmClock() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  Alarm set(TimePoint when, std::function<void()> ring) {
    const std::lock_guard lock(mutex_);
    const Alarm alarm{when, ++last_};
    if (rung_)
      ring();
    else
      alarms_.emplace(alarm, std::move(ring));
    // A later time than the thread sleeps for needs no waking: it looks again by itself.
    if (!sleeps_until_ || when < *sleeps_until_) changed_.notify_one();
    return alarm;
  }
  // After it returns the function does not run, and will not.
  void call_off(const Alarm& alarm) {
    const std::lock_guard lock(mutex_);
    alarms_.erase(alarm);
  }
  // All now instead of later; any that is set from now on, at once.
  void ring_all() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    for (auto& [alarm, ring] : std::exchange(alarms_, {})) ring();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      if (!alarms_.empty() && Clock::now() >= alarms_.begin()->first.first) {
        const auto due = alarms_.extract(alarms_.begin());
        due.mapped()();
        continue;
      }
      // Sleeps on until the last time that was set, also when that was called off: the next call
      // often has the same deadline, and a wake-up per message would cost more than the message.
      if (!alarms_.empty()) {
        sleeps_until_ = alarms_.begin()->first.first;
      } else if (sleeps_until_ && Clock::now() >= *sleeps_until_) {
        sleeps_until_.reset();
      }
      if (sleeps_until_)
        changed_.wait_until(lock, *sleeps_until_);
      else
        changed_.wait(lock);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Alarm, std::function<void()>> alarms_;
  std::uint64_t last_ = 0;
  std::optional<TimePoint> sleeps_until_;
  bool rung_ = false;
  bool over_ = false;
  std::thread thread_;
};

using gloo::transport::UnboundBuffer;

constexpr auto kLeast = std::chrono::milliseconds(1);

class GlooTransfer final : public Transfer {
 public:
  enum class Direction { send, receive };
  static constexpr int kAny = -1;

  GlooTransfer(AlarmClock& alarms, const std::atomic<bool>& closed, int peer,
               const std::vector<int>& others, Direction direction, Channel channel,
               std::unique_ptr<UnboundBuffer> buffer)
      : alarms_(alarms),
        closed_(closed),
        peer_(peer),
        direction_(direction),
        buffer_(std::move(buffer)) {
    guarded([&] {
      if (direction_ == Direction::send) {
        buffer_->send(peer_, channel);
      } else if (peer_ != kAny) {
        buffer_->recv(peer_, channel);
      } else {
        buffer_->recv(others, channel);
      }
      return true;
    });
  }

  bool wait(TimePoint deadline) override {
    if (done_) return true;
    // An alarm that is due already would break off what is there already, too.
    const auto when = std::max(deadline, Clock::now() + kLeast);
    const auto alarm = alarms_.set(when, [this] {
      direction_ == Direction::send ? buffer_->abortWaitSend() : buffer_->abortWaitRecv();
    });
    struct CallOff {
      AlarmClock& alarms;
      AlarmClock::Alarm alarm;
      ~CallOff() { alarms.call_off(alarm); }
    } const call_off{alarms_, alarm};
    done_ = guarded([&] {
      return direction_ == Direction::send ? buffer_->waitSend(nullptr, kNever)
                                           : buffer_->waitRecv(&peer_, kNever);
    });
    if (!done_ && closed_) throw PeerLost(peer_, "this rank has closed its connections");
    return done_;
  }

  int peer() const override { return peer_; }

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

  AlarmClock& alarms_;
  const std::atomic<bool>& closed_;
  int peer_;
  const Direction direction_;
  bool done_ = false;
  std::unique_ptr<UnboundBuffer> buffer_;
};

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(std::unique_ptr<GlooMesh> mesh) : mesh_(std::move(mesh)) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) others_.push_back(peer);
  }

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  bool reach(int peer, TimePoint deadline) override { return mesh_->reach(peer, deadline); }
  bool connected(int peer) override { return mesh_->connected(peer); }

  std::unique_ptr<Transfer> send(int peer, std::span<const std::byte> message,
                                 Channel channel) override {
    // Gloo's one class of buffer is for both directions, hence not const.
    return begin(peer, GlooTransfer::Direction::send, channel,
                 const_cast<std::byte*>(message.data()), message.size());
  }
  std::unique_ptr<Transfer> receive(int peer, std::span<std::byte> room, Channel channel) override {
    return begin(peer, GlooTransfer::Direction::receive, channel, room.data(), room.size());
  }
  std::unique_ptr<Transfer> receive_any(std::span<std::byte> room, Channel channel) override {
    return begin(GlooTransfer::kAny, GlooTransfer::Direction::receive, channel, room.data(),
                 room.size());
  }
  void close() override {
    closed_ = true;
    mesh_->close();
    alarms_.ring_all();
  }

 private:
  std::unique_ptr<Transfer> begin(int peer, GlooTransfer::Direction direction, Channel channel,
                                  std::byte* data, std::size_t bytes) {
    DISTRUN_CHECK(peer == GlooTransfer::kAny || mesh_->connected(peer));
    return std::make_unique<GlooTransfer>(alarms_, closed_, peer, others_, direction, channel,
                                          mesh_->context().createUnboundBuffer(data, bytes));
  }

  std::unique_ptr<GlooMesh> mesh_;
  std::vector<int> others_;
  std::atomic<bool> closed_ = false;
  AlarmClock alarms_;
};

// Gloo writes to a peer that may be gone, in the caller's thread and in its own, and takes no care
// of the signal: it would end this process, whose error says which rank left.
void ignore_broken_pipes() {
  struct sigaction now {};
  const bool untouched = ::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL;
  if (untouched) ::signal(SIGPIPE, SIG_IGN);
}

std::unique_ptr<GlooMesh> make_mesh(int rank, int size, const GlooAddress& address) {
  ignore_broken_pipes();
  gloo::transport::tcp::attr attributes;
  if (!address.interfaces.empty())
    attributes.iface = usable_interface(address.interfaces, address.variable);
  else
    attributes.hostname = numeric_address(address.address);
  return std::make_unique<GlooMesh>(rank, size, attributes);
}

// What Gloo throws is no error of ours.
template <class Step>
std::unique_ptr<Transport> in_words(int rank, const GlooAddress& address, Step step) {
  try {
    return std::make_unique<GlooTransport>(step());
  } catch (const DistError&) {
    throw;
  } catch (const std::exception& error) {
    throw DistBackendError("rank " + std::to_string(rank) +
                           ": connecting to the other ranks from " +
                           (address.interfaces.empty() ? "address " + address.address
                                                       : "interface " + address.interfaces) +
                           ": " + error.what());
  }
}

}  // namespace

std::unique_ptr<Transport> connect_gloo(Store& store, int rank, int size,
                                        const GlooAddress& address, TimePoint deadline,
                                        const std::function<void()>& hear) {
  return in_words(rank, address, [&] {
    auto mesh = make_mesh(rank, size, address);
    mesh->connect_all(store, deadline, hear);
    return mesh;
  });
}

std::unique_ptr<Transport> connect_gloo_when_used(std::shared_ptr<Store> store, int rank, int size,
                                                  const GlooAddress& address,
                                                  std::function<bool(int rank)> alive) {
  return in_words(rank, address, [&] {
    auto mesh = make_mesh(rank, size, address);
    mesh->connect_when_used(std::move(store), std::move(alive));
    return mesh;
  });
}

}  // namespace distrun
