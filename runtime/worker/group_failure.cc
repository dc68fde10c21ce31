#include "runtime/worker/group_failure.h"

#include <algorithm>
#include <sstream>

namespace distrun {
namespace {

// What a call to a store that may be gone may cost the one who wants to tell of a failure.
constexpr Timeout kPatience = std::chrono::seconds(2);

const std::string kFailure = "failure";
std::string roll_key(std::uint64_t sequence) {
  return "roll/" + std::to_string(sequence);
}
std::string answer_key(std::uint64_t sequence, int rank) {
  return roll_key(sequence) + "/" + std::to_string(rank);
}

}  // namespace

std::string GroupFailure::encode() const {
  return std::to_string(peer.value_or(-1)) + " " + std::to_string(other.value_or(-1)) +
         (kind == ErrorKind::timeout ? " timeout " : " lost ") + text;
}

GroupFailure GroupFailure::decode(const std::string& bytes) {
  std::istringstream in(bytes);
  int peer = -1;
  int other = -1;
  std::string kind;
  in >> peer >> other >> kind;
  in.get();
  GroupFailure failure;
  if (peer >= 0) failure.peer = peer;
  if (other >= 0) failure.other = other;
  failure.kind = kind == "timeout" ? ErrorKind::timeout : ErrorKind::backend;
  std::getline(in, failure.text, '\0');
  return failure;
}

FailureBoard::FailureBoard(std::shared_ptr<Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {
  store_->set_timeout(kPatience);
}

std::string FailureBoard::name_of(int rank) {
  std::string name = "rank " + std::to_string(rank);
  if (broken_) return name;
  try {
    if (store_->check({member_key(rank)})) return name + " (" + store_->get(member_key(rank)) + ")";
  } catch (const DistError&) {
    broken_ = true;  // the number must do
  }
  return name;
}

GroupFailure FailureBoard::report(const GroupFailure& failure) {
  std::string why = "the store had failed before";
  try {
    if (!broken_) {
      auto counts = GroupFailure::decode(store_->compare_set(kFailure, "", failure.encode()));
      // Who has said goodbye waits for nobody any more.
      store_->set(kGoodbye, "0");
      return counts;
    }
  } catch (const DistError& error) {
    broken_ = true;
    why = error.what();
  }
  GroupFailure own = failure;
  own.text += "; the other ranks could not be told: " + why;
  return own;
}

std::optional<GroupFailure> FailureBoard::reported(Timeout patience) {
  if (broken_) return std::nullopt;
  try {
    if (!store_->check({kFailure})) {
      if (patience == Timeout::zero()) return std::nullopt;
      try {
        store_->wait({kFailure}, patience);
      } catch (const DistTimeoutError&) {
        return std::nullopt;
      }
    }
    return GroupFailure::decode(store_->get(kFailure));
  } catch (const DistError&) {
    broken_ = true;
    return std::nullopt;
  }
}

// ---- the roll ----------------------------------------------------------------------------------

void FailureBoard::answer(std::uint64_t sequence, const std::vector<int>& waits_for) {
  std::string text;
  for (const int rank : waits_for) text += std::to_string(rank) + " ";
  store_->set(answer_key(sequence, rank_), text);
}

void FailureBoard::answer_roll(std::uint64_t sequence, const std::vector<int>& waits_for) {
  if (broken_) return;
  try {
    if (store_->check({roll_key(sequence)})) answer(sequence, waits_for);
  } catch (const DistError&) {
    broken_ = true;
  }
}

// None: it has given none.
std::optional<std::vector<int>> FailureBoard::answer_of(std::uint64_t sequence, int rank) {
  const std::string key = answer_key(sequence, rank);
  if (!store_->check({key})) return std::nullopt;
  std::vector<int> waits_for;
  std::istringstream in(store_->get(key));
  for (int other = 0; in >> other;)
    if (other >= 0 && other < size_) waits_for.push_back(other);
  return waits_for;
}

std::optional<GroupFailure> FailureBoard::call_roll(std::uint64_t sequence, std::vector<int>& ranks,
                                                    Timeout patience) {
  if (broken_) return std::nullopt;
  try {
    answer(sequence, ranks);
    store_->set(roll_key(sequence), "1");
    if (auto told = reported(patience)) return told;
    const auto silent = [&](int rank) { return !answer_of(sequence, rank); };
    // Those that wait for nobody but such as wait leave it to those that know better.
    if (std::none_of(ranks.begin(), ranks.end(), silent))
      if (auto told = reported(patience)) return told;
    std::vector<int> to_ask = ranks, blamed;
    std::vector<bool> asked(static_cast<std::size_t>(size_));
    for (std::size_t i = 0; i < to_ask.size(); ++i) {
      const auto rank = static_cast<std::size_t>(to_ask[i]);
      if (asked[rank]) continue;
      asked[rank] = true;
      const auto waits_for = answer_of(sequence, to_ask[i]);
      if (waits_for)
        to_ask.insert(to_ask.end(), waits_for->begin(), waits_for->end());
      else
        blamed.push_back(to_ask[i]);
    }
    std::sort(blamed.begin(), blamed.end());
    if (!blamed.empty()) ranks = std::move(blamed);
  } catch (const DistError&) {
    broken_ = true;
  }
  return std::nullopt;
}

}  // namespace distrun
