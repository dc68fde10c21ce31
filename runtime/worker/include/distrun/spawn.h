// Ranks without a launcher: forks processes of this program, which meet in a file.
//
//   distrun::spawn(4, [](const distrun::GroupOptions& options) {
//     auto group = distrun::init_process_group("gloo", options);
//     …
//   });
//
// For tests and notebooks of one machine; a job has distrun, which watches and restarts it.
#pragma once

#include <distrun/error.h>
#include <distrun/process_group.h>

#include <chrono>
#include <functional>
#include <string>

namespace distrun {

// A process that spawn() started failed: the first one, in whatever order they ended.
class DistProcessError : public DistError {
 public:
  DistProcessError(const std::string& what, int rank) : DistError(ErrorKind::backend, what, rank) {}
};

struct SpawnOptions {
  // Between SIGTERM to the others, after one has failed, and SIGKILL.
  Timeout grace = std::chrono::seconds(5);
};

// Runs `body` in `processes` new processes, as ranks 0, 1, …; returns when all are done.  One that
// throws, exits with another status than 0 or dies by a signal ends the others, and is named in the
// DistProcessError.  They do not outlive this process.
// REQUIRES: this process has one thread (no group, no other thread): it is forked.  Throws
// DistArgumentError if it has more.
void spawn(int processes, const std::function<void(const GroupOptions& options)>& body,
           const SpawnOptions& options = {});

}  // namespace distrun
