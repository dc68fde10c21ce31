// all_reduce by a group of ranks that a launcher started, on one host or several:
//   distrun ... hosts_load distrun|gloo FOLDER SECONDS BYTES...
//
// With `gloo`, by Gloo alone, whose ranks meet in FOLDER.  A line for each size, by rank 0.
#include "tests/bench/collective_load.h"
#include <distrun/process_group.h>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

using AllReduce = std::function<void(std::vector<float>&)>;

int number(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error(std::string("no ") + name + ": start with distrun");
  return std::atoi(text);
}

AllReduce by_gloo(const std::string& folder, int rank, int size) {
  gloo::rendezvous::FileStore store(folder);
  gloo::transport::tcp::attr attributes;
  attributes.iface = std::getenv("GLOO_SOCKET_IFNAME") ? std::getenv("GLOO_SOCKET_IFNAME") : "lo";
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  context->connectFullMesh(store, device);
  return [context](std::vector<float>& data) {
    gloo::AllreduceOptions options(context);
    options.setOutput(data.data(), data.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  };
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) return std::fprintf(stderr, "hosts_load distrun|gloo FOLDER SECONDS BYTES...\n"), 2;
  const int rank = number("RANK");
  std::shared_ptr<distrun::ProcessGroup> group;
  AllReduce all_reduce;
  if (std::string(argv[1]) == "gloo") {
    all_reduce = by_gloo(argv[2], rank, number("WORLD_SIZE"));
  } else {
    group = distrun::init_process_group("gloo");
    all_reduce = [&group](std::vector<float>& data) { group->all_reduce(data); };
  }
  for (int i = 4; i < argc; ++i) {
    std::vector<float> data(std::strtoull(argv[i], nullptr, 10) / sizeof(float));
    load::measure(rank, data.data(), data.size(), std::atof(argv[3]), [&] { all_reduce(data); });
  }
  // A rank of Gloo's that exits right after its last call can break the slower ones.
  usleep(100'000);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "hosts_load: %s\n", error.what());
  return 1;
}
