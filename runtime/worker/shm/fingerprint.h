// A call in a few words, for comparing what ranks called before any data is touched.  Pure.
//
// Every rank sees every other's, and comes to the same verdict by itself.  Where parts may differ
// in size, each rank that knows their sizes gives a table of them beside it; they are compared and
// never used for anything else.
#pragma once

#include "runtime/worker/call.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace distrun::shm {

enum class Parts : std::uint8_t {
  none,    // this call, or this rank in it, has none
  even,    // Fingerprint::parts elements each
  uneven,  // see the table; Fingerprint::parts is its hash
};

struct Fingerprint {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint64_t parts = 0;
  std::uint64_t largest = 0;  // of the parts this rank knows of, in elements
  std::int32_t root = 0;      // of an operation without one: Call::layout
  std::uint8_t op = 0;
  std::uint8_t reduce = 0;
  std::uint8_t dtype = 0;
  Parts kind = Parts::none;
  bool operator==(const Fingerprint&) const = default;
};
static_assert(sizeof(Fingerprint) == 40);

Fingerprint fingerprint_of(const Call& call);

// The sizes of the parts of a call with parts: those it gives to each rank, then those it takes
// from each, 0 where there are none.  REQUIRES: table.size() == 2 * ranks
void write_table(const Call& call, std::span<std::uint64_t> table);

// True if these calls, one of each rank, are the same for certain.  False: compare() tells.
bool agreed(std::span<const Fingerprint* const> calls);

// What `rank` said.
struct Said {
  int rank = 0;
  Fingerprint call;
  std::vector<std::uint64_t> table;  // as above; for Parts::even it is made up from `call`
};

struct Difference {
  int first = 0;  // rank
  int second = 0;
  std::string text;
};
// The first difference, the same on whatever rank it is looked for; nullopt: all agree.  `said` is
// in the order of ranks, and may lack some.
std::optional<Difference> compare(std::span<const Said> said, int ranks);

}  // namespace distrun::shm
