// line_writer BYTES [WRITE_SIZE]: writes at least BYTES of checkable lines to standard output, the
// last one whole, and ends. The stream's number is RANK (0 if unset). It writes in blocks of
// WRITE_SIZE (4096, as stdio does into a pipe), so most writes end in the middle of a line.
#include "tests/bench/line_pattern.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fputs("usage: line_writer BYTES [WRITE_SIZE]\n", stderr);
    return 2;
  }
  const auto total = std::strtoull(argv[1], nullptr, 10);
  const std::size_t block = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 4096;
  const char* rank = std::getenv("RANK");
  const auto stream = rank != nullptr ? std::strtoull(rank, nullptr, 10) : 0;
  if (block == 0) return 2;

  std::string buffer;
  unsigned long long made = 0;
  for (unsigned long long number = 0;; ++number) {
    const bool last = made >= total;
    while (buffer.size() >= block || (last && !buffer.empty())) {
      const auto wrote = ::write(STDOUT_FILENO, buffer.data(), std::min(block, buffer.size()));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) {
        std::perror("line_writer: write");
        return 1;
      }
      buffer.erase(0, static_cast<std::size_t>(wrote));
    }
    if (last) return 0;
    const auto before = buffer.size();
    distrun::bench::append_line(buffer, stream, number);
    made += buffer.size() - before;
  }
}
