#include "runtime/nccl/core/life.h"

#include "runtime/base/check.h"

#include <array>
#include <utility>

namespace distrun::nccl {
namespace {

constexpr std::array<std::pair<Phase, Phase>, 16> kEdges{{
    {Phase::absent, Phase::joining},
    {Phase::absent, Phase::closed},
    {Phase::joining, Phase::ready},
    {Phase::ready, Phase::enqueuing},
    {Phase::enqueuing, Phase::ready},
    {Phase::ready, Phase::deriving},
    {Phase::deriving, Phase::ready},
    {Phase::ready, Phase::closing},
    {Phase::closing, Phase::closed},
    {Phase::absent, Phase::failed},
    {Phase::joining, Phase::failed},
    {Phase::ready, Phase::failed},
    {Phase::enqueuing, Phase::failed},
    {Phase::deriving, Phase::failed},
    {Phase::closing, Phase::failed},
    {Phase::failed, Phase::aborted},
}};

std::string doing(Phase phase) {
  switch (phase) {
    case Phase::joining:
      return "connecting the ranks";
    case Phase::enqueuing:
      return "handing it to the device";
    case Phase::deriving:
      return "making a communicator from another";
    case Phase::closing:
      return "closing";
    case Phase::absent:
    case Phase::ready:
    case Phase::closed:
    case Phase::failed:
    case Phase::aborted:
      break;
  }
  return std::string(to_string(phase));
}

}  // namespace

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::absent:
      return "absent";
    case Phase::joining:
      return "joining";
    case Phase::ready:
      return "ready";
    case Phase::enqueuing:
      return "enqueuing";
    case Phase::deriving:
      return "deriving";
    case Phase::closing:
      return "closing";
    case Phase::closed:
      return "closed";
    case Phase::failed:
      return "failed";
    case Phase::aborted:
      return "aborted";
  }
  return "?";
}

void Life::enter(Phase next) {
  bool legal = false;
  for (const auto& [from, to] : kEdges) legal = legal || (from == phase_ && to == next);
  DISTRUN_CHECK(legal);
  phase_ = next;
}

Order Life::begin(Step step, TimePoint now, TimePoint deadline) {
  if (phase_ == Phase::failed || phase_ == Phase::aborted) return {Todo::refuse, why_};
  if (phase_ == Phase::closed) return {Todo::refuse, "the communicator is closed"};
  began_ = now;
  deadline_ = deadline;
  switch (step) {
    case Step::join:
      enter(Phase::joining);
      break;
    case Step::enqueue:
      enter(Phase::enqueuing);
      break;
    case Step::derive:
      enter(Phase::deriving);
      break;
    case Step::close:
      if (phase_ == Phase::absent) {
        enter(Phase::closed);
        return {Todo::refuse, "the communicator was never made"};
      }
      enter(Phase::closing);
      break;
  }
  return {Todo::call, {}};
}

Order Life::answer(NcclResult result, const std::string& text, TimePoint now) {
  if (phase_ == Phase::failed || phase_ == Phase::aborted) return {Todo::refuse, why_};
  DISTRUN_CHECK(phase_ == Phase::joining || phase_ == Phase::enqueuing ||
                phase_ == Phase::deriving || phase_ == Phase::closing);
  if (result == NcclResult::success) {
    const bool closing = phase_ == Phase::closing;
    enter(closing ? Phase::closed : Phase::ready);
    return {closing ? Todo::destroy : Todo::done, {}};
  }
  if (result != NcclResult::in_progress) return fail_step(doing(phase_) + ": " + text, false);
  if (now >= deadline_) {
    return fail_step(doing(phase_) + ": NCCL is still at it after " + duration_text(now - began_),
                     true);
  }
  const bool soon = phase_ == Phase::enqueuing && now - began_ < kBusy;
  return {soon ? Todo::poll_soon : Todo::poll_later, {}};
}

Order Life::fail_step(std::string why, bool timed_out) {
  fail(why);
  return {Todo::fail, std::move(why), timed_out};
}

void Life::fail(const std::string& why) {
  switch (phase_) {
    case Phase::absent:  // then it is never made
    case Phase::joining:
    case Phase::ready:
    case Phase::enqueuing:
    case Phase::deriving:
    case Phase::closing:
      enter(Phase::failed);
      why_ = why;
      break;
    case Phase::closed:
    case Phase::failed:
    case Phase::aborted:
      break;
  }
}

bool Life::start_abort() {
  if (phase_ != Phase::failed) return false;
  enter(Phase::aborted);
  return true;
}

}  // namespace distrun::nccl
