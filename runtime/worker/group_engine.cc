#include "runtime/worker/group_engine.h"

#include "runtime/worker/deadline.h"
#include "runtime/worker/rank_order.h"
#include "runtime/worker/two_level.h"

#include <algorithm>
#include <utility>

namespace distrun {
namespace {

// Issued and not yet done; more have to wait until there is room.
constexpr std::size_t kQueueMax = 1024;

// How long a rank whose time is up waits for the others to say whom they wait for: those that have
// not waited long look often, the others once in a second.
Timeout roll_patience(Timeout timeout) {
  return std::chrono::milliseconds(300) + std::min<Timeout>(timeout / 2, std::chrono::seconds(2));
}

Lanes::Lane lane_of(const P2PCall& call) {
  return {static_cast<int>(call.op), {call.peer, call.tag}};
}

}  // namespace

GroupEngine::GroupEngine(Identity identity, Links links, const std::vector<int>& global_ranks)
    : identity_(std::move(identity)),
      log_(identity_.name, identity_.description, "gloo", identity_.rank, identity_.size,
           global_ranks),
      links_(std::move(links)) {
  if (!links_.transport) return;
  board_.emplace(links_.store->clone(), identity_.rank, identity_.size);
  p2p_.emplace(*links_.transport, [this] { return board_->reported(Timeout(0)).has_value(); });
  flat_.emplace(*links_.transport, [this](const Call& call, const std::vector<int>& ranks) {
    // Connections that are closed tell it sooner; but not all that is closed is told.
    if (board_->reported(Timeout(0)))
      throw PeerLost(kAnySource, "the group has failed on another rank");
    board_->answer_roll(call.sequence, ranks);
  });
  const auto& hosts = links_.host_of;
  const bool one_host =
      links_.host && std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; });
  if (one_host)
    runner_ = std::move(links_.host);
  else
    runner_ = std::make_unique<TwoLevel>(*flat_, *links_.transport, hosts, std::move(links_.host));
  if (identity_.deterministic)
    runner_ = std::make_unique<RankOrder>(std::move(runner_), identity_.rank, identity_.size);
}

GroupEngine::~GroupEngine() {
  stop_threads();
}

void GroupEngine::check_open() const {
  if (!dead_.empty())
    throw DistBackendError("process group \"" + identity_.name +
                               "\" is of no more use since an earlier failure: " + dead_,
                           dead_peer_);
  if (closed_) throw DistBackendError("process group \"" + identity_.name + "\" is closed");
}

// ---- collectives -------------------------------------------------------------------------------

// Waits for room, so that a caller cannot run ahead without bound.
void GroupEngine::admit(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return queue_.size() < kQueueMax; });
  check_open();
}

void GroupEngine::run(Call&& call, Timeout timeout) {
  std::unique_lock lock(mutex_);
  admit(lock);
  if (busy_ || !queue_.empty()) {
    lock.unlock();
    std::vector<Call> calls;
    calls.push_back(std::move(call));
    Work(start(std::move(calls), timeout)).wait();
    return;
  }
  number(call);
  busy_ = true;
  lock.unlock();
  const FlightLog::Entry record = log_.began(call, timeout);
  const std::exception_ptr failure = perform(call, timeout);
  log_.ended(record, !failure);
  lock.lock();
  busy_ = false;
  lock.unlock();
  changed_.notify_all();
  if (failure) std::rethrow_exception(failure);
}

std::shared_ptr<QueuedWork> GroupEngine::start(std::vector<Call> calls, Timeout timeout,
                                               std::function<void()> finish) {
  auto work = std::make_shared<QueuedWork>();
  work->timeout = timeout;
  work->group = identity_.name;
  work->finish = std::move(finish);
  std::unique_lock lock(mutex_);
  admit(lock);
  if (!thread_.joinable()) thread_ = std::thread([this] { work_off(); });
  for (Call& call : calls) {
    number(call);
    work->records.push_back(log_.scheduled(call, timeout));
  }
  work->calls = std::move(calls);
  queue_.push_back(work);
  lock.unlock();
  changed_.notify_all();
  return work;
}

void GroupEngine::work_off() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !busy_ && (stopping_ || !queue_.empty()); });
    if (queue_.empty()) return;
    const auto work = queue_.front();
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    perform(*work);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void GroupEngine::perform(QueuedWork& work) {
  std::exception_ptr outcome;
  for (std::size_t i = 0; i < work.calls.size(); ++i) {
    if (!outcome) {
      log_.started(work.records[i]);
      outcome = refusal();
      if (!outcome) outcome = perform(work.calls[i], work.timeout);
    }
    log_.ended(work.records[i], !outcome);
  }
  try {
    if (!outcome && work.finish) work.finish();
  } catch (...) {
    outcome = std::current_exception();
  }
  work.finish = nullptr;  // with what it holds
  work.outcome.set(std::move(outcome));
  work.outcome.tell();
}

