// Replay of an event file: its inputs go through a real Coordinator again, at the recorded times,
// and what happens is compared with what happened.  A core is a function of its inputs, so a
// difference means another version of the core, a changed file, or a bug.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>

namespace distrun::test {

struct Replayed {
  std::size_t inputs = 0;
  std::size_t happenings = 0;    // of the file
  std::size_t coordinators = 0;  // how often one began
  std::string unreadable;        // not empty: no events, or not all; a sentence
  std::string difference;        // not empty: the first one, over several lines
  std::string incomplete;        // not empty: from where on nothing could be replayed, and why
};

// `story`: the happenings, one a line, as they are replayed.  Ends at the first difference.
Replayed replay_events(std::istream& events, std::ostream& story);

}  // namespace distrun::test
