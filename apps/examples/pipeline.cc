// A pipeline: each rank is a stage that takes a micro-batch from the one before it, adds its rank,
// and passes it on; the next batch comes in while the last one goes out.
// Run: distrun --nproc-per-node 4 example_pipeline
#include <distrun/process_group.h>
#include <distrun/worker.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace {

constexpr int kBatches = 16;
constexpr std::size_t kBatchSize = 4096;
constexpr int kActivations = 1;  // the tag

void run_stage(distrun::ProcessGroup& world) {
  const int stage = world.rank();
  const bool first = stage == 0;
  const bool last = stage == world.size() - 1;
  using Batch = std::vector<float>;
  // While one batch is worked on, the next arrives in the other room.
  std::array<Batch, 2> rooms{Batch(kBatchSize), Batch(kBatchSize)};
  std::array<distrun::Work, 2> sent;
  distrun::Work arriving;
  if (!first) arriving = world.irecv(rooms[0], stage - 1, kActivations);
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto here = static_cast<std::size_t>(batch % 2);
    Batch& room = rooms[here];
    if (first) {
      sent[here].wait();  // the room is free again
      room.assign(kBatchSize, static_cast<float>(batch));
    } else {
      arriving.wait();
      sent[1 - here].wait();
      if (batch + 1 < kBatches) arriving = world.irecv(rooms[1 - here], stage - 1, kActivations);
    }
    for (float& value : room) value += static_cast<float>(stage);
    if (!last) {
      sent[here] = world.isend(room, stage + 1, kActivations);
      continue;
    }
    const int stages = world.size() * (world.size() - 1) / 2;
    if (room.back() != static_cast<float>(batch + stages))
      throw std::runtime_error("batch " + std::to_string(batch) + " came out wrong");
  }
  for (distrun::Work& work : sent) work.wait();
}

}  // namespace

int main() {
  return distrun::record([] {
    const auto world = distrun::init_process_group();
    run_stage(*world);
    world->close();
    if (world->rank() == world->size() - 1) std::puts("ok");
    return 0;
  });
}