// What an operation ends with that waited for its turn in vain; null: it may go on.
std::exception_ptr GroupEngine::refusal() noexcept try {
  const std::lock_guard lock(mutex_);
  check_open();
  return nullptr;
} catch (...) {
  return std::current_exception();
}

std::exception_ptr GroupEngine::perform(const Call& call, Timeout timeout) {
  if (!runner_) {
    run_alone(call);
    return nullptr;
  }
  return guarded(call, timeout, [&](TimePoint deadline) { runner_->run(call, deadline); });
}

// ---- sends and receives ------------------------------------------------------------------------

int GroupEngine::run(const P2PCall& call, Timeout timeout) {
  {
    const std::lock_guard lock(mutex_);
    check_open();
  }
  P2PCall mine = call;
  std::exception_ptr failure;
  const FlightLog::Entry record = log_.scheduled(call, timeout);
  const bool taken = lanes_.run(lane_of(call), [&] {
    log_.started(record);
    failure = perform(mine, timeout);
  });
  log_.ended(record, taken && !failure);
  if (!taken) refuse(call);
  if (failure) std::rethrow_exception(failure);
  return mine.peer;
}

std::shared_ptr<QueuedWork> GroupEngine::start(const P2PCall& call, Timeout timeout) {
  {
    const std::lock_guard lock(mutex_);
    check_open();
  }
  auto work = std::make_shared<QueuedWork>();
  work->p2p = call;
  work->timeout = timeout;
  work->group = identity_.name;
  const FlightLog::Entry record = log_.scheduled(call, timeout);
  const bool taken = lanes_.add(lane_of(call), [this, work, record] {
    P2PCall mine = *work->p2p;
    log_.started(record);
    auto outcome = perform(mine, work->timeout);
    log_.ended(record, !outcome);
    work->source = mine.peer;
    work->outcome.set(std::move(outcome));
    work->outcome.tell();
  });
  if (!taken) {
    log_.ended(record, false);
    refuse(call);
  }
  return work;
}

void GroupEngine::refuse(const P2PCall& call) const {
  throw DistUnsupportedError(
      "process group \"" + identity_.name + "\": " + to_string(call) +
      ": too many sends and receives are under way; wait for some of them first (at most " +
      std::to_string(Lanes::kMaxThreads) + " pairs of a peer and a tag at once, and " +
      std::to_string(Lanes::kMaxWaiting) + " operations of each)");
}

std::exception_ptr GroupEngine::perform(P2PCall& call, Timeout timeout) {
  if (auto refused = refusal()) return refused;
  return guarded(call, timeout, [&](TimePoint deadline) { p2p_->run(call, deadline); });
}

// ---- failures ----------------------------------------------------------------------------------

namespace {

std::optional<std::uint64_t> number_of(const Call& call) {
  return call.sequence;
}
std::optional<std::uint64_t> number_of(const P2PCall&) {
  return std::nullopt;
}

}  // namespace

template <class Any, class Step>
std::exception_ptr GroupEngine::guarded(const Any& call, Timeout timeout, Step step) noexcept {
  try {
    return attempt(call, timeout, step);
  } catch (...) {
    // Out of memory, say, with an operation half done: what the others send would be taken for
    // something else.
    abandon();
    return std::current_exception();
  }
}

template <class Any, class Step>
std::exception_ptr GroupEngine::attempt(const Any& call, Timeout timeout, Step step) {
  const TimePoint deadline = deadline_after(timeout, "timeout");
  try {
    step(deadline);
    return nullptr;
  } catch (const PeerLost& lost) {
    // The other side may have closed on purpose, after it had told the store why.
    GroupFailure failure{ErrorKind::backend, std::nullopt, ""};
    if (lost.peer >= 0) failure.peer = lost.peer;
    failure.text =
        (lost.peer < 0 ? "a rank" : board_->name_of(lost.peer)) + " is gone (" + lost.what() + ")";
    return failed(to_string(call), std::move(failure), false);
  } catch (const PeersLate& late) {
    std::vector<int> ranks = late.peers;
    if (const auto number = number_of(call); number && late.may_wait)
      if (const auto told = board_->call_roll(*number, ranks, roll_patience(timeout)))
        return fall(*told);
    GroupFailure failure{ErrorKind::timeout, std::nullopt, late_text(ranks, timeout)};
    if (!ranks.empty()) failure.peer = ranks.front();
    return failed(to_string(call), std::move(failure), true);
  } catch (const CallsDiffer& differ) {
    // Every rank has the same verdict; the one that is to blame has a peer to name, too.
    GroupFailure failure{ErrorKind::backend, differ.peer, differ.what(), identity_.rank};
    board_->report(failure);
    return fall(failure);
  } catch (const std::exception& error) {
    GroupFailure failure{ErrorKind::backend, identity_.rank, ""};
    failure.text = board_->name_of(identity_.rank) + " failed in it: " + error.what();
    return failed(to_string(call), std::move(failure), true);
  }
}

