// How long a process group takes to be made: a worker, FOLDER is its argument.
//
// It makes the file FOLDER/here.RANK and waits until nobody holds FOLDER/gate locked: so that all
// ranks begin at one moment.  Then init_process_group, a barrier, a second group of all ranks, and
// FOLDER/took.RANK says, by the monotonic clock in ns: began, had the group, was past the barrier,
// had the second group.
#include <distrun/process_group.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <numeric>
#include <string>
#include <sys/file.h>
#include <unistd.h>
#include <vector>

namespace {

long long now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void pass_gate(const std::string& folder, const std::string& rank) {
  const int gate = ::open((folder + "/gate").c_str(), O_RDONLY | O_CLOEXEC);
  std::ofstream(folder + "/here." + rank).put('\n');
  if (gate < 0 || ::flock(gate, LOCK_SH) != 0) throw std::runtime_error("no gate in " + folder);
  ::close(gate);
}

}  // namespace

int main(int argc, char** argv) try {
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* const rank = std::getenv("RANK");
  if (argc != 2 || rank == nullptr)
    return std::fprintf(stderr, "distrun ... group_load FOLDER\n"), 2;
  const std::string folder = argv[1];
  pass_gate(folder, rank);
  const long long began = now_ns();
  const auto world = distrun::init_process_group("gloo");
  const long long made = now_ns();
  world->barrier();
  const long long used = now_ns();
  std::vector<int> all(static_cast<std::size_t>(world->size()));
  std::iota(all.begin(), all.end(), 0);
  const auto second = world->new_group(all);
  const long long again = now_ns();
  // Renamed, so that it is never read half written.
  const std::string path = folder + "/took." + rank;
  {
    std::ofstream out(path + ".new");
    out << began << ' ' << made << ' ' << used << ' ' << again << '\n';
  }
  if (std::rename((path + ".new").c_str(), path.c_str()) != 0)
    throw std::runtime_error("cannot write " + path);
  second->close();
  world->close();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "group_load: %s\n", error.what());
  return 1;
}
