// Every rank of a group a thread of this process, met through a HashStore.
#pragma once

#include <distrun/process_group.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace distrun::test {

using Body = std::function<void(ProcessGroup& group)>;

// Runs `body` as every rank of a group of its own; returns what each threw ("" if nothing).
inline std::vector<std::string> as_ranks_on(const std::shared_ptr<Store>& store, int size,
                                            const Body& body,
                                            Timeout timeout = std::chrono::seconds(30)) {
  std::vector<std::string> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        const auto group = init_process_group(
            "gloo",
            {.timeout = timeout, .store = store, .rank = rank, .world_size = size, .name = "g"});
        body(*group);
      } catch (const DistError& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& rank : ranks) rank.join();
  return thrown;
}

inline std::vector<std::string> as_ranks(int size, const Body& body,
                                         Timeout timeout = std::chrono::seconds(30)) {
  return as_ranks_on(std::make_shared<HashStore>(), size, body, timeout);
}

inline void expect_nothing_thrown(const std::vector<std::string>& thrown) {
  EXPECT_THAT(thrown, ::testing::Each(""));
}

}  // namespace distrun::test
