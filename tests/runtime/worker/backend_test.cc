// Groups whose backend is somebody's shared library: NCCL's plug-in on the double of CUDA and NCCL,
// a small one in C, and libraries that are none.
#include "runtime/nccl/plugin.h"
#include "runtime/recorder/analysis.h"
#include "runtime/recorder/flight_file.h"
#include "tests/runtime/nccl/double.h"
#include "tests/support/run_program.h"
#include <distrun/distrun.h>
#include <distrun/objects.h>
#include <distrun/process_group.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace distrun::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
namespace on_double = distrun::nccl::testing;

using Floats = std::vector<float>;

const drb_backend* double_entry(std::uint32_t) {
  return distrun::nccl::backend_over(on_double::double_api());
}

// Before any group: a process opens its flight record once.
const TempFolder& flight_folder() {
  static const TempFolder folder;
  return folder;
}
const bool recording = [] {
  ::setenv("RANK", "0", 1);
  ::setenv("WORLD_SIZE", "1", 1);
  return ::setenv("DISTRUN_FLIGHT_RECORDER_DIR", (flight_folder() / "f").c_str(), 1) == 0;
}();

// Quick looks, so that tests are short.
std::vector<std::pair<std::string, std::string>> quick() {
  return {{"double.watchdog_ms", "5"}, {"double.store_poll_ms", "10"}};
}

struct Wanted {
  std::string backend = "cuda:double";
  Timeout timeout = 20s;
  bool eager = false;
  std::string description = {};
};

// Each rank a thread with a GPU of its own; returns what each threw.
std::vector<std::string> on_gpus(int size, const std::function<void(ProcessGroup&, Device)>& body,
                                 const Wanted& wanted = {}) {
  static const bool registered = (register_backend("double", double_entry), true);
  EXPECT_TRUE(registered);
  on_double::reset_double();
  const auto store = std::make_shared<HashStore>();
  std::vector<std::string> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        const Device gpu{DeviceType::cuda, rank};
        on_double::double_api().set_device(rank);
        GroupOptions options{
            .timeout = wanted.timeout, .store = store, .rank = rank, .world_size = size};
        options.name = "g";
        options.description = wanted.description;
        options.backend_options = quick();
        if (wanted.eager) options.device_id = gpu;
        const auto group = init_process_group(wanted.backend, options);
        body(*group, gpu);
      } catch (const DistError& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& rank : ranks) rank.join();
  return thrown;
}

template <class T>
Tensor on(Device gpu, std::vector<T>& values) {
  return {values.data(), values.size(), kDTypeOf<T>, gpu};
}

// The double's default stream of this thread's device has come to its end.
void finish() {
  ASSERT_TRUE(on_double::synchronize(nullptr));
}

class Backend : public ::testing::Test {
 protected:
  void TearDown() override {
    std::vector<std::string> wrong;
    for (int look = 0; look < 1000; ++look) {
      wrong = on_double::violations();
      if (wrong.empty()) break;
      std::this_thread::sleep_for(5ms);  // the plug-in's threads may still hold the last operation
    }
    EXPECT_THAT(wrong, ::testing::IsEmpty());
  }
};

