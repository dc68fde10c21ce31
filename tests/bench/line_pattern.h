// The text that line_writer writes and line_check expects: line k of a stream is a function of
// (stream, k) alone, so a lost, doubled, torn or swapped byte shows without keeping a copy. Lines
// are 60 to 140 bytes long, 100 on average, newline included.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace distrun::bench {

inline std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Appends line `number` of `stream`. Its body is a slice of a fixed text of printable characters
// with period 95 (so every slice start gives another line), behind the number in hexadecimal.
inline void append_line(std::string& out, std::uint64_t stream, std::uint64_t number) {
  constexpr std::size_t kPeriod = 95;
  static const std::array<char, 4 * kPeriod> text = [] {
    std::array<char, 4 * kPeriod> made{};
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = static_cast<char>(' ' + (i * 37) % kPeriod);
    }
    return made;
  }();
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::uint64_t random = mix(stream * 0x100000001b3ULL + number);
  std::array<char, 10> head{};
  for (std::size_t i = 0; i < 8; ++i) head[i] = kDigits[(number >> (28 - 4 * i)) & 15];
  head[8] = kDigits[stream & 15];
  head[9] = ' ';
  out.append(head.data(), head.size());
  out.append(text.data() + random % kPeriod, 49 + (random >> 32) % 81);
  out.push_back('\n');
}

}  // namespace distrun::bench
