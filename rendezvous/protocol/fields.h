// The fields of every message and record: name on the wire, range, in order.  One description each,
// read by FieldWriter and FieldReader alike (json_fields.h).
//
// To add a field: a line here, a sentence in README.md, a value in the round-trip test.  An agent
// and a coordinator of one protocol version may be of different builds: a new field is maybe(), and
// its absence means what was before.
#pragma once

#include "rendezvous/core/messages.h"
#include "rendezvous/core/rendezvous.h"
#include "rendezvous/protocol/frame.h"
#include "rendezvous/protocol/json_fields.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

namespace distrun::rendezvous {

inline constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
inline constexpr std::int64_t kMaxNumber = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kMaxPort = 65'535;
inline constexpr std::int64_t kMaxWorkersPerNode = 4096;
// In a record; hosts are for people.
inline constexpr std::size_t kMaxRecordHosts = kMaxNodes;

// In the order of the enumerators, and of the alternatives of the two variants.
inline constexpr std::array<std::string_view, 5> kAgentTypes{"join", "failed", "ended", "pong",
                                                             "leave"};
inline constexpr std::array<std::string_view, 6> kCoordinatorTypes{"welcome", "waiting", "disband",
                                                                   "over",    "refused", "ping"};
inline constexpr std::array<std::string_view, 3> kRoundResults{"succeeded", "failed", "stopped"};
inline constexpr std::array<std::string_view, 4> kOverResults{"succeeded", "failed", "timed_out",
                                                              "closed"};
inline constexpr std::array<std::string_view, 9> kRefusalCodes{
    "version", "terms", "rank", "token", "closed", "limit", "stale", "elsewhere", "not_yet"};

// ---- parts -------------------------------------------------------------------------------------

template <class A>
void fields(A& a, Subject<A, Fence>& fence) {
  a.integer("epoch", fence.epoch, 0, kMaxInt);
  a.integer("generation", fence.generation.value, -1, kMaxInt);
}

template <class A>
void fields(A& a, Subject<A, Terms>& terms) {
  a.integer("min_nodes", terms.min_nodes, 1, kMaxNodes);
  a.integer("max_nodes", terms.max_nodes, 1, kMaxNodes);
  a.expect(terms.min_nodes <= terms.max_nodes, "min_nodes is more than max_nodes");
  a.text("command", terms.command, kMaxCommand, Text::free);
  a.flag("fixed_ranks", terms.fixed_ranks);
  a.integer("max_restarts", terms.max_restarts, 0, kMaxInt);
  a.maybe("restart_window_us", terms.restart_window,
          [&](auto& window) { a.duration("restart_window_us", window); });
  a.duration("join_timeout_us", terms.join_timeout);
  a.duration("last_call_us", terms.last_call);
  a.duration("rejoin_wait_us", terms.rejoin_wait);
  a.duration("beat_us", terms.beat);
  a.expect(terms.beat >= std::chrono::milliseconds(1) && terms.beat <= std::chrono::hours(24),
           "beat_us: not in 1 ms..24 h");
  a.integer("beats_missed", terms.beats_missed, 1, 10'000);
}

template <class A>
void fields(A& a, Subject<A, Failure>& failure) {
  a.text("host", failure.host, kMaxName, Text::name);
  a.integer("rank", failure.rank.value, -1, kMaxInt);
  a.integer("local_rank", failure.local_rank.value, -1, kMaxInt);
  a.integer("pid", failure.pid, 0, kMaxInt);
  a.text("status", failure.status, kMaxStatus, Text::free);
  a.integer("exit_code", failure.exit_code, 0, 255);
  a.duration("age_us", failure.age);
}

template <class A>
void maybe_failure(A& a, Subject<A, std::optional<Failure>>& failure) {
  a.maybe("failure", failure, [&](auto& held) { a.object("failure", held); });
}

template <class A>
void fields(A& a, Subject<A, Outcome>& outcome) {
  a.object("round", outcome.round);
  a.choice("result", outcome.result, kRoundResults);
  maybe_failure(a, outcome.failure);
  a.expect(outcome.failure.has_value() == (outcome.result == RoundResult::failed),
           "a failure is to be given exactly if the result is \"failed\"");
  a.flag("failed_at_start", outcome.failed_at_start);
  a.flag("remains", outcome.remains);
  a.text("report", outcome.report, kMaxReport, Text::free);
}

template <class A>
void fields(A& a, Subject<A, Join::Held>& held) {
  a.object("round", held.round);
  a.integer("rank", held.rank.value, 0, kMaxNodes - 1);
  a.integer("node_count", held.node_count, 1, kMaxNodes);
  a.expect(held.rank.value < held.node_count, "rank is not below node_count");
  a.integer("restart_count", held.restart_count, 0, kMaxInt);
  a.maybe("outcome", held.outcome, [&](auto& outcome) { a.object("outcome", outcome); });
  a.text("founder", held.founder, kMaxName, Text::name);
}

template <class A>
void fields(A& a, Subject<A, Successor>& successor) {
  a.text("node", successor.node, kMaxName, Text::name);
  a.text("host", successor.host, kMaxName, Text::name);
  a.text("address", successor.address, kMaxName, Text::name);
  a.integer("port", successor.port, 0, kMaxPort);
  a.integer("rank", successor.rank.value, 0, kMaxNodes - 1);
}

// ---- agent → coordinator -----------------------------------------------------------------------

template <class A>
void fields(A& a, Subject<A, Join>& join) {
  a.integer("version", join.version, 0, kMaxInt);
  a.text("job", join.job, kMaxName, Text::name);
  a.text("token", join.token, kMaxName, Text::name);
  a.text("node", join.node, kMaxName, Text::name);
  a.text("host", join.host, kMaxName, Text::name);
  a.text("address", join.address, kMaxName, Text::name);
  a.integer("store_port", join.store_port, 0, kMaxPort);
  a.integer("takeover_port", join.takeover_port, 0, kMaxPort);
  a.integer("nproc", join.nproc, 1, kMaxWorkersPerNode);
  a.text("role", join.role, kMaxName, Text::name);
  a.maybe("node_rank", join.node_rank,
          [&](auto& rank) { a.integer("node_rank", rank.value, 0, kMaxNodes - 1); });
  a.flag("hosts", join.hosts);
  a.object("terms", join.terms);
  a.maybe("held", join.held, [&](auto& held) { a.object("held", held); });
}

template <class A>
void fields(A& a, Subject<A, Failed>& failed) {
  a.object("round", failed.round);
  a.object("failure", failed.failure);
}

template <class A>
void fields(A& a, Subject<A, Ended>& ended) {
  a.object("outcome", ended.outcome);
  a.integer("store_port", ended.store_port, 0, kMaxPort);
}

template <class A>
void fields(A& a, Subject<A, Pong>& pong) {
  a.integer("number", pong.number, 0, kMaxNumber);
}

template <class A>
void fields(A& a, Subject<A, Leave>& leave) {
  a.text("why", leave.why, kMaxStatus, Text::free);
}

// ---- coordinator → agent -----------------------------------------------------------------------

template <class A>
void fields(A& a, Subject<A, Welcome>& welcome) {
  a.object("round", welcome.round);
  a.text("founder", welcome.founder, kMaxName, Text::name);
  a.integer("node_rank", welcome.node_rank.value, 0, kMaxNodes - 1);
  a.integer("node_count", welcome.node_count, 1, kMaxNodes);
  a.integer("base_rank", welcome.base_rank.value, 0, kMaxInt);
  a.integer("world_size", welcome.world_size, 1, kMaxInt);
  a.integer("base_role_rank", welcome.base_role_rank, 0, kMaxInt);
  a.integer("role_world_size", welcome.role_world_size, 1, kMaxInt);
  a.expect(welcome.node_rank.value < welcome.node_count, "node_rank is not below node_count");
  a.text("master_addr", welcome.master_addr, kMaxName, Text::name);
  a.integer("master_port", welcome.master_port, 0, kMaxPort);
  a.integer("restart_count", welcome.restart_count, 0, kMaxInt);
  a.text("coordinator", welcome.coordinator, kMaxName, Text::name);
  a.list("successors", welcome.successors, kMaxSuccessors);
}

template <class A>
void fields(A& a, Subject<A, Waiting>& waiting) {
  a.integer("present", waiting.present, 0, kMaxNodes);
  a.integer("min_nodes", waiting.min_nodes, 1, kMaxNodes);
  a.integer("max_nodes", waiting.max_nodes, 1, kMaxNodes);
  a.texts("hosts", waiting.hosts, kMaxHosts, kMaxName);
  a.maybe("sealing_in_us", waiting.sealing_in,
          [&](auto& time) { a.duration("sealing_in_us", time); });
  a.maybe("giving_up_in_us", waiting.giving_up_in,
          [&](auto& time) { a.duration("giving_up_in_us", time); });
  a.text("why", waiting.why, kMaxWhy, Text::free);
  a.flag("quorum", waiting.quorum);
  a.flag("spare", waiting.spare);
  a.flag("finished", waiting.finished);
  a.text("coordinator", waiting.coordinator, kMaxName, Text::name);
  a.list("successors", waiting.successors, kMaxSuccessors);
}

template <class A>
void fields(A& a, Subject<A, Disband>& disband) {
  a.object("round", disband.round);
  a.text("why", disband.why, kMaxWhy, Text::free);
  a.integer("left", disband.left, 0, kMaxNodes);
  a.text("heir", disband.heir, kMaxName, Text::name);
}

template <class A>
void fields(A& a, Subject<A, Over>& over) {
  a.choice("result", over.result, kOverResults);
  a.integer("exit_code", over.exit_code, 0, 255);
  a.text("why", over.why, kMaxWhy, Text::free);
  a.integer("restarts", over.restarts, 0, kMaxInt);
  maybe_failure(a, over.failure);
  a.text("report", over.report, kMaxReport, Text::free);
}

template <class A>
void fields(A& a, Subject<A, Refused>& refused) {
  a.choice("code", refused.code, kRefusalCodes);
  a.text("why", refused.why, kMaxWhy, Text::free);
  a.text("address", refused.address, kMaxName, Text::name);
  a.integer("port", refused.port, 0, kMaxPort);
}

template <class A>
void fields(A& a, Subject<A, Ping>& ping) {
  a.integer("number", ping.number, 0, kMaxNumber);
  a.object("last", ping.last);
  a.flag("quorum", ping.quorum);
  a.duration("silence_us", ping.silence);
}

// ---- kept by a coordinator ---------------------------------------------------------------------

template <class A>
void fields(A& a, Subject<A, Record>& record) {
  a.text("job", record.job, kMaxName, Text::name);
  a.text("token", record.token, kMaxName, Text::name);
  a.text("founder", record.founder, kMaxName, Text::name);
  a.object("terms", record.terms);
  a.object("last", record.last);
  a.integer("node_count", record.node_count, 0, kMaxNodes);
  a.texts("hosts", record.hosts, kMaxRecordHosts, kMaxName);
  a.integer("restarts", record.restarts, 0, kMaxInt);
  a.text("coordinator", record.coordinator, kMaxName, Text::name);
  a.maybe("over", record.over, [&](auto& over) { a.object("over", over); });
}

}  // namespace distrun::rendezvous
