// Who am I: what the launcher (distrun, or torchrun) told this process in its environment, and how
// to tell it back why this process failed.
//
//   int main() {
//     return distrun::record([] {
//       const distrun::WorkerInfo me = distrun::worker_info_from_environment();
//       std::printf("rank %d of %d\n", me.rank, me.world_size);
//       return 0;
//     });
//   }
#pragma once

#include <distrun/error.h>

#include <cstdint>
#include <functional>
#include <string>

namespace distrun {

struct WorkerInfo {
  int rank = 0;              // RANK: among all workers of the job
  int world_size = 1;        // WORLD_SIZE
  int local_rank = 0;        // LOCAL_RANK: among the workers of this node
  int local_world_size = 1;  // LOCAL_WORLD_SIZE
  int group_rank = 0;        // GROUP_RANK: of this node
  int group_world_size = 1;  // GROUP_WORLD_SIZE: number of nodes

  std::string role_name;    // ROLE_NAME
  int role_rank = 0;        // ROLE_RANK: among the workers with the same role
  int role_world_size = 1;  // ROLE_WORLD_SIZE

  std::string master_addr;        // MASTER_ADDR
  std::uint16_t master_port = 0;  // MASTER_PORT
  bool use_agent_store =
      false;  // TORCHELASTIC_USE_AGENT_STORE: the launcher serves the store there

  int restart_count = 0;   // TORCHELASTIC_RESTART_COUNT: 0 in the first attempt
  int max_restarts = 0;    // TORCHELASTIC_MAX_RESTARTS
  std::string run_id;      // TORCHELASTIC_RUN_ID
  std::string error_file;  // TORCHELASTIC_ERROR_FILE; empty: none is wanted
};

// Throws DistArgumentError naming the variable that is missing, malformed or in contradiction with
// another.  Must be set: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR
// and MASTER_PORT.  The others have the defaults above.
WorkerInfo worker_info_from_environment();

// True if a launcher started this process: RANK and WORLD_SIZE are set.
bool is_launched();

// Runs a worker's whole work and returns its exit status.  An exception that leaves `body` is told
// on stderr and, if TORCHELASTIC_ERROR_FILE is set, written there for the launcher's report (in the
// form that PyTorch's `record` writes); the result is then 1.
int record(const std::function<int()>& body);

}  // namespace distrun
