#include "runtime/nccl/board.h"

#include "runtime/nccl/failed.h"

#include <algorithm>
#include <condition_variable>
#include <thread>

namespace distrun::nccl {
namespace {

using std::chrono::milliseconds;

// The longest that one call keeps others from the store.
constexpr milliseconds kSlice(200);
// Who has claimed to write the failure does so at once.
constexpr milliseconds kCausePatience(1000);
constexpr milliseconds kPause(10);

const std::string kIdMagic = "distrun-nccl-id 1 ";
const char* const kClaims = "nccl/failure/claims";
const char* const kCause = "nccl/failure/cause";
const char* const kVerdict = "nccl/failure/verdict";

std::string id_key(const std::string& lane, int root) {
  return "nccl/id/" + lane + "/" + std::to_string(root);
}
std::string position_key(int rank) {
  return "nccl/failure/at/" + std::to_string(rank);
}

milliseconds until(TimePoint deadline) {
  return std::chrono::ceil<milliseconds>(deadline - Clock::now());
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Failed no_id(const std::string& starter, const std::string& key) {
  return {DRB_TIMEOUT, starter + " has not published NCCL's id (key " + key +
                           "): it has not come to its first operation, or is gone"};
}

}  // namespace

Board::Board(const drb_store& lent, int rank, int world_size)
    : store_(lent), rank_(rank), world_size_(world_size) {}

void Board::publish_id(const std::string& lane, int root, const UniqueId& id, int version) {
  const std::lock_guard lock(mutex_);
  std::string value = kIdMagic;
  value.append(std::to_string(version)).append(" ").append(id.data(), id.size());
  store_.set(id_key(lane, root), value);
}

std::optional<UniqueId> Board::wait_id(const std::string& lane, int root, int version,
                                       const std::string& starter, TimePoint deadline,
                                       const std::function<bool()>& given_up) {
  const std::string key = id_key(lane, root);
  std::optional<std::string> found;
  while (!found) {
    if (given_up()) return std::nullopt;
    found = wait_for(key, std::min(deadline, Clock::now() + kSlice));
    if (!found && Clock::now() >= deadline) {
      throw no_id(starter, key);
    }
  }
  const std::string& value = *found;
  const std::size_t end = value.find(' ', kIdMagic.size());
  const bool whole = value.starts_with(kIdMagic) && end != std::string::npos &&
                     value.size() - end - 1 == sizeof(UniqueId);
  if (!whole) throw Failed(DRB_STORE, "the store's key " + key + " holds no id of NCCL's");
  const std::string theirs = value.substr(kIdMagic.size(), end - kIdMagic.size());
  if (theirs != std::to_string(version)) {
    throw Failed(DRB_BACKEND,
                 starter + " has NCCL " +
                     version_text(static_cast<int>(std::strtol(theirs.c_str(), nullptr, 10))) +
                     ", this rank " + version_text(version) + ": all ranks need the same");
  }
  UniqueId id;
  std::copy(value.end() - static_cast<std::ptrdiff_t>(id.size()), value.end(), id.begin());
  return id;
}

std::optional<Failure> Board::failure() {
  const std::lock_guard lock(mutex_);
  if (!store_.has(kCause)) return std::nullopt;
  return Failure::decode(store_.get(kCause, kSlice));
}

std::optional<std::string> Board::wait_for(const std::string& key, TimePoint deadline) {
  for (;;) {
    try {
      const std::lock_guard lock(mutex_);
      return store_.get(key, std::clamp(until(deadline), milliseconds(0), kSlice));
    } catch (const Failed& failed) {
      if (failed.status() != DRB_TIMEOUT) throw;
      if (Clock::now() >= deadline) return std::nullopt;
    }
    std::this_thread::yield();
  }
}

Failure Board::report(Failure failure, const Progress& position, milliseconds patience) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = store_.add(kClaims, 1) == 1;
    if (first) store_.set(kCause, failure.encode());
    store_.set(position_key(rank_), position.encode());
  }
  if (first) {
    if (failure.ask_others) failure = judge(failure, position, Clock::now() + patience);
    const std::lock_guard lock(mutex_);
    store_.set(kVerdict, failure.encode());
    return failure;
  }
  if (const auto cause = wait_for(kCause, Clock::now() + kCausePatience)) {
    failure = Failure::decode(*cause);
  }
  if (!failure.ask_others) return failure;
  const auto verdict = wait_for(kVerdict, Clock::now() + patience + kCausePatience);
  return verdict ? Failure::decode(*verdict) : failure;
}

Failure Board::judge(const Failure& failure, const Progress& position, TimePoint deadline) {
  std::vector<std::optional<Progress>> positions(static_cast<std::size_t>(world_size_));
  positions[static_cast<std::size_t>(rank_)] = position;
  for (;;) {
    bool all = true;
    for (int rank = 0; rank < world_size_; ++rank) {
      auto& seen = positions[static_cast<std::size_t>(rank)];
      if (seen) continue;
      const std::lock_guard lock(mutex_);
      if (store_.has(position_key(rank))) {
        seen = Progress::decode(store_.get(position_key(rank), kSlice)).value_or(Progress{});
      } else {
        all = false;
      }
    }
    if (all || Clock::now() >= deadline) return explain(failure, positions);
    std::this_thread::sleep_for(kPause);
  }
}

Failure report_in_time(const std::shared_ptr<Board>& board, const Failure& failure,
                       const Progress& position, milliseconds patience, milliseconds limit) {
  struct Answer {
    std::mutex mutex;
    std::condition_variable there;
    std::optional<Failure> failure;
    std::string store_failed;
  };
  const auto answer = std::make_shared<Answer>();
  std::thread([=] {
    std::optional<Failure> told;
    std::string trouble;
    try {
      told = board->report(failure, position, patience);
    } catch (const std::exception& error) {
      trouble = error.what();
    }
    const std::lock_guard lock(answer->mutex);
    answer->failure = std::move(told);
    answer->store_failed = std::move(trouble);
    answer->there.notify_all();
  }).detach();
  std::unique_lock lock(answer->mutex);
  const bool in_time = answer->there.wait_for(
      lock, limit, [&] { return answer->failure || !answer->store_failed.empty(); });
  if (answer->failure) return *answer->failure;
  Failure own = failure;
  own.text += in_time ? " (the other ranks could not be told: " + answer->store_failed + ")"
                      : " (the other ranks could not be told: the store does not answer)";
  return own;
}

}  // namespace distrun::nccl
