// The connections of Gloo's TCP transport between the ranks of a group: all at the beginning, or
// each when it is first used.
//
// A connection ("pair") is made by two ranks that know each other's offer, which they leave in the
// store.  When first used:
//
//   rank 2: reach(5) ──offer/2/5, ask/5/1 = "2"──► store ──► rank 5's thread that waits for
//   questions rank 2 ◄──────────────────── store ◄──offer/5/2────────── rank 5: a thread connects,
//   whatever its
//                                                             program does meanwhile
//
// so rank 5 need not call anything.  One thread waits for questions; one more for each peer
// connects, and is over then.
#pragma once

#include "runtime/base/time.h"
#include <distrun/store.h>

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/attr.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace distrun {

class GlooMesh {
 public:
  // Of this address; it is looked at, and nothing is opened yet.
  GlooMesh(int rank, int size, const gloo::transport::tcp::attr& address);
  // No transfer is under way.
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  // One of the two, once.  `hear` is called now and then, and may throw.
  void connect_all(Store& store, TimePoint deadline, const std::function<void()>& hear);
  // `alive`: whether a rank's process still runs.
  void connect_when_used(std::shared_ptr<Store> store, std::function<bool(int rank)> alive);

  // True: connected.  False: the deadline passed; it may be asked again.  Throws PeerLost.
  bool reach(int peer, TimePoint deadline);
  // Does nothing about it.  Throws PeerLost: it never will be.
  bool connected(int peer) const;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  gloo::transport::Context& context();

  void close();

 private:
  struct Peer {
    std::atomic<bool> connected = false;
    bool connecting = false;  // or done, well or not
    bool lost = false;
    std::string problem;
    std::thread thread;
  };

  static std::string offer_key(int from, int to);
  std::string make_offer(int peer);
  void connect(int peer, const std::string& offer);
  void begin(int peer, bool ask);
  void connect_one(int peer, bool ask);
  void ask(Store& store, int whom, int who) const;
  void answer();
  void wake_threads();

  const int rank_;
  const gloo::transport::tcp::attr address_;
  Timeout patience_;  // of a connection that the other side does not accept
  std::shared_ptr<Store> store_;
  std::function<bool(int)> alive_;
  std::atomic<bool> closed_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::vector<Peer> peers_;
  std::thread answering_;
};

}  // namespace distrun