// Every call; `wait` ends one.
void every_collective(ProcessGroup& group, Device gpu, const CallOptions& options) {
  const auto me = static_cast<float>(group.rank());
  const auto ended = [](Work work) {
    work.wait();
    EXPECT_TRUE(work.is_success());
  };
  Floats a{me, 10};
  ended(group.all_reduce(on(gpu, a), ReduceOp::sum, options));
  EXPECT_EQ(a, (Floats{3, 30}));
  a = {me, 1};
  ended(group.all_reduce(on(gpu, a), Reduction::premul_sum(2), options));
  EXPECT_EQ(a, (Floats{6, 6}));
  std::vector<std::int64_t> whole{group.rank(), 2};
  ended(group.reduce(on(gpu, whole), 1, ReduceOp::max, options));
  EXPECT_EQ(whole.front(), group.rank() == 1 ? 2 : group.rank());
  a = {me, me};
  ended(group.broadcast(on(gpu, a), 2, options));
  EXPECT_EQ(a, (Floats{2, 2}));

  Floats one{me};
  Floats all(3);
  ended(group.all_gather_into_tensor(on(gpu, all), on(gpu, one), options));
  EXPECT_EQ(all, (Floats{0, 1, 2}));
  Floats x(1), y(2), z(3);
  const std::vector<Tensor> uneven{on(gpu, x), on(gpu, y), on(gpu, z)};
  Floats mine(static_cast<std::size_t>(group.rank()) + 1, me);
  ended(group.all_gather(uneven, on(gpu, mine), options));
  EXPECT_EQ(z, (Floats{2, 2, 2}));
  const bool root = group.rank() == 1;
  ended(group.gather(on(gpu, mine), root ? uneven : std::vector<Tensor>{}, 1, options));
  EXPECT_EQ(y, (Floats{1, 1}));

  const std::vector<ConstTensor> parts{on(gpu, x), on(gpu, y), on(gpu, z)};
  Floats part(static_cast<std::size_t>(group.rank()) + 1);
  ended(group.scatter(on(gpu, part), root ? parts : std::vector<ConstTensor>{}, 1, options));
  EXPECT_THAT(part, Each(me));
  ended(group.reduce_scatter(on(gpu, part), parts, ReduceOp::sum, options));
  EXPECT_THAT(part, Each(3 * me));
  ended(group.reduce_scatter_tensor(on(gpu, one), on(gpu, all), ReduceOp::sum, options));
  EXPECT_EQ(one, Floats{3 * me});

  Floats to{10 * me, 10 * me + 1, 10 * me + 2};
  Floats from(3);
  ended(group.all_to_all_single(on(gpu, from), on(gpu, to), {}, {}, options));
  EXPECT_EQ(from, (Floats{me, 10 + me, 20 + me}));
  Floats f0(1), f1(1), f2(1), t0{me}, t1{me}, t2{me};
  ended(group.all_to_all(std::vector<Tensor>{on(gpu, f0), on(gpu, f1), on(gpu, f2)},
                         std::vector<ConstTensor>{on(gpu, t0), on(gpu, t1), on(gpu, t2)}, options));
  EXPECT_EQ(f2, Floats{2});

  Floats c{me}, d{me, me};
  ended(group.all_reduce_coalesced(std::vector<Tensor>{on(gpu, c), on(gpu, d)}, ReduceOp::sum,
                                   options));
  EXPECT_EQ(d, (Floats{3, 3}));
  ended(group.barrier(options));
}

TEST_F(Backend, EveryCollectiveIsCarriedOutThere) {
  EXPECT_THAT(on_gpus(3,
                      [](ProcessGroup& group, Device gpu) {
                        every_collective(group, gpu, {});
                        every_collective(group, gpu, {.async_op = true});
                        EXPECT_EQ(group.backend(), "cuda:double");
                        EXPECT_EQ(group.backend(DeviceType::cuda), "double");
                        EXPECT_EQ(group.backend(DeviceType::cpu), "gloo");
                        EXPECT_EQ(group.backend(DeviceType::rocm), "");
                        group.close();
                      }),
              Each(""));
  // Memory "on the GPU" is the host's here: by Gloo the results would have been the same.
  EXPECT_GE(on_double::calls("all_reduce"), 3 * 2 * 4);
  EXPECT_EQ(on_double::calls("all_gather"), 3 * 2);
  EXPECT_EQ(on_double::calls("reduce_scatter"), 3 * 2);
}

// Which of NCCL's calls it becomes is to be the same on all ranks, and addresses are not.
TEST_F(Backend, ListsThatLieDenselyOnOneRankOnlyAreCarriedOutAlike) {
  EXPECT_THAT(on_gpus(2,
                      [](ProcessGroup& group, Device gpu) {
                        Floats dense(4), a(2), b(2), mine{static_cast<float>(group.rank()), 5};
                        const bool one = group.rank() == 0;
                        const Tensor first(one ? dense.data() : a.data(), 2, DType::float32, gpu);
                        const Tensor second(one ? dense.data() + 2 : b.data(), 2, DType::float32,
                                            gpu);
                        group.all_gather(std::vector{first, second}, on(gpu, mine)).wait();
                        EXPECT_EQ(static_cast<const float*>(second.data())[0], 1);
                        const std::vector<ConstTensor> parts{first, second};
                        group.reduce_scatter(on(gpu, mine), parts).wait();
                        EXPECT_EQ(mine[1], 10);
                        group.close();
                      }),
              Each(""));
}

