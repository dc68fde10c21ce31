// all_reduce by Gloo alone, over TCP on loopback: gloo_load RANKS BYTES SECONDS pinned|free
#include "tests/bench/collective_load.h"
#include "tests/bench/forked_ranks.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <filesystem>
#include <string>

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "gloo_load RANKS BYTES SECONDS pinned|free\n"), 2;
  const int ranks = std::atoi(argv[1]);
  const std::size_t count = std::strtoull(argv[2], nullptr, 10) / sizeof(float);
  const double seconds = std::atof(argv[3]);
  const bool pinned = std::string(argv[4]) == "pinned";
  const std::string folder = "/tmp/distrun-gloo-load-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const int status = load::run_ranks(ranks, [&](int rank) {
    if (pinned) load::pin(rank);
    gloo::rendezvous::FileStore store(folder);
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    std::vector<float> data(count);
    gloo::AllreduceOptions options(context);
    options.setOutput(data.data(), count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    load::measure(rank, data.data(), count, seconds, [&] { gloo::allreduce(options); });
    // A rank that exits right after its last call can break the slower ones.
    usleep(100'000);
  });
  std::filesystem::remove_all(folder);
  return status;
}
