// A worker that learns handwritten digits with all its siblings: every rank takes its share of each
// batch, the gradients are summed over the ranks, rank 0 keeps a checkpoint.  Killed anywhere and
// started again, it ends with the same numbers to the last digit.
#include "apps/digits/checkpoint.h"
#include "apps/digits/images.h"
#include "apps/digits/network.h"
#include "apps/digits/options.h"
#include <distrun/process_group.h>
#include <distrun/worker.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace digits {
namespace {

constexpr std::size_t kBatch = 128;
constexpr float kLearningRate = 0.2f;
constexpr float kMomentum = 0.9f;

std::shared_ptr<distrun::ProcessGroup> join() {
  distrun::GroupOptions options;
  options.timeout = std::chrono::minutes(2);
  if (!distrun::is_launched()) {  // alone: a group of one
    options.store = std::make_shared<distrun::HashStore>();
    options.rank = 0;
    options.world_size = 1;
  }
  return distrun::init_process_group("gloo", options);
}

// From rank 0's checkpoint, or the beginning; the same on every rank.
TrainingState begin(const Options& options, distrun::ProcessGroup& group) {
  TrainingState state{0, initial_parameters(), std::vector<float>(kParameters, 0.0f)};
  if (group.rank() == 0 && !options.checkpoint.empty()) {
    if (auto saved = load_checkpoint(options.checkpoint, kParameters)) {
      state = std::move(*saved);
      std::printf("resumed from step %lld\n", static_cast<long long>(state.step));
    }
  }
  group.broadcast(distrun::Tensor(&state.step, 1, distrun::DType::int64), 0);
  group.broadcast(state.parameters, 0);
  group.broadcast(state.momentum, 0);
  return state;
}

void die_if_told(const Options& options, const TrainingState& state, int rank) {
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const bool first = attempt == nullptr || std::string_view(attempt) == "0";
  if (first && state.step == options.die_at_step && rank == options.die_rank)
    ::kill(::getpid(), SIGKILL);
}

// One step of all ranks together; returns the batch's mean loss.
float step(TrainingState& state, const Images& images, distrun::ProcessGroup& group) {
  const auto batch = batch_at(state.step, images.train.size(), kBatch);
  std::vector<float> gradient(kParameters + 1, 0.0f);  // and the loss, last
  const auto parts = static_cast<std::size_t>(group.size());
  for (auto i = static_cast<std::size_t>(group.rank()); i < batch.size(); i += parts)
    gradient.back() +=
        learn(state.parameters, images.train[batch[i]], std::span(gradient).first(kParameters))
            .loss;
  group.all_reduce(gradient);
  const auto size = static_cast<float>(batch.size());
  for (std::size_t i = 0; i < kParameters; ++i) {
    state.momentum[i] = kMomentum * state.momentum[i] + gradient[i] / size;
    state.parameters[i] -= kLearningRate * state.momentum[i];
  }
  ++state.step;
  return gradient.back() / size;
}

void test(const TrainingState& state, const Images& images, distrun::ProcessGroup& group) {
  std::vector<double> sums(2, 0.0);  // correct, loss
  const auto parts = static_cast<std::size_t>(group.size());
  for (auto i = static_cast<std::size_t>(group.rank()); i < images.test.size(); i += parts) {
    const Outcome outcome = judge(state.parameters, images.test[i]);
    sums[0] += outcome.correct ? 1 : 0;
    sums[1] += static_cast<double>(outcome.loss);
  }
  group.all_reduce(sums);
  const auto count = static_cast<double>(images.test.size());
  if (group.rank() == 0) std::printf("accuracy %.4f loss %.6f\n", sums[0] / count, sums[1] / count);
}

int run(const Options& options) {
  const Images images = read_images(options.data);
  const auto group = join();
  TrainingState state = begin(options, *group);
  while (state.step < options.steps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(options.step_sleep_ms));
    die_if_told(options, state, group->rank());
    const float loss = step(state, images, *group);
    const bool last = state.step == options.steps;
    if (group->rank() != 0) continue;
    if (!options.checkpoint.empty() && (last || state.step % options.checkpoint_every == 0))
      save_checkpoint(options.checkpoint, state);
    if (last || state.step % options.report_every == 0) {
      std::printf("step %lld of %lld loss %.4f\n", static_cast<long long>(state.step),
                  static_cast<long long>(options.steps), static_cast<double>(loss));
      std::fflush(stdout);
    }
  }
  test(state, images, *group);
  group->close();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) {
  digits::Options options;
  try {
    options = digits::parse_options(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: %s\n", error.what());
    return 2;
  }
  if (options.help) {
    std::fputs(digits::kHelp, stdout);
    return EXIT_SUCCESS;
  }
  return distrun::record([&] { return digits::run(options); });
}
