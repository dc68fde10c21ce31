// LineSplitter: a stream's bytes, cut so that whole lines can be passed on.  Pure.
//
// feed() gives on, at once and without copying where it can, everything up to the last newline, and
// holds the unfinished rest.  Two things end the holding of a line that stays unfinished: it grows
// past kLongestHeld (it is then passed on in pieces), or the owner calls flush().  A piece that
// does not end in a newline means: the line goes on with the next piece.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace distrun::agent {

class LineSplitter {
 public:
  static constexpr std::size_t kLongestHeld = 65536;

  // `give` is called with pieces in order: void(std::string_view), never empty.
  template <class Give>
  void feed(std::string_view bytes, Give&& give);

  template <class Give>
  void flush(Give&& give);

  bool holding() const { return !held_.empty(); }

 private:
  std::string held_;  // the beginning, or a later part, of one line: no newline in it
};

template <class Give>
void LineSplitter::feed(std::string_view bytes, Give&& give) {
  if (!held_.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t end = newline == bytes.npos ? bytes.size() : newline + 1;
    held_ += bytes.substr(0, end);
    bytes.remove_prefix(end);
    if (newline == bytes.npos && held_.size() <= kLongestHeld) return;
    flush(give);
  }
  const std::size_t last = bytes.rfind('\n');
  if (last != bytes.npos) {
    give(bytes.substr(0, last + 1));
    bytes.remove_prefix(last + 1);
  }
  if (bytes.size() > kLongestHeld) {
    give(bytes);
  } else {
    held_ = bytes;
  }
}

template <class Give>
void LineSplitter::flush(Give&& give) {
  if (held_.empty()) return;
  give(std::string_view(held_));
  held_.clear();
}

}  // namespace distrun::agent
