// A mesh of 2 x N/2: data parallel along "dp", tensor parallel along "tp".
// Run: distrun --nproc-per-node 4 example_mesh
//
// A linear layer y = W x, whose columns are shared out along "tp": each rank multiplies its part,
// and the parts are added up.  Along "dp" each row of ranks has other data, and the gradients are
// averaged.
#include <distrun/device_mesh.h>
#include <distrun/worker.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::size_t kInputs = 8;

// Of input i in the data of row `row`.
double input(std::size_t row, std::size_t i) {
  return static_cast<double>(row + 1) * static_cast<double>(i + 1);
}

void train(const distrun::DeviceMesh& mesh) {
  const std::size_t row = mesh.local_rank("dp");
  const std::size_t columns = kInputs / mesh.size("tp");
  const std::size_t first = mesh.local_rank("tp") * columns;
  std::vector<double> weights(columns, 1.0);

  // Forward: this rank's part of the sum, then all parts of the row.
  std::vector<double> output{0};
  for (std::size_t k = 0; k < columns; ++k) output[0] += weights[k] * input(row, first + k);
  mesh.group("tp").all_reduce(output);
  const std::size_t sum_of_inputs = kInputs * (kInputs + 1) / 2;
  const auto expected = static_cast<double>((row + 1) * sum_of_inputs);
  if (std::abs(output[0] - expected) > 1e-9) throw std::runtime_error("the forward pass is wrong");

  // Backward: the gradient of each weight is its input; the mean over the rows.
  std::vector<double> gradient(columns);
  for (std::size_t k = 0; k < columns; ++k) gradient[k] = input(row, first + k);
  mesh.group("dp").all_reduce(gradient, distrun::ReduceOp::avg);
  const double rows = static_cast<double>(mesh.size("dp"));
  if (std::abs(gradient[0] - (rows + 1) / 2 * static_cast<double>(first + 1)) > 1e-9)
    throw std::runtime_error("the mean gradient is wrong");
}

}  // namespace

int main() {
  return distrun::record([] {
    const auto world = distrun::init_process_group();
    if (world->size() % 2 != 0) throw std::runtime_error("an even number of ranks is needed");
    const auto half = static_cast<std::size_t>(world->size()) / 2;
    {
      const distrun::DeviceMesh mesh = distrun::init_device_mesh(world, {2, half}, {"dp", "tp"});
      train(mesh);
    }
    world->close();
    if (world->rank() == 0) std::puts("ok");
    return 0;
  });
}
