// Flight records as people read them: the verdict, and each rank's last operations.  Pure.
//
//   rank 5 never entered all_reduce #1204 (float32 x 1000, sum) of group dp; ranks 0-4, 6, 7 wait
//   in
//     it (for 12.3 s)
//
//   rank 5  pid 4711  /opt/train  1204 operations
//     NUMBER  GROUP  OPERATION                               STATE      AT            QUEUED  TOOK
//     1203    dp     all_reduce #1203 (float32 x 1000, sum)  completed  09:12:01.123  12 us   1.3
//     ms
#pragma once

#include "runtime/recorder/flight_file.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace distrun::launcher {

// `now`: as in AnalysisOptions.  `last`: so many operations of each rank.  Times of day are in the
// zone of TZ.
std::string flight_table(std::span<const recorder::RankRecord> ranks, std::int64_t now,
                         std::size_t last);

// "train+0x1a2b" for addr2line, if the address lies in the program; else "0x7f...".
std::string call_site(const recorder::RankRecord& rank, std::uint64_t address);

}  // namespace distrun::launcher