TEST_F(Backend, AllToAllInPlaceIsRefusedThere) {
  EXPECT_THAT(on_gpus(2,
                      [](ProcessGroup& group, Device gpu) {
                        Floats a{1}, b{2};
                        const std::vector<Tensor> both{on(gpu, a), on(gpu, b)};
                        const std::vector<ConstTensor> same(both.begin(), both.end());
                        EXPECT_THROW(group.all_to_all(both, same), DistUnsupportedError);
                        group.barrier();
                      }),
              Each(""));
}

TEST_F(Backend, BatchesOfOneMeetBatchesOfSeveral) {
  EXPECT_THAT(on_gpus(3,
                      [](ProcessGroup& group, Device gpu) {
                        Floats mine{static_cast<float>(group.rank())}, got{-1};
                        std::vector<P2POp> batch;
                        if (group.rank() < 2)
                          batch.push_back(P2POp::isend(on(gpu, mine), group.rank() + 1));
                        if (group.rank() > 0)
                          batch.push_back(P2POp::irecv(on(gpu, got), group.rank() - 1));
                        for (Work& work : group.batch_isend_irecv(batch)) work.wait();
                        EXPECT_EQ(got[0], static_cast<float>(group.rank() - 1));
                      }),
              Each(""));
}

TEST_F(Backend, TagsThatItDoesNotHaveAreRefused) {
  EXPECT_THAT(on_gpus(2,
                      [](ProcessGroup& group, Device gpu) {
                        Floats data{1};
                        EXPECT_THROW(group.isend(on(gpu, data), 1 - group.rank(), 7),
                                     DistUnsupportedError);
                      }),
              Each(""));
}

TEST_F(Backend, PartsOfACudaGraphAreLeftAlone) {
  EXPECT_THAT(on_gpus(1,
                      [](ProcessGroup& group, Device gpu) {
                        Floats data{1};
                        group.all_reduce(on(gpu, data)).wait();
                        on_double::Faults::capturing();
                        Work work = group.all_reduce(on(gpu, data));
                        for (int look = 0; look < 20; ++look) {
                          EXPECT_FALSE(work.is_completed());
                          std::this_thread::sleep_for(1ms);
                        }
                        EXPECT_EQ(work.exception(), nullptr);
                        on_double::Faults::capturing(false);
                        group.all_reduce(on(gpu, data)).wait();
                        group.close();
                      }),
              Each(""));
}

TEST_F(Backend, ClosingWaitsForACallOfAnotherThread) {
  EXPECT_THAT(on_gpus(2,
                      [](ProcessGroup& group, Device gpu) {
                        Floats data{1};
                        std::thread other([&] {
                          on_double::double_api().set_device(gpu.index);
                          try {
                            group.all_reduce(on(gpu, data));
                          } catch (const DistError&) {
                            // Closed before it began.
                          }
                        });
                        try {
                          group.close(5s);
                        } catch (const DistError&) {
                          // One of the two ranks had closed before it began.
                        }
                        other.join();
                      }),
              Each(""));
}

TEST_F(Backend, SendsAndReceivesGoThere) {
  EXPECT_THAT(on_gpus(2,
                      [](ProcessGroup& group, Device gpu) {
                        Floats mine{static_cast<float>(group.rank())};
                        Floats theirs{-1};
                        const int peer = 1 - group.rank();
                        if (group.rank() == 0) {
                          group.send(on(gpu, mine), peer);
                          EXPECT_EQ(group.recv(on(gpu, theirs), peer), peer);
                        } else {
                          EXPECT_EQ(group.recv(on(gpu, theirs), peer), peer);
                          group.send(on(gpu, mine), peer);
                        }
                        finish();
                        EXPECT_EQ(theirs, Floats{static_cast<float>(peer)});
                        theirs = {-1};
                        const std::vector<P2POp> both{P2POp::isend(on(gpu, mine), peer),
                                                      P2POp::irecv(on(gpu, theirs), peer)};
                        for (Work& work : group.batch_isend_irecv(both)) work.wait();
                        EXPECT_EQ(theirs, Floats{static_cast<float>(peer)});
                        EXPECT_THROW(group.recv(on(gpu, theirs)), DistUnsupportedError);
                        group.close();
                      }),
              Each(""));
}

