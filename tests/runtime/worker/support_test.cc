// Every call of a group, over each carrier, with every type and reduction, waited for and not; each
// result is compared with the reference, and each refusal must be one in words.  What comes out of
// it is the page docs/collectives-support.md.
#include "runtime/nccl/core/support.h"

#include "tests/runtime/worker/hosts_store.h"
#include "tests/runtime/worker/ranks.h"
#include "tests/runtime/worker/reference.h"
#include <distrun/objects.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

namespace distrun {
namespace {

using test::Side;
using test::Trial;

constexpr int kSize = 4;

// ---- the calls ---------------------------------------------------------------------------------

using Sides = std::vector<Side>;

struct Row {
  std::string function;
  OpType op;
  // One call of this rank: of one Side; of two, if it takes several tensors.
  std::function<Work(ProcessGroup&, const Sides&, Reduction, const CallOptions&)> call;
  bool uneven = false;  // takes parts of different sizes
  int sides = 1;
  bool sync = true;
  bool async = true;
  std::string note{};  // why it is not both
};

Tensor out(const Side& side) {
  return {side.call.out, side.call.count, side.call.dtype};
}
ConstTensor in(const Side& side) {
  return {side.call.in, side.call.count, side.call.dtype};
}
std::vector<Tensor> outs(const Side& side) {
  std::vector<Tensor> tensors;
  for (const Part& part : side.call.outs)
    tensors.emplace_back(part.data, part.count, side.call.dtype);
  return tensors;
}
std::vector<ConstTensor> ins(const Side& side) {
  std::vector<ConstTensor> tensors;
  for (const ConstPart& part : side.call.ins)
    tensors.emplace_back(part.data, part.count, side.call.dtype);
  return tensors;
}
template <class Parts>
std::vector<std::size_t> counts(const Parts& parts) {
  std::vector<std::size_t> all;
  for (const auto& part : parts) all.push_back(part.count);
  return all;
}
std::size_t total(const std::vector<std::size_t>& parts) {
  std::size_t sum = 0;
  for (const std::size_t part : parts) sum += part;
  return sum;
}
// Memory that holds all parts, one behind the other.
Tensor all_out(const Side& side) {
  return {side.call.outs.front().data, total(counts(side.call.outs)), side.call.dtype};
}
ConstTensor all_in(const Side& side) {
  return {side.call.ins.front().data, total(counts(side.call.ins)), side.call.dtype};
}

std::vector<Row> collective_rows() {
  using Group = ProcessGroup;
  using Options = CallOptions;
  return {
      {"broadcast", OpType::broadcast,
       [](Group& group, const Sides& sides, Reduction, const Options& options) {
         return group.broadcast(out(sides[0]), sides[0].call.root, options);
       }},
      {"all_reduce", OpType::all_reduce,
       [](Group& group, const Sides& sides, Reduction how, const Options& options) {
         return group.all_reduce(out(sides[0]), how, options);
       }},
      {"reduce", OpType::reduce,
       [](Group& group, const Sides& sides, Reduction how, const Options& options) {
         return group.reduce(out(sides[0]), sides[0].call.root, how, options);
       }},
      {"all_gather", OpType::all_gather,
       [](Group& group, const Sides& sides, Reduction, const Options& options) {
         return group.all_gather(outs(sides[0]), in(sides[0]), options);
       },
       true},
      {"all_gather_into_tensor", OpType::all_gather,
       [](Group& group, const Sides& sides, Reduction, const Options& options) {
         return group.all_gather_into_tensor(all_out(sides[0]), in(sides[0]), options);
       }},
      {"gather", OpType::gather,
       [](Group& group, const Sides& sides, Reduction, const Options& options) {
         return group.gather(in(sides[0]), outs(sides[0]), sides[0].call.root, options);
       },
       true},
      {"scatter", OpType::scatter,
       [](Group& group, const Sides& sides, Reduction, const Options& options) {
         return group.scatter(out(sides[0]), ins(sides[0]), sides[0].call.root, options);
       },
       true},
      {"reduce_scatter", OpType::reduce_scatter,
       [](Group& group, const Sides& sides, Reduction how, const Options& options) {
         return group.reduce_scatter(out(sides[0]), ins(sides[0]), how, options);
       },
       true},
      {"reduce_scatter_tensor", OpType::reduce_scatter,
       [](Group& group, const Sides& sides, Reduction how, const Options& options) {
         return group.reduce_scatter_tensor(out(sides[0]), all_in(sides[0]), how, options);
       }},
      {"all_to_all", OpType::all_to_all,
       [](Group& group, const Sides& sides, Reduction, const Options& options) {
         return group.all_to_all(outs(sides[0]), ins(sides[0]), options);
       },
       true},
      {"all_to_all_single", OpType::all_to_all,
       [](Group& group, const Sides& sides, Reduction, const Options& options) {
         const Call& call = sides[0].call;
         return group.all_to_all_single(all_out(sides[0]), all_in(sides[0]), counts(call.outs),
                                        counts(call.ins), options);
       },
       true},
      {"all_reduce_coalesced", OpType::all_reduce,
       [](Group& group, const Sides& sides, Reduction how, const Options& options) {
         const std::vector<Tensor> all{out(sides[0]), out(sides[1])};
         return group.all_reduce_coalesced(all, how, options);
       },
       false, 2},
      {"all_gather_into_tensor_coalesced", OpType::all_gather,
       [](Group& group, const Sides& sides, Reduction, const Options& options) {
         const std::vector<Tensor> to{all_out(sides[0]), all_out(sides[1])};
         const std::vector<ConstTensor> from{in(sides[0]), in(sides[1])};
         return group.all_gather_into_tensor_coalesced(to, from, options);
       },
       false, 2},
      {"reduce_scatter_tensor_coalesced", OpType::reduce_scatter,
       [](Group& group, const Sides& sides, Reduction how, const Options& options) {
         const std::vector<Tensor> to{out(sides[0]), out(sides[1])};
         const std::vector<ConstTensor> from{all_in(sides[0]), all_in(sides[1])};
         return group.reduce_scatter_tensor_coalesced(to, from, how, options);
       },
       false, 2},
  };
}

// Between two ranks: each gives to the next one, and takes from the one before.  Returns the one
// that its data came from.
struct PairRow {
  std::string function;
  std::function<int(ProcessGroup&, const ConstTensor& mine, const Tensor& room, int to, int from,
                    int tag)>
      call;
  bool sync;
  bool async;
  std::string note;
};

template <class Send, class Receive>
int one_before_the_other(const ProcessGroup& group, Send send, Receive receive) {
  if (group.rank() == 0) send();  // the others take first, so that nobody waits in a circle
  const int source = receive();
  if (group.rank() != 0) send();
  return source;
}

std::vector<PairRow> pair_rows() {
  using Group = ProcessGroup;
  return {
      {"send, recv",
       [](Group& group, const ConstTensor& mine, const Tensor& room, int to, int from, int tag) {
         return one_before_the_other(
             group, [&] { group.send(mine, to, tag); },
             [&] { return group.recv(room, from, tag); });
       },
       true, false, "they wait; isend and irecv do not"},
      {"recv from any rank",
       [](Group& group, const ConstTensor& mine, const Tensor& room, int to, int, int tag) {
         return one_before_the_other(
             group, [&] { group.send(mine, to, tag); },
             [&] { return group.recv(room, std::nullopt, tag); });
       },
       true, false, "it waits; irecv does not"},
      {"isend, irecv",
       [](Group& group, const ConstTensor& mine, const Tensor& room, int to, int from, int tag) {
         Work sent = group.isend(mine, to, tag);
         Work taken = group.irecv(room, from, tag);
         sent.wait();
         taken.wait();
         return taken.source_rank().value_or(-1);
       },
       false, true, "they do not wait; send and recv do"},
      {"irecv from any rank",
       [](Group& group, const ConstTensor& mine, const Tensor& room, int to, int, int tag) {
         Work taken = group.irecv(room, std::nullopt, tag);
         group.isend(mine, to, tag).wait();
         taken.wait();
         return taken.source_rank().value_or(-1);
       },
       false, true, "it does not wait; recv does"},
      {"batch_isend_irecv",
       [](Group& group, const ConstTensor& mine, const Tensor& room, int to, int from, int tag) {
         const std::vector<P2POp> both{P2POp::irecv(room, from, tag), P2POp::isend(mine, to, tag)};
         std::vector<Work> works = group.batch_isend_irecv(both);
         for (Work& work : works) work.wait();
         return works[0].source_rank().value_or(-1);
       },
       false, true, "it does not wait"},
  };
}

// ---- what came out -----------------------------------------------------------------------------

struct Cell {
  bool sync = false;
  bool async = false;
  std::set<ReduceOp> reductions;  // those that were taken
  bool operator==(const Cell&) const = default;
};

struct Results {
  std::map<std::string, std::map<DType, Cell>> cells;
  std::map<std::string, std::map<DType, std::set<ReduceOp>>> refused;  // by their words
  std::map<std::string, std::string> without_types;                    // "s", "s a"
  bool operator==(const Results&) const = default;
};

// What goes with the agreement; and, once for each type, what is too much for that.
std::vector<std::size_t> counts_for(DType dtype, ReduceOp reduce, bool parts) {
  if (reduce != ReduceOp::sum) return {5};
  return {5, (parts ? 6'000U : 17'000U) / size_of(dtype)};
}

Reduction reduction_of(ReduceOp op, int rank) {
  return op == ReduceOp::premul_sum
             ? Reduction::premul_sum(test::factor_of(static_cast<std::size_t>(rank)))
             : Reduction(op);
}

// One call of it, compared with the reference.  "": well; else the words in which it was refused.
std::string try_it(ProcessGroup& group, const Row& row, const Trial& trial, bool async) {
  std::vector<Trial> trials(static_cast<std::size_t>(row.sides), trial);
  if (row.sides == 2) trials[1].count = 3;
  Sides sides(trials.size());
  for (std::size_t i = 0; i < sides.size(); ++i) test::set_up(sides[i], trials[i], group.rank());
  try {
    Work work =
        row.call(group, sides, reduction_of(trial.reduce, group.rank()), {.async_op = async});
    if (async) work.wait();
    EXPECT_TRUE(work.is_success());
  } catch (const DistArgumentError& error) {
    EXPECT_STRNE(error.what(), "");
    return error.what();
  } catch (const DistUnsupportedError& error) {
    EXPECT_STRNE(error.what(), "");
    return error.what();
  }
  for (std::size_t i = 0; i < sides.size(); ++i) test::check(sides[i], trials[i], group.rank());
  return "";
}

void try_collectives(ProcessGroup& group, Results& results) {
  for (const Row& row : collective_rows())
    for (const DType dtype : test::kAllDTypes)
      for (const ReduceOp reduce : test::kAllReduceOps) {
        if (!test::reduces(row.op) && reduce != ReduceOp::sum) continue;
        Cell& cell = results.cells[row.function][dtype];
        const bool parts =
            row.op != OpType::broadcast && row.op != OpType::all_reduce && row.op != OpType::reduce;
        for (const std::size_t count : counts_for(dtype, reduce, parts))
          for (const bool async : {false, true}) {
            if (async && reduce != ReduceOp::sum) continue;  // what it reduces is done the same way
            const bool rooted = row.op == OpType::broadcast || row.op == OpType::reduce ||
                                row.op == OpType::gather || row.op == OpType::scatter;
            const Trial trial{row.op, dtype, reduce, rooted ? 2 : 0, count, row.uneven, kSize};
            const std::string words = try_it(group, row, trial, async);
            if (words.empty()) {
              (async ? cell.async : cell.sync) = true;
              cell.reductions.insert(reduce);
            } else {
              // Without what was called, and with which type, in front.
              results.refused[words.substr(words.rfind(": ") + 2)][dtype].insert(reduce);
            }
          }
      }
}

void try_pairs(ProcessGroup& group, Results& results) {
  const int to = (group.rank() + 1) % kSize;
  const int from = (group.rank() + kSize - 1) % kSize;
  int tag = 0;
  for (const PairRow& row : pair_rows())
    for (const DType dtype : test::kAllDTypes)
      for (const std::size_t count : counts_for(dtype, ReduceOp::sum, true)) {
        const std::size_t width = size_of(dtype);
        std::vector<std::byte> mine(count * width), room(count * width), expected(count * width);
        const auto fill = [&](std::vector<std::byte>& data, int of) {
          test::put_all(dtype, data.data(), count,
                        [&](std::size_t i) { return test::value_of(dtype, of, i); });
        };
        fill(mine, group.rank());
        fill(expected, from);
        const int source = row.call(group, ConstTensor(mine.data(), count, dtype),
                                    Tensor(room.data(), count, dtype), to, from, tag++);
        EXPECT_EQ(source, from) << row.function;
        EXPECT_EQ(room, expected) << row.function << " of " << to_string(dtype);
        Cell& cell = results.cells[row.function][dtype];
        cell.sync = row.sync;
        cell.async = row.async;
      }
}

void try_without_types(ProcessGroup& group, Results& results) {
  group.barrier();
  Work work = group.barrier({.async_op = true});
  work.wait();
  EXPECT_TRUE(work.is_success());
  results.without_types["barrier"] = "s a";
  group.monitored_barrier();
  results.without_types["monitored_barrier"] = "s";

  using nlohmann::json;
  const json mine{{"rank", group.rank()}, {"text", std::string(20'000, 'x')}};
  const auto of = [&](int rank) {
    json object = mine;
    object["rank"] = rank;
    return object;
  };
  const std::vector<json> all{of(0), of(1), of(2), of(3)};
  EXPECT_EQ(all_gather_object(group, mine), all);
  const bool root = group.rank() == 1;
  EXPECT_EQ(gather_object(group, mine, 1), root ? all : std::vector<json>());
  std::vector<json> list = root ? all : std::vector<json>(kSize);
  broadcast_object_list(group, list, 1);
  EXPECT_EQ(list, all);
  EXPECT_EQ(scatter_object(group, root ? all : std::vector<json>(), 1), mine);
  std::vector<json> taken(1);
  const int source = one_before_the_other(
      group, [&] { send_object_list(group, {mine}, (group.rank() + 1) % kSize); },
      [&] { return recv_object_list(group, taken); });
  EXPECT_EQ(taken[0], of(source));
  for (const char* function : {"all_gather_object", "gather_object", "broadcast_object_list",
                               "scatter_object", "send_object_list, recv_object_list"})
    results.without_types[function] = "s";
}

// `host_of`: on which host each rank believes to be, and what comes of it.
Results results_on(const std::vector<int>& host_of, bool shared_memory, const char* expected) {
  ::setenv("DISTRUN_SHARED_MEMORY", shared_memory ? "1" : "0", 1);
  const auto store = std::make_shared<test::HostsStore>(host_of);
  std::mutex mutex;
  Results of_all;
  bool first = true;
  test::expect_nothing_thrown(test::as_ranks_on(store, kSize, [&](ProcessGroup& group) {
    Results results;
    try_collectives(group, results);
    try_pairs(group, results);
    try_without_types(group, results);
    const std::lock_guard lock(mutex);
    if (std::exchange(first, false)) of_all = results;
    EXPECT_TRUE(results == of_all) << "rank " << group.rank() << " saw something else";
  }));
  ::unsetenv("DISTRUN_SHARED_MEMORY");
  const std::string hosts = store->get("distrun/attempt_0/g/hosts/hosts");
  if (shared_memory && hosts == "0,1,2,3")
    std::printf("ranks share no memory here: that carrier goes untested\n");
  else
    EXPECT_EQ(hosts, expected);
  return of_all;
}

// ---- the page ----------------------------------------------------------------------------------

std::string line(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += (cell.empty() ? "" : " " + cell) + " |";
  return text + "\n";
}

std::string head(std::vector<std::string> titles) {
  std::string text = line(titles);
  for (std::string& title : titles) title = "---";
  std::string rule = line(titles);
  std::erase(rule, ' ');
  return text + rule;
}

std::string names(const std::set<ReduceOp>& ops) {
  std::string text;
  for (const ReduceOp op : ops) text += (text.empty() ? "" : ", ") + std::string(to_string(op));
  return text;
}

std::string text_of(const Cell& cell, bool reduces) {
  std::string text = cell.sync ? "s" : "";
  if (cell.async) text += text.empty() ? "a" : " a";
  if (reduces) text += " " + std::to_string(cell.reductions.size());
  return text;
}

std::string cpu_table(const Results& results) {
  std::vector<std::string> titles{"function"};
  for (const DType dtype : test::kAllDTypes) titles.emplace_back(to_string(dtype));
  titles.emplace_back("why not both");
  std::string text = head(titles);
  const auto add = [&](const std::string& function, bool reduces, bool both,
                       const std::string& note) {
    std::vector<std::string> cells{function};
    for (const auto& [dtype, cell] : results.cells.at(function)) {
      cells.push_back(text_of(cell, reduces));
      EXPECT_FALSE(cells.back().empty()) << function << " of " << to_string(dtype);
      EXPECT_EQ(both, cell.sync && cell.async) << function << " of " << to_string(dtype);
    }
    EXPECT_EQ(both, note.empty()) << function << " has a blank without a reason";
    cells.push_back(note);
    text += line(cells);
  };
  for (const Row& row : collective_rows()) add(row.function, test::reduces(row.op), true, "");
  for (const PairRow& row : pair_rows()) add(row.function, false, false, row.note);
  text += "\n" + head({"function", "", "why not both, and why no types"});
  const std::map<std::string, std::string> notes{
      {"barrier", "it moves nothing"},
      {"monitored_barrier", "it moves nothing, and waits; barrier({.async_op = true}) does not"}};
  for (const auto& [function, how] : results.without_types) {
    const auto note = notes.find(function);
    text += line({function, how,
                  note == notes.end() ? "JSON values of any type; it waits, as PyTorch's do"
                                      : note->second});
  }
  text += "\n" + head({"types", "reductions", "refused, in these words"});
  for (const auto& [words, of] : results.refused) {
    std::string dtypes;
    std::set<ReduceOp> ops;
    for (const auto& [dtype, refused] : of) {
      dtypes += (dtypes.empty() ? "" : ", ") + std::string(to_string(dtype));
      ops.insert(refused.begin(), refused.end());
    }
    text += line({dtypes, names(ops), words});
  }
  return text;
}

nccl::DType nccl_type(DType dtype) {
  return test::with_element(dtype, []<class T>(T) {
    constexpr auto kBits = static_cast<std::uint8_t>(sizeof(T) * 8);
    if constexpr (std::is_same_v<T, bool>)
      return nccl::DType{6, kBits};
    else if constexpr (std::is_same_v<T, bfloat16>)
      return nccl::DType{4, kBits};
    else if constexpr (std::is_same_v<T, std::complex<float>> ||
                       std::is_same_v<T, std::complex<double>>)
      return nccl::DType{5, kBits};
    else if constexpr (std::is_integral_v<T>)
      return nccl::DType{static_cast<std::uint8_t>(std::is_signed_v<T> ? 0 : 1), kBits};
    else
      return nccl::DType{2, kBits};
  });
}

// Of the plug-in's own table: what it would hand to NCCL.
std::string nccl_table() {
  std::vector<std::string> titles{"type", "moved"};
  for (const ReduceOp op : test::kAllReduceOps) titles.emplace_back(to_string(op));
  std::string text = head(titles);
  std::map<std::string, int> reasons;
  for (const DType dtype : test::kAllDTypes) {
    const nccl::DType its = nccl_type(dtype);
    EXPECT_EQ(nccl::to_string(its), to_string(dtype));
    const auto moved = nccl::movement_of(its);
    const auto* native = std::get_if<nccl::Native>(&moved);
    if (native == nullptr) ADD_FAILURE() << to_string(dtype);
    const bool as_is = native != nullptr && native->units == 1;
    std::vector<std::string> cells{std::string(to_string(dtype)), as_is ? "yes" : "as bytes"};
    for (const ReduceOp op : test::kAllReduceOps) {
      const auto answer =
          nccl::reduction_of(nccl::OpKind::all_reduce, static_cast<nccl::ReduceOp>(op), its);
      const auto* no = std::get_if<nccl::Unsupported>(&answer);
      if (no == nullptr) {
        cells.emplace_back("yes");
        continue;
      }
      // Without the reduction and the type.
      std::string kind = no->why.substr(no->why.find(": ") + 2);
      if (const auto at = kind.find(to_string(dtype));
          at != std::string::npos && kind[at - 1] == ' ')
        kind.replace(at, to_string(dtype).size(), "this type");
      const int number =
          reasons.try_emplace(kind, static_cast<int>(reasons.size()) + 1).first->second;
      cells.push_back("no: " + std::to_string(number));
    }
    text += line(cells);
  }
  std::vector<std::string> numbered(reasons.size());
  for (const auto& [why, number] : reasons) numbered[static_cast<std::size_t>(number) - 1] = why;
  text += "\n";
  for (std::size_t i = 0; i < numbered.size(); ++i)
    text += std::to_string(i + 1) + ". " + numbered[i] + "\n";
  return text;
}

std::string page() {
  std::ifstream file(DISTRUN_SUPPORT_PAGE);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The numbers of both enums are the same ones.
static_assert(static_cast<int>(ReduceOp::premul_sum) ==
              static_cast<int>(nccl::ReduceOp::premul_sum));
static_assert(static_cast<int>(ReduceOp::bxor) == static_cast<int>(nccl::ReduceOp::bxor));

TEST(Support, TheTableOfTheCpuIsTrueOverEveryCarrier) {
  const auto start = std::chrono::steady_clock::now();
  const auto say_how_long = [&](const char* what) {
    const auto took = std::chrono::steady_clock::now() - start;
    std::printf("%s, after %ld ms\n", what,
                static_cast<long>(std::chrono::duration_cast<Timeout>(took).count()));
    std::fflush(stdout);
  };
  const Results over_gloo = results_on({0, 0, 0, 0}, false, "0,1,2,3");
  say_how_long("over Gloo");
  const std::string table = cpu_table(over_gloo);
  EXPECT_NE(page().find(table), std::string::npos) << "the page needs:\n" << table;
  const Results in_memory = results_on({0, 0, 0, 0}, true, "0,0,0,0");
  say_how_long("in shared memory");
  EXPECT_TRUE(in_memory == over_gloo) << "in shared memory:\n" << cpu_table(in_memory);
  const Results on_two_levels = results_on({0, 1, 1, 0}, true, "0,1,1,0");
  say_how_long("on two hosts");
  EXPECT_TRUE(on_two_levels == over_gloo) << "on two hosts:\n" << cpu_table(on_two_levels);
}

TEST(Support, TheTableOfNcclIsThatOfThePlugIn) {
  const std::string table = nccl_table();
  EXPECT_NE(page().find(table), std::string::npos) << "the page needs:\n" << table;
}

// There is no memory of a GPU here, so that nobody may look at it.
TEST(Support, ATensorOnAGpuIsRefusedWhereTheGroupHasOnlyTheCpu) {
  test::expect_nothing_thrown(test::as_ranks(2, [](ProcessGroup& group) {
    const Tensor tensor(reinterpret_cast<void*>(0x1000), 4, DType::float32,
                        {.type = DeviceType::cuda, .index = 0});
    const std::vector<Tensor> several{tensor};
    const auto refused = [](const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "taken";
      } catch (const DistArgumentError& error) {
        EXPECT_STRNE(error.what(), "");
      } catch (const DistUnsupportedError& error) {
        EXPECT_STRNE(error.what(), "");
      }
    };
    refused([&] { group.broadcast(tensor, 0); });
    refused([&] { group.all_reduce(tensor); });
    refused([&] { group.all_reduce_coalesced(several); });
    refused([&] { group.send(tensor, 1 - group.rank()); });
    refused([&] { group.irecv(tensor, 1 - group.rank()); });
    group.barrier();
  }));
}

}  // namespace
}  // namespace distrun
