#include "runtime/worker/shm/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>

namespace distrun::shm {
namespace {

using Counts = std::vector<std::uint64_t>;

Call call_of(OpType op, std::uint64_t count = 10) {
  Call call;
  call.op = op;
  call.count = count;
  call.sequence = 4;
  return call;
}

Call with_parts(Call call, const Counts& ins, const Counts& outs) {
  for (const std::uint64_t count : ins) call.ins.push_back({nullptr, count});
  for (const std::uint64_t count : outs) call.outs.push_back({nullptr, count});
  return call;
}

// What the ranks say who make these calls.
struct Ranks {
  explicit Ranks(const std::vector<Call>& calls) {
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      said.push_back(
          {static_cast<int>(rank), fingerprint_of(calls[rank]), Counts(2 * calls.size())});
      write_table(calls[rank], said.back().table);
    }
    for (const Said& one : said) prints.push_back(&one.call);
  }
  std::string difference() const {
    const auto found = compare(said, static_cast<int>(said.size()));
    if (!found) return agreed(prints) || said.size() > 1 ? "" : "undecided";
    EXPECT_FALSE(agreed(prints));
    return std::to_string(found->first) + "/" + std::to_string(found->second) +
           found->text.substr(found->text.rfind(": they differ"));
  }
  std::vector<Said> said;
  std::vector<const Fingerprint*> prints;
};

TEST(ShmFingerprint, EqualCallsOfEveryOperationAgreeAtOnce) {
  for (const OpType op : {OpType::broadcast, OpType::all_reduce, OpType::reduce, OpType::barrier}) {
    const Ranks ranks({call_of(op), call_of(op), call_of(op)});
    EXPECT_TRUE(agreed(ranks.prints));
    EXPECT_EQ(ranks.difference(), "");
  }
}

TEST(ShmFingerprint, WhatAnOperationDoesNotUseIsNotCompared) {
  Call a = call_of(OpType::broadcast), b = a;
  b.factor = 3;
  EXPECT_TRUE(agreed(Ranks({a, b}).prints));
  a = call_of(OpType::barrier), b = a;
  b.dtype = DType::int8;
  b.count = 5;
  EXPECT_TRUE(agreed(Ranks({a, b}).prints));
  a = call_of(OpType::all_reduce), b = a;
  b.root = 1;
  b.factor = 2;  // of premul_sum, each rank's own
  EXPECT_TRUE(agreed(Ranks({a, b}).prints));
}

TEST(ShmFingerprint, EveryFieldIsCompared) {
  const auto change = [](const std::function<void(Call&)>& what) {
    Call other = call_of(OpType::reduce);
    what(other);
    return Ranks({call_of(OpType::reduce), call_of(OpType::reduce), other}).difference();
  };
  const std::string in = "0/2: they differ in ";
  EXPECT_EQ(change([](Call& call) { call.op = OpType::broadcast; }), in + "the operation");
  EXPECT_EQ(change([](Call& call) { call.sequence = 5; }), in + "its number");
  EXPECT_EQ(change([](Call& call) { call.dtype = DType::int8; }), in + "the element type");
  EXPECT_EQ(change([](Call& call) { call.count = 11; }), in + "the count");
  EXPECT_EQ(change([](Call& call) { call.reduce = ReduceOp::min; }), in + "the reduce operation");
  EXPECT_EQ(change([](Call& call) { call.root = 1; }), in + "the root");
}

TEST(ShmFingerprint, OfTensorsThatGoAsOneTheSizesAreCompared) {
  Call a = call_of(OpType::all_reduce), b = a;
  a.layout = 17;
  b.layout = 18;
  EXPECT_EQ(Ranks({a, b}).difference(), "0/1: they differ in the sizes of the tensors");
}

TEST(ShmFingerprint, UnevenPartsAgreeIfAllRanksGiveTheSameSizes) {
  const Counts sizes{1, 0, 3};
  std::vector<Call> calls;
  for (const std::uint64_t own : sizes)
    calls.push_back(with_parts(call_of(OpType::all_gather, own), {}, sizes));
  EXPECT_TRUE(agreed(Ranks(calls).prints));
  calls[1] = with_parts(call_of(OpType::all_gather, 0), {}, {1, 0, 4});
  EXPECT_EQ(Ranks(calls).difference(), "0/1: they differ in the sizes of the parts");
  calls[1] = with_parts(call_of(OpType::all_gather, 0), {}, {0, 1, 3});  // in another order
  EXPECT_EQ(Ranks(calls).difference(), "0/1: they differ in the sizes of the parts");
}

TEST(ShmFingerprint, OfGatherEachRanksSizeIsComparedWithTheRoots) {
  const auto calls = [](const Counts& of_root) {
    return std::vector<Call>{call_of(OpType::gather, 2), call_of(OpType::gather, 3),
                             with_parts(call_of(OpType::gather, 1), {}, of_root)};
  };
  const auto ranks = [&](const Counts& of_root) {
    auto all = calls(of_root);
    for (Call& call : all) call.root = 2;
    return Ranks(all);
  };
  EXPECT_EQ(ranks({2, 3, 1}).difference(), "");
  EXPECT_EQ(
      ranks({2, 5, 1}).difference(),
      "1/2: they differ in the size of the part of rank 1 for rank 2: 3 elements are given, 5 "
      "are expected");
}

TEST(ShmFingerprint, EvenGatherAndScatterAgreeAtOnce) {
  EXPECT_TRUE(
      agreed(Ranks({with_parts(call_of(OpType::gather, 2), {}, {2, 2}), call_of(OpType::gather, 2)})
                 .prints));
  EXPECT_TRUE(agreed(
      Ranks({with_parts(call_of(OpType::scatter, 2), {2, 2}, {}), call_of(OpType::scatter, 2)})
          .prints));
  EXPECT_FALSE(agreed(
      Ranks({with_parts(call_of(OpType::scatter, 2), {2, 2}, {}), call_of(OpType::scatter, 3)})
          .prints));
}

TEST(ShmFingerprint, OfAllToAllEveryPairIsCompared) {
  const auto call = [](const Counts& ins, const Counts& outs) {
    return with_parts(call_of(OpType::all_to_all, 0), ins, outs);
  };
  EXPECT_EQ(Ranks({call({1, 2}, {1, 3}), call({3, 4}, {2, 4})}).difference(), "");
  EXPECT_TRUE(agreed(Ranks({call({2, 2}, {2, 2}), call({2, 2}, {2, 2})}).prints));
  EXPECT_EQ(
      Ranks({call({1, 2}, {1, 3}), call({3, 4}, {9, 4})}).difference(),
      "0/1: they differ in the size of the part of rank 0 for rank 1: 2 elements are given, 9 "
      "are expected");
  // Each by itself even, and still not alike.
  EXPECT_EQ(
      Ranks({call({2, 2}, {2, 2}), call({3, 3}, {3, 3})}).difference(),
      "0/1: they differ in the size of the part of rank 0 for rank 1: 2 elements are given, 3 "
      "are expected");
}

TEST(ShmFingerprint, TheLargestPartCountsInAndOut) {
  EXPECT_EQ(fingerprint_of(with_parts(call_of(OpType::all_to_all, 0), {1, 2}, {1, 3})).largest, 3U);
  EXPECT_EQ(fingerprint_of(with_parts(call_of(OpType::scatter, 2), {2, 7}, {})).largest, 7U);
}

}  // namespace
}  // namespace distrun::shm