TEST_F(Backend, MemoryOfTheCpuGoesByGlooInTheSameGroup) {
  EXPECT_THAT(on_gpus(2,
                      [](ProcessGroup& group, Device gpu) {
                        Floats here{1}, there{2};
                        group.all_reduce(here);
                        group.all_reduce(on(gpu, there)).wait();
                        EXPECT_EQ(here, Floats{2});
                        EXPECT_EQ(there, Floats{4});
                        const auto all = all_gather_object(group, group.rank());
                        EXPECT_EQ(all.size(), 2U);
                        const std::vector<Tensor> mixed{Tensor(here), on(gpu, there)};
                        EXPECT_THROW(group.all_reduce_coalesced(mixed), DistArgumentError);
                        EXPECT_THROW(group.all_gather_into_tensor(here, on(gpu, there)),
                                     DistArgumentError);
                      },
                      {.backend = "cpu:gloo,cuda:double"}),
              Each(""));
}

TEST_F(Backend, WhatComesLaterOnAStreamSeesTheResultWithoutAHostThatWaits) {
  EXPECT_THAT(on_gpus(2,
                      [](ProcessGroup& group, Device gpu) {
                        Floats values{1};
                        std::promise<float> seen;
                        // One rank's stream stands still: a host that waits would wait for ever.
                        std::promise<void> go;
                        if (group.rank() == 0)
                          on_double::enqueue(nullptr, [&] { go.get_future().wait(); });
                        Work work =
                            group.all_reduce(on(gpu, values), ReduceOp::sum, {.async_op = true});
                        work.wait_on(nullptr);
                        EXPECT_FALSE(group.rank() == 0 && work.is_completed());
                        on_double::enqueue(nullptr, [&] { seen.set_value(values.front()); });
                        go.set_value();
                        auto result = seen.get_future();
                        ASSERT_EQ(result.wait_for(20s), std::future_status::ready);
                        EXPECT_EQ(result.get(), 2);
                        EXPECT_EQ(work.sequence_number(), 0U);
                        std::promise<void> told;
                        work.then([&](const Work& done) {
                          EXPECT_TRUE(done.is_success());
                          told.set_value();
                        });
                        EXPECT_EQ(told.get_future().wait_for(20s), std::future_status::ready);
                      }),
              Each(""));
}

TEST_F(Backend, GroupsOutOfGroupsHaveTheirOwn) {
  for (const bool eager : {false, true}) {
    EXPECT_THAT(on_gpus(3,
                        [](ProcessGroup& group, Device gpu) {
                          const auto pair = group.new_group({0, 2});
                          EXPECT_EQ(pair == nullptr, group.rank() == 1);
                          Floats values{1};
                          if (pair) {
                            pair->all_reduce(on(gpu, values)).wait();
                            EXPECT_EQ(values, Floats{2});
                            pair->close();
                          }
                          values = {1};
                          group.all_reduce(on(gpu, values)).wait();
                          EXPECT_EQ(values, Floats{3});
                        },
                        {.eager = eager}),
                Each(""))
        << (eager ? "eager" : "lazy");
    EXPECT_EQ(on_double::calls("split") > 0, eager);
  }
}

