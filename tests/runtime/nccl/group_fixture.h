// Groups on the double, and the look at the end that nothing was violated and nothing is left.
#pragma once

#include "runtime/nccl/plugin.h"
#include "tests/runtime/nccl/double.h"
#include "tests/runtime/nccl/ranks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace distrun::nccl::testing {

// Quick looks, so that tests are short.
inline const std::vector<std::pair<std::string, std::string>> kQuick = {
    {"watchdog_ms", "5"}, {"store_poll_ms", "10"}, {"diagnosis_ms", "2000"}};

// Waits until the condition holds, for ten seconds at most.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class GroupTest : public ::testing::Test {
 protected:
  void SetUp() override { reset_double(); }
  void TearDown() override {
    // The watchdog may still hold the last operation.
    eventually([] { return violations().empty(); });
    for (const std::string& text : violations()) ADD_FAILURE() << text;
  }

  const drb_backend& backend() { return *backend_over(double_api()); }

  // Makes a group of n ranks, eager unless told otherwise, runs f(rank, group), closes it.
  void with_group(int n, const std::function<void(int rank, TestGroup& group)>& f,
                  GroupSpec spec = {.eager = true, .options = kQuick}) {
    run_ranks(n, [&](int rank) {
      GroupSpec mine = spec;
      mine.rank = rank;
      mine.world_size = n;
      Made made = make_group(backend(), store_, mine);
      ASSERT_TRUE(made.answer.ok()) << made.answer.text;
      f(rank, made.group);
      const Answer closed = made.group.close();
      EXPECT_TRUE(closed.ok()) << closed.text;
    });
  }

  // The calling thread works on this device, as a rank that has set its own.
  static void use_device(int device) { double_api().set_device(device); }

  MemoryStore store_;
};

// The text names all of these.
inline void expect_names(const Answer& answer, std::initializer_list<const char*> words) {
  EXPECT_FALSE(answer.ok());
  for (const char* word : words) {
    EXPECT_NE(answer.text.find(word), std::string::npos) << word << " is not in: " << answer.text;
  }
}

}  // namespace distrun::nccl::testing
