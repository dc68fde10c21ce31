// Every collective once.  Run: distrun --nproc-per-node 4 example_tour
#include <distrun/objects.h>
#include <distrun/process_group.h>
#include <distrun/worker.h>

#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using distrun::ConstTensor;
using distrun::ProcessGroup;
using distrun::ReduceOp;
using distrun::Tensor;

void expect(bool right, const char* what) {
  if (!right) throw std::runtime_error(std::string(what) + " gave something else");
}

void collectives(ProcessGroup& world) {
  const int rank = world.rank();
  const auto size = static_cast<std::size_t>(world.size());
  const int sum_of_ranks = world.size() * (world.size() - 1) / 2;

  std::vector<int> one{rank};
  world.all_reduce(one);
  expect(one[0] == sum_of_ranks, "all_reduce");

  std::vector<float> mean{static_cast<float>(rank)};
  world.all_reduce(mean, ReduceOp::avg);
  expect(mean[0] * static_cast<float>(size) == static_cast<float>(sum_of_ranks), "avg");

  one[0] = rank;
  world.broadcast(one, world.size() - 1);
  expect(one[0] == world.size() - 1, "broadcast");

  one[0] = rank;
  world.reduce(one, 0, ReduceOp::max);
  expect(one[0] == (rank == 0 ? world.size() - 1 : rank), "reduce");

  std::vector<int> all(size);
  world.all_gather_into_tensor(all, std::vector<int>{rank * rank});
  expect(all.back() == (world.size() - 1) * (world.size() - 1), "all_gather_into_tensor");

  // One tensor for each rank, here of different sizes: rank r gives r + 1 numbers.
  std::vector<std::vector<double>> parts;
  for (std::size_t i = 0; i < size; ++i) parts.emplace_back(i + 1);
  const std::vector<double> mine(static_cast<std::size_t>(rank) + 1, rank);
  world.all_gather(std::vector<Tensor>(parts.begin(), parts.end()), mine);
  expect(parts.back().size() == size && parts.back()[0] == world.size() - 1, "all_gather");

  const bool root = rank == 0;
  std::vector<double> share(static_cast<std::size_t>(rank) + 1);
  world.scatter(
      share,
      root ? std::vector<ConstTensor>(parts.begin(), parts.end()) : std::vector<ConstTensor>(), 0);
  expect(share == mine, "scatter");
  world.gather(share,
               root ? std::vector<Tensor>(parts.begin(), parts.end()) : std::vector<Tensor>(), 0);

  std::vector<int> rows(size);
  std::iota(rows.begin(), rows.end(), 0);
  world.reduce_scatter_tensor(one, rows);
  expect(one[0] == rank * world.size(), "reduce_scatter_tensor");

  std::vector<int> exchanged(size);
  world.all_to_all_single(exchanged, rows);
  expect(exchanged == std::vector<int>(size, rank), "all_to_all_single");

  // Several at once, beside other work.
  std::vector<float> a(1000, 1), b(1000, 2);
  distrun::Work first = world.all_reduce(a, ReduceOp::sum, {.async_op = true});
  distrun::Work second = world.all_reduce(b, ReduceOp::sum, {.async_op = true});
  first.wait();
  second.wait();
  expect(b[0] == 2 * a[0], "async all_reduce");

  const auto reports = distrun::all_gather_object(world, {{"rank", rank}, {"loss", 0.5}});
  expect(reports.back()["rank"] == world.size() - 1, "all_gather_object");
  world.barrier();
}

void sub_group(ProcessGroup& world) {
  std::vector<int> even;
  for (int rank = 0; rank < world.size(); rank += 2) even.push_back(rank);
  const auto group = world.new_group(even);  // all ranks call it
  if (!group) return;
  std::vector<int> count{1};
  group->all_reduce(count);
  expect(count[0] == group->size(), "all_reduce of the even ranks");
}

}  // namespace

int main() {
  return distrun::record([] {
    const auto world = distrun::init_process_group();
    collectives(*world);
    sub_group(*world);
    world->close();
    if (world->rank() == 0) std::puts("ok");
    return 0;
  });
}
