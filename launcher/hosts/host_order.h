// What the starting side and the distrun on a host say to each other through ssh. Pure: bytes and
// values.
//
//   to the host (its stdin)       frames: KIND SPACE LENGTH ':' BYTES LF
//       distrun 1:1               the version of this protocol; first
//       mark, name, folder        once each; mark: see below
//       token, env, arg           token at most once, the others as often as needed, in order
//       go 0:                     the order is complete: run
//       signal 2:15               from then on, and
//       beat 0:                   every few seconds, so that a silent connection means a dead one
//
//   from the host (its stderr)    a record separator (0x1e), words, and the end of the line; a line
//                                 of a worker's that has no end yet may stand before it
//       distrun PROTOCOL VERSION ADDRESS CLIENT PORT   first of all: who answers, see Greeting
//       MARK log TEXT             a line of distrun's own
//       MARK running                                   the job's own rules hold from here on
//       MARK report TEXT          a line of the report on the first failure, the same on all hosts
//       MARK end STATUS           last of all: the exit status, which ssh cannot tell from its own
//
// All else on stderr, and stdout as a whole, is the workers', byte for byte. They do not know the
// mark, a random word, so they cannot speak in distrun's name.
#pragma once

#include "launcher/environment.h"
#include "runtime/base/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun::launcher {

struct HostOrder {
  std::string mark;
  std::string name;    // of the host, as the starting side calls it
  std::string folder;  // to run in
  std::string token;   // DISTRUN_TOKEN; empty: none
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> arguments;  // of distrun
  bool operator==(const HostOrder&) const = default;
};

struct Frame {
  std::string kind;
  std::string value;
  bool operator==(const Frame&) const = default;
};

std::string to_frame(std::string_view kind, std::string_view value);

// The whole order, "go" included.
std::string to_frames(const HostOrder& order);

// Bytes in, in any pieces; frames out. After an error it only repeats it.
class FrameReader {
 public:
  static constexpr std::size_t kValueMax = std::size_t{1} << 20;

  void feed(std::string_view bytes) { held_ += bytes; }
  Result<std::optional<Frame>> next();  // nullopt: more bytes are needed

 private:
  Error broken(std::string why);

  std::string held_;
  std::size_t begin_ = 0;
  std::optional<Error> error_;
};

// Frames in, the order out.
class OrderReader {
 public:
  static constexpr std::size_t kOrderMax = std::size_t{8} << 20;

  // True: the order is complete. A beat is taken and means nothing.
  Result<bool> take(const Frame& frame);
  HostOrder order() { return std::move(order_); }

 private:
  HostOrder order_;
  std::size_t bytes_ = 0;
  bool begun_ = false;
};

// Who answers. Addresses are those of the ssh connection, as the host sees them; empty: not known.
struct Greeting {
  std::string version;
  std::string address;     // at which the host was reached
  std::string client;      // from where
  std::uint16_t port = 0;  // nobody listens at it there
  bool operator==(const Greeting&) const = default;
};

std::string to_line(const Greeting& greeting);
std::string marked(std::string_view mark, std::string_view kind, std::string_view text);

struct HostWord {
  enum class Kind { greeting, running, log, report, end };
  Kind kind = Kind::log;
  Greeting greeting;
  std::string text;  // of log and report, without a newline
  int status = 0;    // of end
};

// A line of a host's stderr, with or without its newline: what of it is the workers', byte for
// byte, and the word of distrun's that follows, if there is one.
struct HostLine {
  std::string_view workers;
  std::optional<HostWord> word;
};
HostLine parse_host_line(std::string_view line, std::string_view mark);

// Of SSH_CONNECTION, "client port server port".
Greeting greeting_of(const Environment& environment, std::string version, std::uint16_t port);

}  // namespace distrun::launcher
