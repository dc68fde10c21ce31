// What is kept of a stream for the final report: its last bytes, shown as lines on request.  Pure
// but for tail_of_file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace distrun::agent {

inline constexpr std::size_t kTailBytes = 8192;
inline constexpr std::size_t kTailLines = 20;

// The last kTailBytes of all that was appended.
class ByteTail {
 public:
  void append(std::string_view bytes);
  std::string_view bytes() const;
  bool cut() const { return cut_; }  // something came before what is kept

 private:
  std::string kept_;  // grows to twice kTailBytes, then is cut: a memmove now and then
  bool cut_ = false;
};

// One line, fit for a terminal: of what was overwritten with \r only what would be seen is left;
// other unprintable bytes are \xNN; tabs and UTF-8 stay.
std::string printable(std::string_view line);

// At most kTailLines printable lines, oldest first.  `cut`: `bytes` may begin inside a line; that
// line is left out unless it is the only one.
std::vector<std::string> last_lines(std::string_view bytes, bool cut);

// Empty if the file cannot be read.
std::vector<std::string> last_lines_of_file(const std::string& path);

}  // namespace distrun::agent
