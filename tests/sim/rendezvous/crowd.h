// Crowd: many agents and one daemon, in good weather or bad, without the checks after every event
// that a World makes: for what a rendezvous costs, and for what it does in a long time.
#pragma once

#include "tests/sim/rendezvous/node.h"
#include "tests/sim/rendezvous/plan.h"
#include "tests/sim/rendezvous/referee.h"
#include "tests/sim/rendezvous/stage.h"
#include "tests/sim/rendezvous/world.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace distrun::rendezvous::sim {

struct CrowdPlan {
  int nodes = 100;
  int min_nodes = 1;
  int max_restarts = 0;
  Weather weather;
  bool careful = false;
  std::uint64_t seed = 1;
};

class Crowd {
 public:
  explicit Crowd(const CrowdPlan& plan);

  // All agents start within a second.
  void start();
  void run_for(Duration duration);
  // Until all living agents work in one round; false: not within that time.
  bool run_until_working(Duration limit);
  bool all_working() const;
  void kill_every(int nth);  // each nth agent
  // One of many kinds, by its number; what is lost comes back.
  void fault(int number);

  int rounds() const;  // sealed so far
  bool over() const;
  int living() const;
  long messages() const { return referee_.messages(); }  // beats apart
  long beats() const { return referee_.beats(); }
  int losses() const;
  double core_seconds() const { return daemon_.seat()->core_seconds(); }  // the coordinator's
  std::string ended() const;                                              // why the job is over

 private:
  const Rendezvous* job() const;
  Node& any_working();
  void start_node(const NodePlan& plan);

  distrun::sim::Random random_;
  Plan plan_;
  Agenda agenda_;
  Network network_;
  Transcript transcript_;
  Coverage coverage_;
  Referee referee_;
  Stage stage_;
  Daemon daemon_;
  Contact endpoint_;
  std::vector<std::unique_ptr<Node>> nodes_;
  int next_id_ = 1;
};

}  // namespace distrun::rendezvous::sim