void GroupEngine::abandon() noexcept {
  try {
    die("it broke off", std::nullopt, identity_.rank);
  } catch (...) {
    closed_ = true;
  }
  close_links();
}

// `peer`: as this rank names it; `culprit`: as all do.  True: that was the first failure.
bool GroupEngine::die(const std::string& text, std::optional<int> peer,
                      std::optional<int> culprit) {
  {
    const std::lock_guard lock(mutex_);
    if (!dead_.empty()) return false;
    dead_ = text.empty() ? "without a reason" : text;
    dead_peer_ = peer;
  }
  if (on_failure_) on_failure_(text, culprit);
  return true;
}

void GroupEngine::ensure_open() {
  const std::lock_guard lock(mutex_);
  check_open();
}

void GroupEngine::look_for_failure() {
  ensure_open();
  if (!board_) return;
  if (const auto told = board_->reported(Timeout(0))) std::rethrow_exception(fall(*told));
}

void GroupEngine::fail(const GroupFailure& failure) {
  if (board_)
    fall(board_->report(failure));
  else
    die(failure.text, failure.peer, failure.peer);
}

std::string GroupEngine::late_text(const std::vector<int>& ranks, Timeout timeout) {
  if (ranks.empty()) return "nobody sent anything within " + to_string(timeout);
  std::string names;
  for (const int rank : ranks) names += (names.empty() ? "" : ", ") + board_->name_of(rank);
  return names + " did not take part within " + to_string(timeout);
}

// Makes the group's failure out of what this rank saw, or out of what another saw before.
std::exception_ptr GroupEngine::failed(const std::string& name, GroupFailure failure,
                                       bool first_hand) {
  failure.text = name + ": " + failure.text;
  std::optional<GroupFailure> told;
  if (!first_hand) told = board_->reported(Timeout(0));
  const GroupFailure counts = told ? *told : board_->report(failure);
  return fall(counts);
}

// The group is dead from here on.
std::exception_ptr GroupEngine::fall(const GroupFailure& failure) {
  const std::string text = "process group \"" + identity_.name + "\", rank " +
                           std::to_string(identity_.rank) + ": " + failure.text;
  // A rank that is itself to blame has no peer to name, unless it is the one that it differs from.
  const auto peer = failure.peer == identity_.rank ? failure.other : failure.peer;
  die(text, peer, failure.peer);
  close_links();  // after the report: who is cut off finds the reason in the store
  if (failure.kind == ErrorKind::timeout)
    return std::make_exception_ptr(DistTimeoutError(text, peer));
  return std::make_exception_ptr(DistBackendError(text, peer));
}

void GroupEngine::close_links() {
  runner_->close();
  links_.transport->close();
}

// ---- the end -----------------------------------------------------------------------------------

void GroupEngine::stop_threads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  lanes_.stop();
}

// A rank that leaves the last operation and closes can cut off a slower one that is still in it, so
// all meet at the store first.
void GroupEngine::close(Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "close");
  std::unique_lock lock(mutex_);
  if (closed_ || std::exchange(closing_, true)) return;
  const bool done =
      changed_.wait_until(lock, deadline, [this] { return queue_.empty() && !busy_; });
  lock.unlock();
  if (!done || !lanes_.drain(deadline)) {
    const std::string why =
        "operations were still under way " + to_string(timeout) + " after close";
    leave(why);
    stop_threads();
    throw DistTimeoutError("process group \"" + identity_.name + "\": " + why);
  }
  lock.lock();
  closed_ = true;
  const bool was_dead = !dead_.empty();
  lock.unlock();
  stop_threads();
  if (was_dead)
    throw DistBackendError("process group \"" + identity_.name + "\" had failed before: " + dead_,
                           dead_peer_);
  if (!links_.transport) return;
  try {
    const std::string all = FailureBoard::kGoodbye;
    // Of a store that hangs each call takes its time.
    const Duration left = std::max(deadline - Clock::now(), Duration(0));
    links_.store->set_timeout(std::chrono::ceil<Timeout>(left));
    if (links_.store->add("goodbye", 1) == identity_.size) links_.store->set(all, "1");
    links_.store->wait({all},
                       std::chrono::ceil<Timeout>(std::max(deadline - Clock::now(), Duration(0))));
    if (links_.store->get(all) != "1") {
      const auto told = board_->reported(Timeout(0));
      throw DistBackendError("process group \"" + identity_.name +
                                 "\": closing: " + (told ? told->text : "another rank has failed"),
                             told ? told->peer : std::nullopt);
    }
  } catch (const DistError&) {
    close_links();
    throw;
  }
  close_links();
}

void GroupEngine::leave(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
  }
  if (!die(why, std::nullopt, identity_.rank) || !links_.transport) return;
  GroupFailure failure{ErrorKind::backend, identity_.rank, ""};
  failure.text = board_->name_of(identity_.rank) + " left the group: " + why;
  board_->report(failure);
  close_links();  // also ends the operation that is under way here
}

}  // namespace distrun
