// Collectives by a group of ranks that a launcher started, on one host or several:
//   distrun ... hosts_load distrun|gloo|levels:OPERATION FOLDER SECONDS BYTES...
//
// With `distrun` all_reduce by our library, with `gloo` by Gloo alone, whose ranks meet in FOLDER.
// With `levels` an operation of ours by two groups in turn, one of which shares no memory: the
// median of each in us, the median of the ratios of neighbours, and of how many.  BYTES: of the
// whole, all parts of a rank, or at the root.  A line for each size, by rank 0.
#include "tests/bench/collective_load.h"
#include <distrun/process_group.h>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
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

// One call of it, on `data` and memory of its own.
std::function<void()> operation(const std::string& name, distrun::ProcessGroup& group,
                                std::vector<float>& data) {
  using distrun::Tensor;
  const int size = group.size();
  const auto p = static_cast<std::size_t>(size);
  // The last one: on another host than rank 0, who measures.
  const int root = size - 1;
  auto part = std::make_shared<std::vector<float>>(data.size() / p);
  auto whole = std::make_shared<std::vector<float>>(part->size() * p);
  const auto parts = [part, p](std::vector<float>& of) {
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < p; ++i)
      tensors.emplace_back(of.data() + i * part->size(), part->size(), distrun::DType::float32);
    return tensors;
  };
  if (name == "all_reduce") return [&] { group.all_reduce(data); };
  if (name == "broadcast") return [&, root] { group.broadcast(data, root); };
  if (name == "reduce") return [&, root] { group.reduce(data, root); };
  if (name == "all_gather")
    return [&, part, whole] { group.all_gather_into_tensor(*whole, *part); };
  if (name == "reduce_scatter")
    return [&, part, whole] { group.reduce_scatter_tensor(*part, *whole); };
  if (name == "all_to_all")
    return [&, whole, other = std::make_shared<std::vector<float>>(whole->size())] {
      group.all_to_all_single(*other, *whole);
    };
  if (name == "gather")
    return [&, root, part, whole,
            outs = group.rank() == root ? parts(*whole) : std::vector<Tensor>()] {
      group.gather(*part, outs, root);
    };
  if (name == "scatter") {
    std::vector<distrun::ConstTensor> ins;
    if (group.rank() == root)
      for (const Tensor& tensor : parts(*whole)) ins.emplace_back(tensor);
    return [&, root, part, whole, ins] { group.scatter(*part, ins, root); };
  }
  throw std::runtime_error("no operation " + name);
}

// That of rank 0.
double agreed(double value, distrun::ProcessGroup& group) {
  std::vector<double> data{value};
  group.broadcast(data, 0);
  return data[0];
}

void compare(const std::string& op, distrun::ProcessGroup& shares, distrun::ProcessGroup& flat,
             std::size_t bytes, double seconds) {
  std::vector<float> data(bytes / sizeof(float));
  const auto on_two = operation(op, shares, data);
  const auto without = operation(op, flat, data);
  const auto time = [](const std::function<void()>& call) {
    const double start = load::now_us();
    call();
    return load::now_us() - start;
  };
  double each = 1e12;
  for (int i = 0; i < 5; ++i) each = std::min(each, time(on_two) + time(without));
  const auto samples = static_cast<int>(agreed(std::clamp(seconds * 1e6 / each, 5.0, 1e5), flat));
  std::vector<double> two, one, ratio;
  for (int i = 0; i < samples; ++i) {
    two.push_back(time(on_two));
    one.push_back(time(without));
    ratio.push_back(one.back() / two.back());
  }
  if (shares.rank() != 0) return;
  for (auto* const all : {&two, &one, &ratio}) std::sort(all->begin(), all->end());
  const auto half = static_cast<std::size_t>(samples) / 2;
  std::printf("%.3f %.3f %.3f %d\n", two[half], one[half], ratio[half], samples);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5)
    return std::fprintf(stderr,
                        "hosts_load distrun|gloo|levels:OPERATION FOLDER SECONDS BYTES...\n"),
           2;
  const int rank = number("RANK");
  std::shared_ptr<distrun::ProcessGroup> group;
  AllReduce all_reduce;
  const std::string name = argv[1];
  std::shared_ptr<distrun::ProcessGroup> flat;
  if (name == "gloo") {
    all_reduce = by_gloo(argv[2], rank, number("WORLD_SIZE"));
  } else {
    group = distrun::init_process_group("gloo");
    all_reduce = [&group](std::vector<float>& data) { group->all_reduce(data); };
  }
  if (name.starts_with("levels:")) {
    std::vector<int> all;
    for (int i = 0; i < group->size(); ++i) all.push_back(i);
    setenv("DISTRUN_SHARED_MEMORY", "0", 1);
    flat = group->new_group(all);
  }
  for (int i = 4; i < argc; ++i) {
    const std::size_t bytes = std::strtoull(argv[i], nullptr, 10);
    if (flat) {
      compare(name.substr(7), *group, *flat, bytes, std::atof(argv[3]));
      continue;
    }
    std::vector<float> data(bytes / sizeof(float));
    load::measure(rank, data.data(), data.size(), std::atof(argv[3]), [&] { all_reduce(data); });
  }
  // A rank of Gloo's that exits right after its last call can break the slower ones.
  usleep(100'000);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "hosts_load: %s\n", error.what());
  return 1;
}
