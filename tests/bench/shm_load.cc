// all_reduce of ranks of one host by distrun, through the public interface:
//   shm_load RANKS BYTES SECONDS pinned|free [registered|copies]
//
// `registered`: of memory that the ranks lend each other.
// With `copies`, instead: every rank copies as many bytes twice, within its own memory, all at
// once; what one could hope for from a library that copies everything in and out once.
#include "tests/bench/collective_load.h"
#include "tests/bench/forked_ranks.h"
#include <distrun/process_group.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

int main(int argc, char** argv) {
  if (argc < 5)
    return std::fprintf(stderr, "shm_load RANKS BYTES SECONDS pinned|free [registered|copies]\n"),
           2;
  const int ranks = std::atoi(argv[1]);
  const std::size_t count = std::strtoull(argv[2], nullptr, 10) / sizeof(float);
  const double seconds = std::atof(argv[3]);
  const bool pinned = std::string(argv[4]) == "pinned";
  const std::string variant = argc > 5 ? argv[5] : "";
  const bool copies = variant == "copies";
  const std::string path = "/tmp/distrun-shm-load-" + std::to_string(getpid());
  const int status = load::run_ranks(ranks, [&](int rank) {
    if (pinned) load::pin(rank);
    distrun::GroupOptions options;
    options.store = std::make_shared<distrun::FileStore>(path, ranks);
    options.rank = rank;
    options.world_size = ranks;
    const auto group = distrun::init_process_group("gloo", options);
    const bool registered = variant == "registered";
    const distrun::Buffer lent = group->allocate((registered ? count : 1) * sizeof(float));
    if (!lent.is_registered()) throw std::runtime_error("the ranks share no memory");
    std::vector<float> own(count);
    std::vector<float> room(copies ? count : 0);
    const std::span<float> data = registered ? lent.as<float>().first(count) : std::span(own);
    const std::span<float> reduced = data.first(copies ? 1 : count);
    load::measure(rank, data.data(), count, seconds, [&] {
      if (copies) {
        std::memcpy(room.data(), data.data(), count * sizeof(float));
        std::memcpy(data.data(), room.data(), count * sizeof(float));
      }
      group->all_reduce(reduced);
    });
    group->close();
  });
  unlink(path.c_str());
  return status;
}
