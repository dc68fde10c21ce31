// The watchdog's judgement over one group: which operations are done, and whether the group has
// failed, by what, and where.
//
// Operations of one communicator are done in their order; the oldest that is not done is the one to
// name.  What is done counts as done, also when its deadline passed or an error came up meanwhile:
// the result is there.
//
// Pure: somebody else looks at events and communicators and tells what he saw.
#pragma once

#include "runtime/base/time.h"
#include "runtime/nccl/core/codes.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace distrun::nccl {

// What kind of end it is, for the error that callers get.
enum class FailureKind : std::uint8_t { timeout, backend };

struct Failure {
  FailureKind kind = FailureKind::backend;
  int culprit = -1;         // the rank to blame; -1: not known
  std::string text = {};    // one sentence, without the group's name
  bool ask_others = false;  // where the other ranks are may tell more
  bool operator==(const Failure&) const = default;

  std::string encode() const;
  static Failure decode(const std::string& bytes);
};

// Where a rank is in a group's sequence of collectives; -1: before the first.  (Sends and receives
// are the affair of two ranks, and have numbers of their own.)
struct Progress {
  std::int64_t submitted = -1;
  std::int64_t completed = -1;
  std::string last = {};  // the newest submitted one, in words
  bool operator==(const Progress&) const = default;

  std::string encode() const;
  // Nothing, if these are not bytes of encode().
  static std::optional<Progress> decode(const std::string& bytes);
};

// What an operation is, for errors.
struct Label {
  OpKind kind = OpKind::barrier;
  DType dtype = {};
  std::uint64_t count = 0;      // elements, of this rank's larger side
  std::int64_t sequence = 0;    // among the group's collectives, or among its sends and receives
  std::uint32_t coalesced = 1;  // operations carried out as one; the others' data is not told
  int peer = -1;                // send, recv: whom; operations with a root: which
  // "all_reduce #17 (float32, 1024 elements)", "send #3 to rank 1 (…)", "4 coalesced: …".
  std::string text() const;
};

struct Watched {
  std::uint64_t id = 0;  // grows
  Label label;
  TimePoint submitted{};
  TimePoint deadline{};
};

enum class Seen : std::uint8_t { waiting, running, done, broken };

// One look at the world.
struct Sight {
  std::vector<Seen> works = {};                // one for each of Watch::works(), in their order
  std::string device_error = {};               // of a broken one: the device's words
  std::optional<std::string> comm_error = {};  // a communicator's state, if it is an error
  std::optional<Failure> told_by_others = {};  // another rank's
};

struct Verdict {
  std::vector<std::uint64_t> done;
  std::optional<Failure> failure;
};

class Watch {
 public:
  void add(const Watched& work);
  const std::vector<Watched>& works() const { return works_; }
  // REQUIRES: sight.works matches works().  Forgets those it reports as done.
  Verdict look(const Sight& sight, TimePoint now);
  // The earliest deadline; nothing: there is none.
  std::optional<TimePoint> next_deadline() const;

 private:
  std::vector<Watched> works_;
};

// The sentence for everybody: the failure, and what the ranks' positions say about it. positions[r]
// is empty if rank r did not tell.  `failure.culprit` is set when exactly one rank is behind.
Failure explain(Failure failure, const std::vector<std::optional<Progress>>& positions);

// Which ranks start NCCL's meeting points (roots), so that none has too many ranks to serve.
struct Roots {
  int count = 1;
  // The index of the root that this rank starts, if it starts one.  As NCCL splits ranks into
  // nearly equal runs, the first of each run starts its root.
  std::optional<int> started_by(int rank, int world_size) const;
  int starter(int root, int world_size) const;
};
// REQUIRES: world_size > 0, ranks_per_root > 0.
Roots plan_roots(int world_size, int ranks_per_root);

}  // namespace distrun::nccl