// The others are inside the backend by then, which hears nothing of a rank that never got there.
TEST_F(Backend, ARankThatCannotMakeItsPartIsNamedToThoseWhoConnect) {
  register_backend("picky", double_entry);
  on_double::reset_double();
  const auto store = std::make_shared<HashStore>();
  std::vector<std::future<std::string>> thrown;
  for (int rank = 0; rank < 3; ++rank)
    thrown.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      on_double::double_api().set_device(rank);
      GroupOptions options{.timeout = 60s, .store = store, .rank = rank, .world_size = 3};
      options.name = "g";
      options.backend_options = {{"picky.watchdog_ms", "5"}, {"picky.store_poll_ms", "10"}};
      if (rank == 1) options.backend_options.emplace_back("picky.no_such_thing", "5");
      options.device_id = Device{DeviceType::cuda, rank};
      try {
        init_process_group("cuda:picky", options);
      } catch (const DistError& error) {
        const auto peer = error.peer_rank();
        return error.what() + (peer ? " [" + std::to_string(*peer) + "]" : std::string());
      }
      return "nothing";
    }));
  EXPECT_THAT(thrown[1].get(), HasSubstr("no_such_thing"));
  for (const int rank : {0, 2})
    EXPECT_THAT(thrown[static_cast<std::size_t>(rank)].get(),
                AllOf(HasSubstr("rank 1"), HasSubstr("no_such_thing"), ::testing::EndsWith("[1]")));
}

TEST_F(Backend, ARankThatDoesNotComeIsNamedAndTheWholeGroupIsOfNoMoreUse) {
  const auto thrown = on_gpus(2, [](ProcessGroup& group, Device gpu) {
    Floats values{1};
    group.all_reduce(on(gpu, values)).wait();
    if (group.rank() == 1) {
      // Comes for another kind of memory, when it is too late.
      std::this_thread::sleep_for(1500ms);
      group.all_reduce(values);
    }
    try {
      group.all_reduce(on(gpu, values), ReduceOp::sum, {.timeout = 300ms, .async_op = true}).wait();
      ADD_FAILURE() << "it ended";
    } catch (const DistError& error) {
      EXPECT_EQ(error.peer_rank(), 1) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("rank 1 has not entered all_reduce"));
    }
    // Through memory of the CPU, too.
    for (int look = 0; look < 2000; ++look) {
      group.all_reduce(values, ReduceOp::sum, {.timeout = 20s});
      std::this_thread::sleep_for(5ms);
    }
  });
  EXPECT_THAT(thrown, Each(HasSubstr("rank 1 has not entered all_reduce")));
}

TEST_F(Backend, AFailureElsewhereInTheGroupEndsWhatWaitsThere) {
  const auto thrown = on_gpus(2, [](ProcessGroup& group, Device gpu) {
    Floats values{1};
    group.all_reduce(on(gpu, values)).wait();
    if (group.rank() == 0) {
      group.all_reduce(on(gpu, values), ReduceOp::sum, {.async_op = true}).wait();
    } else {
      group.abort("it has seen enough");
      group.all_reduce(on(gpu, values));
    }
  });
  EXPECT_THAT(thrown, Each(HasSubstr("it has seen enough")));
}

TEST_F(Backend, ItsOperationsAreInTheFlightRecord) {
  ASSERT_TRUE(recording);
  EXPECT_THAT(on_gpus(1,
                      [](ProcessGroup& group, Device gpu) {
                        Floats values{1, 2};
                        group.all_reduce(on(gpu, values)).wait();
                        group.broadcast(on(gpu, values), 0, {.async_op = true}).wait();
                        group.barrier();
                        group.close();
                      },
                      {.description = "recorded"}),
              Each(""));
  const auto found = recorder::read_flight_folder(flight_folder() / "f");
  ASSERT_TRUE(found) << found.error().detail;
  ASSERT_EQ(found->ranks.size(), 1U);
  std::vector<std::string> told;
  for (const recorder::OpRecord& op : found->ranks.front().ops) {
    const recorder::GroupRecord* const group = found->ranks.front().group(op.group);
    if (group == nullptr || recorder::name_of(*group) != "recorded on cuda") continue;
    EXPECT_EQ(group->backend, "double");
    EXPECT_EQ(op.state, recorder::OpState::completed) << recorder::describe(op);
    told.push_back(recorder::describe(op));
  }
  EXPECT_THAT(told, ::testing::ElementsAre("all_reduce #0 (float32 x 2, sum)",
                                           "broadcast #1 (float32 x 2, root 0)", "barrier #2"));
}

