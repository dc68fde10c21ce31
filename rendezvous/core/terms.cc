#include "rendezvous/core/terms.h"

namespace distrun::rendezvous {
namespace {

std::string nodes_text(const Terms& terms) {
  return std::to_string(terms.min_nodes) + ":" + std::to_string(terms.max_nodes);
}

void compare(std::string& text, const std::string& what, const std::string& here,
             const std::string& job) {
  if (here == job) return;
  if (!text.empty()) text += "; ";
  text += what + ": " + here + " here, " + job + " in the job";
}

std::string window_text(const Terms& terms) {
  return terms.restart_window ? duration_text(*terms.restart_window) : "the whole job";
}

}  // namespace

std::optional<std::string> terms_problem(const Terms& terms) {
  constexpr Duration kLongest = std::chrono::hours(24 * 365);
  const auto bad = [&](Duration time) { return time < Duration::zero() || time > kLongest; };
  if (terms.min_nodes < 1 || terms.max_nodes < terms.min_nodes) {
    return "--nnodes: " + nodes_text(terms) + ": needs 1 <= MIN <= MAX";
  }
  if (terms.max_restarts < 0) {
    return "--max-restarts: " + std::to_string(terms.max_restarts) + ": needs 0 or more";
  }
  if (terms.fixed_ranks && terms.min_nodes != terms.max_nodes) {
    return "--nnodes: " + nodes_text(terms) + ": ranks that are given need a fixed number of nodes";
  }
  if (bad(terms.join_timeout) || bad(terms.last_call) || bad(terms.rejoin_wait) ||
      (terms.restart_window && bad(*terms.restart_window))) {
    return "a time is negative, or longer than a year";
  }
  if (terms.beat < std::chrono::milliseconds(1) || terms.beat > std::chrono::hours(24) ||
      terms.beats_missed < 1 || terms.beats_missed > 10'000) {
    return "keep_alive_interval needs 1 ms to 1 day, keep_alive_max_attempt 1 to 10000";
  }
  return std::nullopt;
}

std::string terms_difference(const Terms& here, const Terms& job) {
  std::string text;
  compare(text, "--nnodes", nodes_text(here), nodes_text(job));
  compare(text, "script", here.command, job.command);
  compare(text, "--rdzv-backend", here.fixed_ranks ? "static" : "c10d",
          job.fixed_ranks ? "static" : "c10d");
  compare(text, "--max-restarts", std::to_string(here.max_restarts),
          std::to_string(job.max_restarts));
  compare(text, "window of restarts", window_text(here), window_text(job));
  return text;
}

RestartBudget::Limits budget_limits(const Terms& terms) {
  return {terms.max_restarts, terms.restart_window};
}

}  // namespace distrun::rendezvous
