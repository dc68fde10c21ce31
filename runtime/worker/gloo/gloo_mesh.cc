#include "runtime/worker/gloo/gloo_mesh.h"

#include "runtime/worker/call.h"
#include "runtime/worker/stored_number.h"
#include "runtime/worker/waiting_in_store.h"
#include <distrun/error.h>

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace distrun {
namespace {

// Gloo's own timeouts close every connection; ours never do, so Gloo's must not come first.
constexpr auto kNever = std::chrono::hours(24 * 365);
// How often a rank that waits for a connection asks whether the other still lives.
constexpr auto kLookEvery = std::chrono::milliseconds(20);
// What a question to the store may take.
constexpr Timeout kStorePatience = std::chrono::seconds(10);
constexpr int kNobody = -1;
constexpr const char* kEnded = "its process has ended";

struct Closed : std::exception {};

}  // namespace

GlooMesh::GlooMesh(int rank, int size, const gloo::transport::tcp::attr& address)
    : rank_(rank),
      address_(gloo::transport::tcp::CreateDeviceAttr(address)),
      patience_(kNever),
      peers_(static_cast<std::size_t>(size)) {}

GlooMesh::~GlooMesh() {
  close();
  wake_threads();
  if (answering_.joinable()) answering_.join();
  for (Peer& peer : peers_)
    if (peer.thread.joinable()) peer.thread.join();
}

// Those that wait for something in the store, by putting it there.
void GlooMesh::wake_threads() {
  if (!answering_.joinable()) return;
  try {
    const auto store = store_->clone();
    ask(*store, rank_, kNobody);
    for (int peer = 0; peer < size(); ++peer) {
      const Peer& it = peers_[static_cast<std::size_t>(peer)];
      if (it.thread.joinable() && !it.connected) store->set(offer_key(peer, rank_), "closed");
    }
  } catch (const DistError&) {
    // No store: then they have ended, or look by themselves soon.
  }
}

std::string GlooMesh::offer_key(int from, int to) {
  return "offer/" + std::to_string(from) + "/" + std::to_string(to);
}

// The thread of Gloo's device wakes up a hundred times a second, so there is none before it is
// needed.
gloo::transport::Context& GlooMesh::context() {
  const std::lock_guard lock(mutex_);
  if (!context_) {
    context_ = gloo::transport::tcp::CreateDevice(address_)->createContext(rank_, size());
    context_->setTimeout(patience_);
  }
  return *context_;
}

std::string GlooMesh::make_offer(int peer) {
  context();
  const std::lock_guard lock(mutex_);
  if (closed_) throw Closed();
  const std::vector<char> address = context_->createPair(peer)->address().bytes();
  return {address.begin(), address.end()};
}

void GlooMesh::connect(int peer, const std::string& offer) {
  context_->getPair(peer)->connect({offer.begin(), offer.end()});
  const std::lock_guard lock(mutex_);
  if (closed_) throw Closed();
  peers_[static_cast<std::size_t>(peer)].connected = true;
  changed_.notify_all();
}

// ---- all at once -------------------------------------------------------------------------------

void GlooMesh::connect_all(Store& store, TimePoint deadline, const std::function<void()>& hear) {
  // Zero would mean at once.
  patience_ = std::clamp<Timeout>(std::chrono::duration_cast<Timeout>(deadline - Clock::now()),
                                  Timeout(1), kNever);
  Store::KeyValues mine;
  std::vector<std::string> theirs;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    mine.emplace_back(offer_key(rank_, peer), make_offer(peer));
    theirs.push_back(offer_key(peer, rank_));
  }
  store.multi_set(mine);
  wait_or_hear(store, theirs, deadline, hear);
  const std::vector<std::string> offers = store.multi_get(theirs);
  auto offer = offers.begin();
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_) connect(peer, *offer++);
}

// ---- each when it is first used ----------------------------------------------------------------

void GlooMesh::connect_when_used(std::shared_ptr<Store> store, std::function<bool(int)> alive) {
  store_ = std::move(store);
  // The end of this waits for threads that ask it: a store that hangs must not hold it up.
  store_->set_timeout(kStorePatience);
  alive_ = std::move(alive);
  answering_ = std::thread([this] { answer(); });
}

bool GlooMesh::reach(int peer, TimePoint deadline) {
  Peer& it = peers_[static_cast<std::size_t>(peer)];
  if (it.connected) return true;
  std::unique_lock lock(mutex_);
  begin(peer, true);
  for (;;) {
    if (it.connected) return true;
    if (closed_) throw PeerLost(peer, "this rank has closed its connections");
    if (it.lost) throw PeerLost(peer, it.problem);
    if (!it.problem.empty())
      throw std::runtime_error("connecting to rank " + std::to_string(peer) + ": " + it.problem);
    if (!alive_(peer)) throw PeerLost(peer, kEnded);
    const TimePoint now = Clock::now();
    if (now >= deadline) return false;
    changed_.wait_until(lock, std::min(deadline, now + kLookEvery));
  }
}

bool GlooMesh::connected(int peer) const {
  if (peers_[static_cast<std::size_t>(peer)].connected) return true;
  if (alive_ && !alive_(peer)) throw PeerLost(peer, kEnded);
  return false;
}

// With the mutex held.
void GlooMesh::begin(int peer, bool ask) {
  Peer& it = peers_[static_cast<std::size_t>(peer)];
  if (closed_ || std::exchange(it.connecting, true)) return;
  it.thread = std::thread([this, peer, ask] { connect_one(peer, ask); });
}

// In a thread of its own, which close() ends.
void GlooMesh::connect_one(int peer, bool ask_first) {
  std::string problem;
  bool lost = false;
  try {
    const auto store = store_->clone();
    store->set(offer_key(rank_, peer), make_offer(peer));
    if (ask_first) ask(*store, peer, rank_);
    const std::string theirs = offer_key(peer, rank_);
    wait_or_hear(*store, {theirs}, TimePoint::max(), [this] {
      if (closed_) throw Closed();
    });
    const std::string offer = store->get(theirs);
    if (closed_) return;
    lost = true;  // what goes wrong from here on is the peer's end of it
    return connect(peer, offer);
  } catch (const Closed&) {
    return;
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const std::lock_guard lock(mutex_);
  Peer& it = peers_[static_cast<std::size_t>(peer)];
  it.problem = std::move(problem);
  it.lost = lost;
  changed_.notify_all();
}

void GlooMesh::ask(Store& store, int whom, int who) const {
  const std::string to = std::to_string(whom);
  const std::int64_t number = store.add("asked/" + to, 1);
  store.set("ask/" + to + "/" + std::to_string(number), std::to_string(who));
}

void GlooMesh::answer() {
  try {
    const auto store = store_->clone();
    for (int number = 1;; ++number) {
      const std::string key = "ask/" + std::to_string(rank_) + "/" + std::to_string(number);
      wait_or_hear(*store, {key}, TimePoint::max(), [this] {
        if (closed_) throw Closed();
      });
      const auto peer = stored_number(store->get(key)).value_or(kNobody);
      store->delete_key(key);
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      if (peer >= 0 && peer < size() && peer != rank_) begin(static_cast<int>(peer), false);
    }
  } catch (const std::exception&) {
    // Closed, or the store is gone: who asks now finds that out by himself.
  }
}

// ---- the end -----------------------------------------------------------------------------------

void GlooMesh::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  if (!context_) return;
  for (int peer = 0; peer < size(); ++peer)
    if (const auto& pair = context_->getPair(peer)) pair->close();
}

}  // namespace distrun