TEST_F(Backend, IsReachedFromCToo) {
  on_double::reset_double();
  on_double::double_api().set_device(0);
  ASSERT_EQ(distrun_register_backend("in_c", nullptr, double_entry), DISTRUN_SUCCESS);
  EXPECT_EQ(distrun_register_backend("in_c", nullptr, nullptr), DISTRUN_INVALID_ARGUMENT);
  distrun_config config = DISTRUN_CONFIG_INITIALIZER;
  config.rank = 0;
  config.world_size = 1;
  config.init_method = "tcp://127.0.0.1:1";  // alone: nobody is to be met there
  config.backend = "cuda:in_c";
  distrun_group group = nullptr;
  ASSERT_EQ(distrun_init(&config, &group), DISTRUN_SUCCESS) << distrun_last_error();
  float values[2] = {1, 2};
  float others[2] = {0, 0};
  const auto sum = [&](float* to, distrun_work* work) {
    return distrun_all_reduce(values, to, 2, DISTRUN_FLOAT32, DISTRUN_SUM, group, work);
  };
  EXPECT_EQ(sum(others, nullptr), DISTRUN_SUCCESS);
  EXPECT_EQ(others[1], 2);  // memory of the CPU, until something else is said
  EXPECT_EQ(distrun_use_device(group, 77, 0, nullptr), DISTRUN_INVALID_ARGUMENT);
  ASSERT_EQ(distrun_use_device(group, DISTRUN_CUDA, 0, nullptr), DISTRUN_SUCCESS);
  EXPECT_EQ(sum(others, nullptr), DISTRUN_UNSUPPORTED);
  EXPECT_THAT(distrun_last_error(), HasSubstr("on cuda:0 a reduction is in place"));
  distrun_work work = nullptr;
  ASSERT_EQ(sum(values, &work), DISTRUN_SUCCESS) << distrun_last_error();
  EXPECT_EQ(distrun_work_wait_on(work, nullptr), DISTRUN_SUCCESS);
  EXPECT_EQ(distrun_work_wait(work, 20'000), DISTRUN_SUCCESS);
  distrun_work_free(work);
  EXPECT_EQ(distrun_barrier(group, nullptr), DISTRUN_SUCCESS);
  EXPECT_EQ(on_double::calls("all_reduce"), 2) << "one of them the barrier's";
  EXPECT_EQ(distrun_close(group, 0), DISTRUN_SUCCESS) << distrun_last_error();
  distrun_free(group);
}

// ---- which backends there are ------------------------------------------------------------------

std::string why_not(const std::string& backend, GroupOptions options = {}) {
  options.store = std::make_shared<HashStore>();
  options.rank = 0;
  options.world_size = 1;
  try {
    init_process_group(backend, options);
  } catch (const DistError& error) {
    return error.what();
  }
  return "";
}

TEST(Backends, ThatAreNotThereAreRefusedInWords) {
  EXPECT_THAT(why_not("nosuch"),
              AllOf(HasSubstr("unknown backend \"nosuch\""), HasSubstr("there are: gloo, nccl")));
  register_backend("gone", std::string("/nowhere/libgone.so"));
  EXPECT_THAT(why_not("gone"),
              AllOf(HasSubstr("\"gone\" cannot be loaded"), HasSubstr("/nowhere/libgone.so")));
  EXPECT_FALSE(is_available("gone"));
  register_backend("libm", std::string("libm.so.6"));
  EXPECT_THAT(why_not("libm"), HasSubstr("libm.so.6 is no backend"));
  register_backend(
      "newer", +[](std::uint32_t) -> const drb_backend* { return nullptr; });
  EXPECT_THAT(why_not("newer"), HasSubstr("does not know this library's ABI 1"));
  register_backend(
      "other", +[](std::uint32_t) -> const drb_backend* {
        static drb_backend table{};
        table.size = sizeof table;
        table.abi = 7;
        return &table;
      });
  EXPECT_THAT(why_not("other"), HasSubstr("was built for another ABI (it says 7"));
  EXPECT_THAT(known_backends(), Contains("other"));
}

TEST(Backends, NamesServeOnce) {
  register_backend("once", double_entry);
  EXPECT_THROW(register_backend("once", double_entry), DistArgumentError);
  EXPECT_THROW(register_backend("gloo", double_entry), DistArgumentError);
  EXPECT_THROW(register_backend("two words", double_entry), DistArgumentError);
  EXPECT_THROW(register_backend("nobody", drb_entry{}), DistArgumentError);
  EXPECT_THROW(register_backend("nothing", std::string()), DistArgumentError);
}

TEST(Backends, OptionsThatMeanNothingAreRefused) {
  register_backend("options", double_entry);
  on_double::reset_double();
  GroupOptions options;
  options.device_id = Device{DeviceType::rocm, 0};
  EXPECT_THAT(why_not("options", options), HasSubstr("device_id rocm:0"));
  EXPECT_THAT(why_not("gloo", options), HasSubstr("device_id rocm:0"));
  options.device_id.reset();
  options.backend_options = {{"nccl.max_ctas", "8"}};
  EXPECT_THAT(why_not("options", options), HasSubstr("\"nccl.max_ctas\" is no setting of"));
  options.backend_options = {{"options.nosuch", "8"}};
  EXPECT_THAT(why_not("options", options), HasSubstr("nosuch"));
  EXPECT_THAT(why_not("cpu:options"), HasSubstr("takes memory of cuda, not of cpu"));
}

TEST(Backends, MemoryThatNoBackendTakesIsRefused) {
  const auto group = init_process_group(
      "gloo",
      {.store = std::make_shared<HashStore>(), .rank = 0, .world_size = 1, .name = "alone"});
  Floats values{1};
  try {
    group->all_reduce(on({DeviceType::cuda, 1}, values));
    ADD_FAILURE() << "it was taken";
  } catch (const DistUnsupportedError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("a tensor on cuda:1"), HasSubstr("\"gloo\"")));
  }
}

