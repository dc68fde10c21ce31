// A user of the installed library: all ranks add up to their number.
#include <distrun/process_group.h>
#include <distrun/worker.h>

#include <cstdio>
#include <vector>

int main() {
  return distrun::record([] {
    auto group = distrun::init_process_group("gloo");
    std::vector<float> ones{1};
    group->all_reduce(ones);
    std::printf("%g of %d\n", static_cast<double>(ones[0]), group->size());
    return 0;
  });
}
