// The worker as four real processes with a real store, started again after one was killed.
#include "tests/runtime/worker/store_server_thread.h"
#include "tests/support/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

namespace {

using distrun::test::Background;
using distrun::test::RunOptions;
using distrun::test::TempFolder;
using ::testing::HasSubstr;

struct Attempt {
  std::vector<int> statuses;
  std::string out;  // of rank 0
  std::string err;  // of all
};

// What a launcher does for one attempt: a fresh store, every rank with its variables.
Attempt attempt(int ranks, int restarts, const std::vector<std::string>& arguments) {
  distrun::testing::StoreServerThread store;
  std::vector<std::unique_ptr<Background>> workers;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> argv{DIGITS, "--data", DIGITS_DATA, "--steps", "120"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    RunOptions options;
    options.environment = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(ranks)},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(store.port())},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"TORCHELASTIC_RESTART_COUNT", std::to_string(restarts)}};
    workers.push_back(std::make_unique<Background>(argv, options));
  }
  Attempt result;
  for (auto& worker : workers) {
    result.statuses.push_back(worker->wait(std::chrono::seconds(60)).value_or(-1));
    result.err += worker->err();
  }
  result.out = workers[0]->out();
  return result;
}

std::string last_line(const std::string& text) {
  std::istringstream in(text);
  std::string line, last;
  while (std::getline(in, line)) last = line;
  return last;
}

TEST(Digits, EndsWithTheSameNumbersWhetherAWorkerWasKilledOrNot) {
  TempFolder folder;
  const Attempt undisturbed = attempt(4, 0, {"--checkpoint", folder / "a"});
  ASSERT_THAT(undisturbed.statuses, ::testing::Each(0)) << undisturbed.err;

  const std::vector<std::string> killed{"--checkpoint",  folder / "b", "--checkpoint-every", "20",
                                        "--die-at-step", "50",         "--die-rank",         "2"};
  const Attempt first = attempt(4, 0, killed);
  EXPECT_THAT(first.statuses, ::testing::ElementsAre(1, 1, 137, 1));
  EXPECT_THAT(first.err, HasSubstr("rank 2 (pid "));
  const Attempt second = attempt(4, 1, killed);
  EXPECT_THAT(second.statuses, ::testing::Each(0)) << second.err;
  EXPECT_THAT(second.out, ::testing::StartsWith("resumed from step 40\n"));

  const std::string result = last_line(undisturbed.out);
  EXPECT_EQ(last_line(second.out), result);
  double accuracy = 0;
  ASSERT_EQ(1, std::sscanf(result.c_str(), "accuracy %lf", &accuracy)) << result;
  EXPECT_GT(accuracy, 0.95);
}

TEST(Digits, ADamagedCheckpointEndsEveryRankWithTheReason) {
  TempFolder folder;
  { std::ofstream(folder / "c") << "something else"; }
  const Attempt refused = attempt(2, 0, {"--checkpoint", folder / "c"});
  EXPECT_THAT(refused.statuses, ::testing::Each(1));
  EXPECT_THAT(refused.err, HasSubstr("is not one of this program's checkpoints"));
  EXPECT_THAT(refused.err, HasSubstr("left the group: an exception ended its work"));
}

TEST(Digits, RunsAloneWithoutALauncher) {
  RunOptions options;
  options.unset = {"RANK", "WORLD_SIZE"};
  const auto ran =
      distrun::test::run_program({DIGITS, "--data", DIGITS_DATA, "--steps", "20"}, options);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("accuracy 0."));
}

TEST(Digits, AnOptionItDoesNotKnowIsAUsageError) {
  const auto ran = distrun::test::run_program({DIGITS, "--frobnicate", "1"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_EQ(ran.err, "digits: --frobnicate: no such option; see --help\n");
}

}  // namespace