TEST(Backends, NcclIsLoadedWhereItIsAndSaysWhyItCannotRun) {
  ::setenv("DISTRUN_NCCL_LIBRARY", "/nowhere/libdistrun_nccl.so", 1);
  EXPECT_THAT(availability("nccl"),
              AllOf(HasSubstr("/nowhere/libdistrun_nccl.so"), HasSubstr("DISTRUN_NCCL_LIBRARY")));
#ifdef DISTRUN_NCCL_PLUGIN
  ::setenv("DISTRUN_NCCL_LIBRARY", DISTRUN_NCCL_PLUGIN, 1);
  // With GPUs it names their number; without, why there are none.
  EXPECT_THAT(availability("nccl"), HasSubstr("NCCL 2."));
#else
  GTEST_SKIP() << "the rest: this build has no libdistrun_nccl.so (no CUDA, or no NCCL)";
#endif
}

TEST(Backends, AThirdPartysInCServesTheCpu) {
  register_backend("by_store", std::string(DISTRUN_STORE_BACKEND));
  EXPECT_THAT(availability("by_store"), HasSubstr("a backend for tests"));
  const auto store = std::make_shared<HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const auto group = init_process_group(
          "cpu:by_store",
          {.timeout = 20s, .store = store, .rank = rank, .world_size = 3, .name = "g"});
      Floats values{static_cast<float>(rank), 1};
      group->all_reduce(values);
      EXPECT_EQ(values, (Floats{3, 3}));
      EXPECT_THROW(group->broadcast(values, 0), DistUnsupportedError);
      group->barrier();  // of which it has none: the engine's
      // What was refused has ended nothing.
      Work work = group->all_reduce(values, ReduceOp::sum, {.async_op = true});
      work.wait();
      EXPECT_EQ(values, (Floats{9, 9}));
      const auto pair = group->new_group({1, 2});
      if (pair) {
        pair->all_reduce(values);
        EXPECT_EQ(values, (Floats{18, 18}));
      }
      if (pair) pair->close();
      group->close();
    });
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace distrun::test
