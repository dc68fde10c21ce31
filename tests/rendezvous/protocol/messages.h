// One message of each kind with every field away from its default, for the codec's tests.
#pragma once

#include "rendezvous/core/messages.h"
#include "rendezvous/core/rendezvous.h"

#include <boost/pfr/tuple_size.hpp>

#include <chrono>
#include <vector>

namespace distrun::rendezvous {

// A field was added: describe it in protocol/fields.h, give it a value below, and count it here.
template <class T>
inline constexpr std::size_t kFields = boost::pfr::tuple_size_v<T>;
static_assert(kFields<Terms> == 11 && kFields<Failure> == 7 && kFields<Outcome> == 6);
static_assert(kFields<Join> == 14 && kFields<Join::Held> == 6);
static_assert(kFields<Failed> == 2 && kFields<Ended> == 2 && kFields<Pong> == 1 &&
              kFields<Leave> == 1);
static_assert(kFields<Welcome> == 13 && kFields<Successor> == 5 && kFields<Waiting> == 12);
static_assert(kFields<Disband> == 4 && kFields<Over> == 6 && kFields<Refused> == 4 &&
              kFields<Ping> == 4);
static_assert(kFields<Record> == 10);

inline Terms some_terms() {
  using std::chrono::milliseconds;
  Terms terms;
  terms.min_nodes = 2;
  terms.max_nodes = 4;
  terms.command = "python3 train.py --lr \"0.1\"";
  terms.fixed_ranks = true;
  terms.max_restarts = 3;
  terms.restart_window = std::chrono::hours(1);
  terms.join_timeout = milliseconds(1);
  terms.last_call = milliseconds(2);
  terms.rejoin_wait = milliseconds(3);
  terms.beat = milliseconds(4);
  terms.beats_missed = 5;
  return terms;
}

inline Failure some_failure() {
  Failure failure;
  failure.host = "host-b";
  failure.rank = Rank(5);
  failure.local_rank = LocalRank(1);
  failure.pid = 4711;
  failure.status = "killed by SIGSEGV (core dumped)";
  failure.exit_code = 139;
  failure.age = std::chrono::microseconds(1500);
  return failure;
}

inline Outcome some_outcome() {
  Outcome outcome;
  outcome.round = Fence{17, Generation(6)};
  outcome.result = RoundResult::failed;
  outcome.failure = some_failure();
  outcome.failed_at_start = true;
  outcome.remains = true;
  outcome.report = "Traceback:\n\tline \"1\"\n\x1b[31mred\x1b[0m \xE2\x9C\x93";
  return outcome;
}

inline Join some_join() {
  Join join;
  join.job = "train";
  join.token = "secret";
  join.node = "host-b.4711.9f3c21d0";
  join.host = "host-b";
  join.address = "10.0.0.2";
  join.store_port = 40001;
  join.takeover_port = 40002;
  join.nproc = 8;
  join.role = "trainer";
  join.node_rank = NodeRank(1);
  join.hosts = true;
  join.terms = some_terms();
  join.held = Join::Held{Fence{17, Generation(6)}, NodeRank(1), 3, 2, some_outcome(), "host-a.1.2"};
  return join;
}

inline Over some_over() {
  Over over;
  over.result = OverResult::failed;
  over.exit_code = 139;
  over.why = "rank 5 on host-b was killed by SIGSEGV; no restarts are left";
  over.restarts = 3;
  over.failure = some_failure();
  over.report = "the report";
  return over;
}

inline std::vector<AgentMessage> agent_messages() {
  Join fresh = some_join();
  fresh.node_rank.reset();
  fresh.held.reset();
  fresh.terms.restart_window.reset();
  Join working = some_join();
  working.held->outcome.reset();
  Outcome fine;
  fine.round = Fence{0, Generation(0)};
  fine.result = RoundResult::succeeded;
  return {some_join(),
          fresh,
          working,
          Failed{Fence{1, Generation(2)}, some_failure()},
          Ended{some_outcome(), 40003},
          Ended{fine, 0},
          Pong{1ULL << 40U},
          Leave{"the operator pressed ^C"}};
}

inline std::vector<CoordinatorMessage> coordinator_messages() {
  Welcome welcome;
  welcome.round = Fence{17, Generation(7)};
  welcome.founder = "host-a.1.2";
  welcome.node_rank = NodeRank(1);
  welcome.node_count = 3;
  welcome.base_rank = Rank(8);
  welcome.world_size = 24;
  welcome.base_role_rank = 2;
  welcome.role_world_size = 16;
  welcome.master_addr = "10.0.0.1";
  welcome.master_port = 40001;
  welcome.restart_count = 2;
  welcome.coordinator = "host-a.1.2";
  welcome.successors = {{"host-b.4711.9f3c21d0", "host-b", "10.0.0.2", 40002, NodeRank(1)},
                        {"host-c.1.1", "host-c", "10.0.0.3", 40009, NodeRank(2)}};
  Waiting waiting;
  waiting.present = 2;
  waiting.min_nodes = 2;
  waiting.max_nodes = 3;
  waiting.hosts = {"host-a", "host-b"};
  waiting.sealing_in = std::chrono::seconds(24);
  waiting.giving_up_in = std::chrono::seconds(600);
  waiting.why = "host-c has not come back";
  waiting.quorum = false;
  waiting.spare = true;
  waiting.finished = true;
  waiting.coordinator = welcome.coordinator;
  waiting.successors = welcome.successors;
  Over fine;
  return {welcome,
          Welcome{},
          waiting,
          Waiting{},
          Disband{Fence{17, Generation(7)}, "host-c is lost", 1, "host-a.1.2"},
          some_over(),
          fine,
          Refused{RefusalCode::elsewhere, "this job's coordinator is another", "10.0.0.9", 29400},
          Refused{RefusalCode::not_yet, "no majority yet", "", 0},
          Ping{7, Fence{17, Generation(7)}, false, std::chrono::seconds(5)}};
}

inline Record some_record() {
  Record record;
  record.job = "train";
  record.token = "secret";
  record.founder = "host-a.1.2";
  record.terms = some_terms();
  record.last = Fence{17, Generation(7)};
  record.node_count = 2;
  record.hosts = {"host-a", "host-b"};
  record.restarts = 2;
  record.coordinator = "host-a.1.2";
  record.over = some_over();
  return record;
}

}  // namespace distrun::rendezvous
