#include "runtime/worker/group_engine.h"

#include "runtime/worker/deadline.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace distrun {
namespace {

// Issued and not yet done; more have to wait until there is room.
constexpr std::size_t kQueueMax = 1024;

// How long a rank whose time is up waits for another's better reason.
constexpr Timeout kLatePatience = std::chrono::milliseconds(200);

}  // namespace

void Work::State::complete(std::exception_ptr outcome) {
  const std::lock_guard lock(mutex);
  exception = std::move(outcome);
  done = true;
  completed.notify_all();
}

GroupEngine::GroupEngine(Identity identity, std::unique_ptr<Transport> transport,
                         std::shared_ptr<Store> store)
    : identity_(std::move(identity)), transport_(std::move(transport)), store_(std::move(store)) {
  if (!transport_) return;
  board_.emplace(store_->clone(), identity_.rank, identity_.size);
  collectives_.emplace(*transport_, [this](const Call& call, const std::vector<int>& ranks) {
    board_->set_waiting(call.sequence, ranks);
  });
}

GroupEngine::~GroupEngine() {
  stop_thread();
}

void GroupEngine::check_open() const {
  if (!dead_.empty())
    throw DistBackendError("process group \"" + identity_.name +
                               "\" is of no more use since an earlier failure: " + dead_,
                           dead_peer_);
  if (closed_) throw DistBackendError("process group \"" + identity_.name + "\" is closed");
}

// Numbers the call.  Waits for room, so that a caller cannot run ahead without bound.
std::shared_ptr<Work::State> GroupEngine::admit(std::unique_lock<std::mutex>& lock, Call call,
                                                Timeout timeout) {
  changed_.wait(lock, [this] { return queue_.size() < kQueueMax; });
  check_open();
  auto work = std::make_shared<Work::State>();
  call.sequence = next_sequence_++;
  work->call = call;
  work->timeout = timeout;
  work->group = identity_.name;
  return work;
}

void GroupEngine::run(Call call, Timeout timeout) {
  std::unique_lock lock(mutex_);
  const auto work = admit(lock, call, timeout);
  if (busy_ || !queue_.empty()) {
    enqueue(lock, work);
    Work(work).wait();
    return;
  }
  busy_ = true;
  lock.unlock();
  execute(*work);
  lock.lock();
  busy_ = false;
  lock.unlock();
  changed_.notify_all();
  if (work->exception) std::rethrow_exception(work->exception);
}

std::shared_ptr<Work::State> GroupEngine::start(Call call, Timeout timeout) {
  std::unique_lock lock(mutex_);
  auto work = admit(lock, call, timeout);
  enqueue(lock, work);
  return work;
}

void GroupEngine::enqueue(std::unique_lock<std::mutex>& lock, std::shared_ptr<Work::State> work) {
  queue_.push_back(std::move(work));
  if (!thread_.joinable()) thread_ = std::thread([this] { work_off(); });
  lock.unlock();
  changed_.notify_all();
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
    execute(*work);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void GroupEngine::execute(Work::State& work) {
  work.complete(perform(work.call, work.timeout));
}

std::exception_ptr GroupEngine::perform(const Call& call, Timeout timeout) {
  try {
    {
      const std::lock_guard lock(mutex_);
      check_open();
    }
    if (collectives_) {
      collectives_->run(call, deadline_after(timeout, "timeout"));
    } else if (call.op == OpType::all_gather && call.in != call.out) {
      std::memmove(call.out, call.in, call.count * size_of(call.dtype));
    }
    return nullptr;
  } catch (const PeerLost& lost) {
    // The other side may have closed on purpose, after it had told the store why.
    GroupFailure failure{ErrorKind::backend, lost.peer, ""};
    failure.text = board_->name_of(lost.peer) + " is gone (" + lost.what() + ")";
    return failed(call, std::move(failure), false);
  } catch (const PeersLate& late) {
    std::vector<int> ranks = late.peers;
    if (identity_.rank != 0 && ranks == std::vector<int>{0})
      if (auto blamed = board_->waiting(call.sequence); !blamed.empty()) ranks = std::move(blamed);
    const bool first_hand = identity_.rank == 0 || ranks != std::vector<int>{0};
    GroupFailure failure{ErrorKind::timeout, ranks.front(), late_text(ranks, timeout)};
    return failed(call, std::move(failure), first_hand);
  } catch (const CallsDiffer& differ) {
    // Every rank has the same verdict; the one that is to blame has a peer to name, too.
    GroupFailure failure{ErrorKind::backend, differ.peer, differ.what()};
    board_->report(failure);
    return fall(failure);
  } catch (...) {
    return std::current_exception();
  }
}

std::string GroupEngine::late_text(const std::vector<int>& ranks, Timeout timeout) {
  std::string names;
  for (const int rank : ranks) names += (names.empty() ? "" : ", ") + board_->name_of(rank);
  return names + " did not take part within " + to_string(timeout);
}

// Makes the group's failure out of what this rank saw, or out of what another saw before.
std::exception_ptr GroupEngine::failed(const Call& call, GroupFailure failure, bool first_hand) {
  failure.text = to_string(call) + ": " + failure.text;
  std::optional<GroupFailure> told;
  if (!first_hand)
    told = board_->reported(failure.kind == ErrorKind::timeout ? kLatePatience : Timeout(0));
  const GroupFailure counts = told ? *told : board_->report(failure);
  return fall(counts);
}

// The group is dead from here on.
std::exception_ptr GroupEngine::fall(const GroupFailure& failure) {
  transport_->close();  // after the report: who is cut off finds the reason in the store
  const std::string text = "process group \"" + identity_.name + "\", rank " +
                           std::to_string(identity_.rank) + ": " + failure.text;
  // A rank that is itself to blame has no peer to name.
  const auto peer = failure.peer == identity_.rank ? std::nullopt : failure.peer;
  {
    const std::lock_guard lock(mutex_);
    dead_ = text;
    dead_peer_ = peer;
  }
  if (failure.kind == ErrorKind::timeout)
    return std::make_exception_ptr(DistTimeoutError(text, peer));
  return std::make_exception_ptr(DistBackendError(text, peer));
}

void GroupEngine::stop_thread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// A rank that leaves the last operation and closes can cut off a slower one that is still in it, so
// all meet at the store first.
void GroupEngine::close(Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "close");
  std::unique_lock lock(mutex_);
  if (closed_) return;
  if (!changed_.wait_until(lock, deadline, [this] { return queue_.empty() && !busy_; })) {
    lock.unlock();
    const std::string why =
        "operations were still under way " + to_string(timeout) + " after close";
    leave(why);
    stop_thread();
    throw DistTimeoutError("process group \"" + identity_.name + "\": " + why);
  }
  closed_ = true;
  const bool was_dead = !dead_.empty();
  lock.unlock();
  stop_thread();
  if (!transport_ || was_dead) return;
  try {
    const std::string all = "goodbye/all";
    if (store_->add("goodbye", 1) == identity_.size) store_->set(all, "1");
    store_->wait({all}, std::chrono::ceil<Timeout>(std::max(deadline - Clock::now(), Duration(0))));
  } catch (const DistError&) {
    transport_->close();
    throw;
  }
  transport_->close();
}

void GroupEngine::leave(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || !dead_.empty() || !transport_) return;
    dead_ = why;
  }
  GroupFailure failure{ErrorKind::backend, identity_.rank, ""};
  failure.text = board_->name_of(identity_.rank) + " left the group: " + why;
  board_->report(failure);
  transport_->close();  // also ends the operation that is under way here
}

}  // namespace distrun
