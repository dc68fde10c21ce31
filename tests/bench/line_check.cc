// line_check BYTES STREAMS PREFIX FILE: proves that FILE holds, for each stream 0..STREAMS-1,
// exactly the lines that `line_writer BYTES` wrote, in order, whole, each behind its PREFIX, in
// which a "%" stands for the stream's number ("[default%]:"). With an empty PREFIX the file is that
// of stream STREAMS alone. Prints the first difference and exits 1, or the number of lines and
// exits 0.
#include "tests/bench/line_pattern.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Stream {
  unsigned long long number = 0;
  std::string prefix;
  unsigned long long lines = 0;
  unsigned long long bytes = 0;
};

std::string prefix_of(std::string_view pattern, unsigned long long stream) {
  std::string made;
  for (const char letter : pattern) {
    if (letter == '%') {
      made += std::to_string(stream);
    } else {
      made += letter;
    }
  }
  return made;
}

std::vector<Stream> streams_of(std::string_view pattern, unsigned long long count) {
  std::vector<Stream> made;
  if (pattern.empty()) {
    made.emplace_back().number = count;
    return made;
  }
  for (unsigned long long i = 0; i < count; ++i) {
    made.emplace_back().number = i;
    made.back().prefix = prefix_of(pattern, i);
  }
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: line_check BYTES STREAMS PREFIX FILE\n", stderr);
    return 2;
  }
  const auto total = std::strtoull(argv[1], nullptr, 10);
  auto streams = streams_of(argv[3], std::strtoull(argv[2], nullptr, 10));
  std::ifstream file(argv[4], std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "line_check: cannot read %s\n", argv[4]);
    return 2;
  }

  std::string line;
  std::string expected;
  unsigned long long row = 0;
  while (std::getline(file, line)) {
    ++row;
    if (file.eof()) {
      std::printf("%s:%llu: the last line has no newline\n", argv[4], row);
      return 1;
    }
    Stream* owner = nullptr;
    for (auto& stream : streams) {
      if (line.compare(0, stream.prefix.size(), stream.prefix) == 0) owner = &stream;
    }
    if (owner == nullptr) {
      std::printf("%s:%llu: no stream's prefix: %.80s\n", argv[4], row, line.c_str());
      return 1;
    }
    expected = owner->prefix;
    distrun::bench::append_line(expected, owner->number, owner->lines);
    expected.pop_back();
    if (line != expected) {
      std::printf("%s:%llu: got      %.160s\n%s:%llu: expected %.160s\n", argv[4], row,
                  line.c_str(), argv[4], row, expected.c_str());
      return 1;
    }
    ++owner->lines;
    owner->bytes += line.size() + 1 - owner->prefix.size();
  }
  unsigned long long lines = 0;
  for (const auto& stream : streams) {
    // The writer stops at the first line that reaches the total; one line more or less is a loss.
    expected.clear();
    if (stream.lines > 0) {
      distrun::bench::append_line(expected, stream.number, stream.lines - 1);
    }
    if (stream.bytes < total || stream.bytes - expected.size() >= total) {
      std::printf("%s: stream %llu has %llu bytes of %llu\n", argv[4], stream.number, stream.bytes,
                  total);
      return 1;
    }
    lines += stream.lines;
  }
  std::printf("%llu\n", lines);
  return 0;
}
