// The first failure of a group, as all its ranks come to know it: whoever sees it first writes it
// into the store before closing connections, so that who is cut off can look up why.
#pragma once

#include <distrun/error.h>
#include <distrun/store.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace distrun {

struct GroupFailure {
  ErrorKind kind = ErrorKind::backend;  // timeout, or backend
  std::optional<int> peer;              // the rank to blame
  std::string text;
  std::optional<int> other = std::nullopt;  // of two that differ: the one that `peer` differs from

  std::string encode() const;
  static GroupFailure decode(const std::string& bytes);
};

// The group's corner of the store.  Every call is short, and none throws: the store may be what
// failed; from then on it is not asked again.  May be used beside a waiting call of the group's own
// store, since it is a clone.
class FailureBoard {
 public:
  FailureBoard(std::shared_ptr<Store> store, int rank, int size);

  // "rank 2 (pid 4711 on node3)", or "rank 2".
  std::string name_of(int rank);

  // Writes this failure unless there is one already; returns the one that counts.
  GroupFailure report(const GroupFailure& failure);
  // Waits a moment for another rank's report.
  std::optional<GroupFailure> reported(Timeout patience);

  // A rank whose time is up waits for others, which may wait for others still: it calls the roll of
  // the call with this number, and whoever waits in it answers for whom.  Returns what another rank
  // has reported meanwhile; else `ranks`, for which this one waits, become those at the end of the
  // chain: they are waited for, and have not answered.
  std::optional<GroupFailure> call_roll(std::uint64_t sequence, std::vector<int>& ranks,
                                        Timeout patience);
  void answer_roll(std::uint64_t sequence, const std::vector<int>& waits_for);

  // Set once every rank has said goodbye ("1"), or the group has failed ("0").
  static constexpr const char* kGoodbye = "goodbye/all";

  // Where every rank says who it is.
  static std::string member_key(int rank) { return "member/" + std::to_string(rank); }

 private:
  void answer(std::uint64_t sequence, const std::vector<int>& waits_for);
  std::optional<std::vector<int>> answer_of(std::uint64_t sequence, int rank);

  const std::shared_ptr<Store> store_;
  const int rank_;
  const int size_;
  std::atomic<bool> broken_ = false;  // the store
};

}  // namespace distrun
