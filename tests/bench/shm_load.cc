// all_reduce through shared memory, alone:
//   shm_load RANKS BYTES SECONDS pinned|free [registered|copies]
//
// `registered`: of memory that the ranks lend each other.
// With `copies`, instead: every rank copies as many bytes twice, within its own memory, all at
// once; what one could hope for from a library that copies everything in and out once.
#include "runtime/worker/shm/shared_memory.h"
#include "tests/bench/collective_load.h"
#include "tests/bench/forked_ranks.h"

#include <cstdlib>
#include <cstring>
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
    distrun::FileStore store(path, ranks);
    const auto deadline = distrun::Clock::now() + std::chrono::minutes(2);
    auto shared = distrun::connect_shared_memory(store, rank, ranks, deadline);
    if (!shared.runner) throw std::runtime_error(shared.why_not);
    std::vector<float> own(variant == "registered" ? 0 : count);
    distrun::Buffer lent;
    if (variant == "registered") lent = distrun::allocate_buffer(count * sizeof(float));
    if (variant == "registered" && !lent.is_registered())
      throw std::runtime_error("no memory to be lent");
    const std::span<float> data = lent.is_registered() ? lent.as<float>() : std::span(own);
    distrun::Call call;
    call.op = distrun::OpType::all_reduce;
    call.count = copies ? 1 : count;
    call.in = reinterpret_cast<const std::byte*>(data.data());
    call.out = reinterpret_cast<std::byte*>(data.data());
    std::vector<float> room(copies ? count : 0);
    load::measure(rank, data.data(), count, seconds, [&] {
      if (copies) {
        std::memcpy(room.data(), data.data(), count * sizeof(float));
        std::memcpy(data.data(), room.data(), count * sizeof(float));
      }
      shared.runner->run(call, deadline);
      ++call.sequence;
    });
  });
  unlink(path.c_str());
  return status;
}
