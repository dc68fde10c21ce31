// A checkpoint: everything that the next step depends on, in one file that is always whole.
//
// save() writes beside it, syncs, and renames: a process killed at any moment leaves the old file
// or the new one.  load() takes only what save() wrote: format, size and checksum must be right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace digits {

struct TrainingState {
  std::int64_t step = 0;  // steps done
  std::vector<float> parameters;
  std::vector<float> momentum;
};

// Both throw std::runtime_error naming the file and what is wrong.
void save_checkpoint(const std::string& path, const TrainingState& state);
// nullopt: there is no such file.
std::optional<TrainingState> load_checkpoint(const std::string& path, std::size_t parameters);

}  // namespace digits
