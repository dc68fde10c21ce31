// Referee: what is promised of all nodes and coordinators together, checked after every event.
// What one core promises of itself is rendezvous/core/invariants.h and Member::broken_invariant.
#pragma once

#include "rendezvous/core/member.h"
#include "rendezvous/core/rendezvous.h"
#include "tests/sim/rendezvous/model_agent.h"
#include "tests/sim/rendezvous/stage.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun::rendezvous::sim {

class Node;
class Seat;

// What was seen, over all worlds that share it.
struct Coverage {
  std::set<std::pair<RoundPhase, RoundPhase>> round_edges;
  std::set<std::pair<MemberPhase, MemberPhase>> member_edges;
  std::map<std::string, int> situations;
  long events = 0;
};

class Referee {
 public:
  static constexpr std::string_view kRanks = "in a round no two nodes have one rank";
  static constexpr std::string_view kAgree =
      "all nodes of a round agree on size, store and restarts";
  static constexpr std::string_view kWorkers = "the ranks of a round's workers do not overlap";
  static constexpr std::string_view kFences = "the rounds of a node only grow";
  static constexpr std::string_view kStart =
      "a node gets a place only when it asked and nothing of an older round lives";
  static constexpr std::string_view kOneJob = "two rounds never run whole at one time";
  static constexpr std::string_view kNoWayBack = "no older round runs whole after a newer one";
  static constexpr std::string_view kBudget = "restarts never exceed the budget";
  static constexpr std::string_view kStores = "each round has a store of its own";
  static constexpr std::string_view kQuorum = "two coordinators never hold a quorum at one time";
  static constexpr std::string_view kHealthy = "no healthy node is lost";
  static constexpr std::string_view kSameEnd = "the job ends alike on every node";
  static constexpr std::string_view kCause = "the reported failure is the one that came first";
  static constexpr std::string_view kSettles = "after the last fault the job runs or is over";
  static constexpr std::string_view kGoesOn =
      "a job whose nodes are all there does not end for want of a majority";
  static constexpr std::string_view kNobodyLeft = "a node that is left alone finds the end";
  static constexpr std::string_view kFewDials = "a node dials no more than it may";
  static constexpr std::string_view kOneSeat = "a node hosts one coordinator";
  static constexpr std::string_view kEdges = "phases change along the edges";
  static std::vector<std::string_view> sentences();

  Referee(Stage& stage, Coverage& coverage) : stage_(stage), coverage_(coverage) {}

  void require(bool holds, std::string_view sentence);
  const std::string& broken() const { return broken_; }
  void seen(const std::string& situation) { ++coverage_.situations[situation]; }

  // A fault begins or has ended at this host, or between it and others.
  void trouble_begins(HostId host) { ++troubles_[host]; }
  void trouble_ends(HostId host);
  void connection_breaks(HostId host) {
    trouble_begins(host);
    trouble_ends(host);
  }

  void seat_opens(Seat& seat);
  void seat_takes_over(const Seat& seat);
  void seat_closes(Seat& seat);
  // The daemon is back, and its journal knows of no end: it died before it could save one.
  void end_was_not_saved() { ends_.erase(daemon_job_); }
  void seat_handled(Seat& seat, const std::map<std::string, RendezvousState>& before,
                    const Event& event, const Effects& effects);
  void coordinator_says(const Seat& seat, const CoordinatorMessage& message);
  void member_says(const Node& node, const AgentMessage& message);
  void member_handled(const Node& node, MemberPhase before, const member::Event& event,
                      const member::Effects& effects);

  void placed(const Node& node, const Welcome& welcome);
  void group_starts(const Node& node, const Welcome& welcome);
  void group_ends(const Node& node, const Fence& round, const Outcome& outcome);
  void fails(const Node& node, const Failure& failure);
  void dies(const Node& node);
  void agent_ends(const Node& node, const Exit& exit);

  // Whether every seat of the node's round has a running group, or one that succeeded.
  bool runs_on(const Node& node) const;
  void add_node(const Node& node) { nodes_[id_of(node)] = &node; }
  long messages() const { return messages_; }  // beats apart
  long beats() const { return beats_; }

 private:
  // A job: a coordinator's rounds and those of whoever takes over from it.  An agent that comes
  // back to the endpoint after all others are gone begins another.
  using JobNumber = int;
  using Key = std::pair<JobNumber, Fence>;
  struct Round {
    Welcome facts;  // of the first to be told
    std::map<int, NodeId> by_rank;
    std::map<int, std::pair<int, int>> workers;  // by node rank: first rank, how many
    std::set<NodeId> running;
    std::set<NodeId> succeeded;
    std::vector<std::pair<TimePoint, Failure>> failures;
  };
  static const NodeId& id_of(const Node& node);
  Round& round_of(const Welcome& welcome);
  bool runs_whole(const Key& key) const;
  void check_end(const Seat& seat, JobNumber job, const Over& over);
  void check_quorum(Seat& seat);
  void check_loss(const Seat& seat, const RendezvousState& before, const NodeId& node);
  bool healthy(HostId host) const;
  bool all_there() const;  // in a world that loses nothing but connections
  bool one_job() const { return stage_.plan.rule != TakeoverRule::any; }

  Stage& stage_;
  Coverage& coverage_;
  std::string broken_;
  std::map<NodeId, const Node*> nodes_;
  std::set<Seat*> seats_;
  std::map<const Seat*, JobNumber> job_of_seat_;
  std::map<NodeId, JobNumber> job_of_node_;
  JobNumber last_job_ = 0;
  JobNumber daemon_job_ = 0;
  std::map<Key, Round> rounds_;
  std::map<NodeId, Key> last_round_;
  std::map<std::pair<std::string, std::uint16_t>, Key> stores_;
  std::set<Key> whole_;
  std::map<JobNumber, Fence> newest_whole_;
  std::map<JobNumber, std::pair<std::string, Over>> ends_;  // and who said so
  std::vector<Over> all_ends_;
  std::map<HostId, int> troubles_;
  std::map<HostId, TimePoint> trouble_ended_;
  long messages_ = 0;
  long beats_ = 0;
  bool asking_ = false;  // seats for their quorum
};

}  // namespace distrun::rendezvous::sim
