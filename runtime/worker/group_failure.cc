#include "runtime/worker/group_failure.h"

#include <sstream>

namespace distrun {
namespace {

// What a call to a store that may be gone may cost the one who wants to tell of a failure.
constexpr Timeout kPatience = std::chrono::seconds(2);

const std::string kFailure = "failure";
const std::string kWaiting = "waiting";

}  // namespace

std::string GroupFailure::encode() const {
  return std::to_string(peer.value_or(-1)) + (kind == ErrorKind::timeout ? " timeout " : " lost ") +
         text;
}

GroupFailure GroupFailure::decode(const std::string& bytes) {
  std::istringstream in(bytes);
  int peer = -1;
  std::string kind;
  in >> peer >> kind;
  in.get();
  GroupFailure failure;
  if (peer >= 0) failure.peer = peer;
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
  try {
    if (store_->check({member_key(rank)})) return name + " (" + store_->get(member_key(rank)) + ")";
  } catch (const DistError&) {
    // The number must do.
  }
  return name;
}

GroupFailure FailureBoard::report(const GroupFailure& failure) {
  try {
    auto counts = GroupFailure::decode(store_->compare_set(kFailure, "", failure.encode()));
    // Who has said goodbye waits for nobody any more.
    store_->set(kGoodbye, "0");
    return counts;
  } catch (const DistError& error) {
    GroupFailure own = failure;
    own.text += std::string("; the other ranks could not be told: ") + error.what();
    return own;
  }
}

std::optional<GroupFailure> FailureBoard::reported(Timeout patience) {
  try {
    if (!store_->check({kFailure})) {
      if (patience == Timeout::zero()) return std::nullopt;
      store_->wait({kFailure}, patience);
    }
    return GroupFailure::decode(store_->get(kFailure));
  } catch (const DistError&) {
    return std::nullopt;
  }
}

void FailureBoard::set_waiting(std::uint64_t sequence, const std::vector<int>& ranks) {
  std::string text = std::to_string(sequence);
  for (const int rank : ranks) text += " " + std::to_string(rank);
  try {
    store_->set(kWaiting, text);
  } catch (const DistError&) {
    // It only helps others to a better message.
  }
}

std::vector<int> FailureBoard::waiting(std::uint64_t sequence) {
  std::vector<int> ranks;
  try {
    if (!store_->check({kWaiting})) return ranks;
    std::istringstream in(store_->get(kWaiting));
    std::uint64_t of = 0;
    in >> of;
    if (of != sequence) return ranks;
    for (int rank = 0; in >> rank;)
      if (rank != rank_ && rank >= 0 && rank < size_) ranks.push_back(rank);
  } catch (const DistError&) {
    ranks.clear();
  }
  return ranks;
}

}  // namespace distrun
