// Stage: what everybody in a world shares: virtual time, the network, the one random engine, the
// transcript, and the referee who looks on.
#pragma once

#include "tests/sim/random.h"
#include "tests/sim/rendezvous/agenda.h"
#include "tests/sim/rendezvous/network.h"
#include "tests/sim/rendezvous/plan.h"

#include <cstdint>
#include <deque>
#include <string>

namespace distrun::rendezvous::sim {

class Referee;

// The last lines of the story.  Costs more than the world itself, so it is kept only on request:
// when a seed has failed, and is told again.
class Transcript {
 public:
  Transcript(const Agenda& agenda, bool on) : agenda_(agenda), on_(on) {}
  bool on() const { return on_; }
  void line(const std::string& text);
  std::string tail() const;
  std::uint64_t fingerprint() const { return fingerprint_; }  // of every line

 private:
  const Agenda& agenda_;
  bool on_;
  std::deque<std::string> tail_;
  std::uint64_t fingerprint_ = 14695981039346656037ULL;
};

struct Stage {
  Agenda& agenda;
  distrun::sim::Random& random;
  Network& network;
  Transcript& transcript;
  Referee& referee;
  const Plan& plan;
  bool careful = true;  // invariants of the cores are checked after every event
  bool calm_now = false;
};

}  // namespace distrun::rendezvous::sim
