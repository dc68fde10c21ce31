// The first failure of a group, as all its ranks come to know it: whoever sees it first writes it
// into the store before closing connections, so that who is cut off can look up why.
#pragma once

#include <distrun/error.h>
#include <distrun/store.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace distrun {

struct GroupFailure {
  ErrorKind kind = ErrorKind::backend;  // timeout, or backend
  std::optional<int> peer;              // the rank to blame
  std::string text;

  std::string encode() const;
  static GroupFailure decode(const std::string& bytes);
};

// The group's corner of the store.  Every call is short, and none throws: the store may be what
// failed.  May be used beside a waiting call of the group's own store, since it is a clone.
class FailureBoard {
 public:
  FailureBoard(std::shared_ptr<Store> store, int rank, int size);

  // "rank 2 (pid 4711 on node3)", or "rank 2".
  std::string name_of(int rank);

  // Writes this failure unless there is one already; returns the one that counts.
  GroupFailure report(const GroupFailure& failure);
  // Waits a moment for another rank's report.
  std::optional<GroupFailure> reported(Timeout patience);

  // Rank 0 tells whom it waits for in the call with this number; the others may ask.
  void set_waiting(std::uint64_t sequence, const std::vector<int>& ranks);
  std::vector<int> waiting(std::uint64_t sequence);

  // Set once every rank has said goodbye ("1"), or the group has failed ("0").
  static constexpr const char* kGoodbye = "goodbye/all";

  // Where every rank says who it is.
  static std::string member_key(int rank) { return "member/" + std::to_string(rank); }

 private:
  const std::shared_ptr<Store> store_;
  const int rank_;
  const int size_;
};

}  // namespace distrun
