// Every call of a group that moves something, each with memory of its own, for tests of what goes
// wrong in them: all ranks of the group call the same one again and again.
#pragma once

#include <distrun/objects.h>
#include <distrun/process_group.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace distrun::test {

struct CallCase {
  std::string name;
  // `count` floats of each rank; `more` of them on a rank that calls something else than the rest.
  std::function<void(ProcessGroup& group, std::size_t count, std::size_t more,
                     const CallOptions& options)>
      call;
  enum class Kind { collective, between_two, of_objects } kind = Kind::collective;
};

inline constexpr int kVictim = 1;  // the other side of rank 0's sends and receives

namespace detail {

inline std::size_t ranks(const ProcessGroup& group) {
  return static_cast<std::size_t>(group.size());
}
inline std::vector<std::vector<float>> parts(const ProcessGroup& group, std::size_t count) {
  return std::vector<std::vector<float>>(ranks(group), std::vector<float>(count, 1.0F));
}
inline std::vector<Tensor> outs(std::vector<std::vector<float>>& memory) {
  return {memory.begin(), memory.end()};
}
inline std::vector<ConstTensor> ins(const std::vector<std::vector<float>>& memory) {
  return {memory.begin(), memory.end()};
}

// Rank 0 does `zero` with the victim, which does `one`; the others wait for both of them.
using Step =
    std::function<void(ProcessGroup& group, std::vector<float>& data, const CallOptions& options)>;
inline CallCase between(std::string name, Step zero, Step one) {
  return {
      std::move(name),
      [zero = std::move(zero), one = std::move(one)](ProcessGroup& group, std::size_t count,
                                                     std::size_t more, const CallOptions& options) {
        std::vector<float> data(count + more);
        if (group.rank() == 0) zero(group, data, options);
        if (group.rank() == kVictim) one(group, data, options);
        // As the other two, they find out in a later call.
        if (group.rank() > kVictim) group.barrier();
      },
      CallCase::Kind::between_two};
}

}  // namespace detail

inline std::vector<CallCase> collective_calls() {
  using Options = CallOptions;
  using detail::ins, detail::outs, detail::parts, detail::ranks;
  using Group = ProcessGroup;
  using Size = std::size_t;
  constexpr int kRoot = 2;  // of at least three
  return {
      {"broadcast",
       [](Group& group, Size count, Size more, const Options& options) {
         std::vector<float> data(count + more);
         group.broadcast(data, kRoot, options);
       }},
      {"all_reduce",
       [](Group& group, Size count, Size more, const Options& options) {
         std::vector<float> data(count + more);
         group.all_reduce(data, ReduceOp::sum, options);
       }},
      {"all_reduce_async",
       [](Group& group, Size count, Size more, const Options& options) {
         std::vector<float> data(count + more);
         group.all_reduce(data, ReduceOp::sum, {.timeout = options.timeout, .async_op = true})
             .wait();
       }},
      {"reduce",
       [](Group& group, Size count, Size more, const Options& options) {
         std::vector<float> data(count + more);
         group.reduce(data, kRoot, ReduceOp::sum, options);
       }},
      {"all_gather",
       [](Group& group, Size count, Size more, const Options& options) {
         auto all = parts(group, count + more);
         group.all_gather(outs(all), std::vector<float>(count + more), options);
       }},
      {"all_gather_into_tensor",
       [](Group& group, Size count, Size more, const Options& options) {
         std::vector<float> all((count + more) * ranks(group));
         group.all_gather_into_tensor(all, std::vector<float>(count + more), options);
       }},
      {"gather",
       [](Group& group, Size count, Size more, const Options& options) {
         auto all = parts(group, count + more);
         const bool root = group.rank() == kRoot;
         group.gather(std::vector<float>(count + more), root ? outs(all) : std::vector<Tensor>(),
                      kRoot, options);
       }},
      {"scatter",
       [](Group& group, Size count, Size more, const Options& options) {
         const auto all = parts(group, count + more);
         std::vector<float> mine(count + more);
         const bool root = group.rank() == kRoot;
         group.scatter(mine, root ? ins(all) : std::vector<ConstTensor>(), kRoot, options);
       }},
      {"reduce_scatter",
       [](Group& group, Size count, Size more, const Options& options) {
         const auto all = parts(group, count + more);
         std::vector<float> mine(count + more);
         group.reduce_scatter(mine, ins(all), ReduceOp::sum, options);
       }},
      {"reduce_scatter_tensor",
       [](Group& group, Size count, Size more, const Options& options) {
         const std::vector<float> all((count + more) * ranks(group));
         std::vector<float> mine(count + more);
         group.reduce_scatter_tensor(mine, all, ReduceOp::sum, options);
       }},
      {"all_to_all",
       [](Group& group, Size count, Size more, const Options& options) {
         const auto from = parts(group, count + more);
         auto to = parts(group, count + more);
         group.all_to_all(outs(to), ins(from), options);
       }},
      {"all_to_all_single",
       [](Group& group, Size count, Size more, const Options& options) {
         const std::vector<float> from((count + more) * ranks(group));
         std::vector<float> to((count + more) * ranks(group));
         group.all_to_all_single(to, from, {}, {}, options);
       }},
      {"all_reduce_coalesced",
       [](Group& group, Size count, Size more, const Options& options) {
         std::vector<float> a(count), b(1 + more);
         group.all_reduce_coalesced(std::vector<Tensor>{a, b}, ReduceOp::sum, options);
       }},
      {"all_gather_into_tensor_coalesced",
       [](Group& group, Size count, Size more, const Options& options) {
         const std::vector<float> a(count), b(1 + more);
         std::vector<float> all_a(count * ranks(group)), all_b((1 + more) * ranks(group));
         group.all_gather_into_tensor_coalesced(std::vector<Tensor>{all_a, all_b},
                                                std::vector<ConstTensor>{a, b}, options);
       }},
      {"reduce_scatter_tensor_coalesced",
       [](Group& group, Size count, Size more, const Options& options) {
         std::vector<float> a(count), b(1 + more);
         const std::vector<float> all_a(count * ranks(group)), all_b((1 + more) * ranks(group));
         group.reduce_scatter_tensor_coalesced(std::vector<Tensor>{a, b},
                                               std::vector<ConstTensor>{all_a, all_b},
                                               ReduceOp::sum, options);
       }},
      {"barrier",
       [](Group& group, Size, Size more, const Options& options) {
         std::vector<float> data(more);
         if (more > 0)  // there is but one way to call a barrier
           group.all_reduce(data, ReduceOp::sum, options);
         else
           group.barrier(options);
       }},
      {"monitored_barrier",
       [](Group& group, Size, Size more, const Options& options) {
         std::vector<float> data(more);
         if (more > 0)
           group.all_reduce(data, ReduceOp::sum, options);
         else
           group.monitored_barrier(options.timeout);
       }},
  };
}

inline std::vector<CallCase> calls_between_two() {
  using Data = std::vector<float>;
  const auto send_to = [](int peer) {
    return [peer](ProcessGroup& group, Data& data, const CallOptions& options) {
      group.send(data, peer, 0, options);
    };
  };
  const auto receive_from = [](int peer) {
    return [peer](ProcessGroup& group, Data& data, const CallOptions& options) {
      group.recv(data, peer, 0, options);
    };
  };
  const auto batch_with = [](int peer) {
    return [peer](ProcessGroup& group, Data& data, const CallOptions& options) {
      const Data mine(data.size());
      const std::vector<P2POp> both{P2POp::irecv(data, peer), P2POp::isend(mine, peer)};
      std::vector<Work> works = group.batch_isend_irecv(both, options);
      std::exception_ptr failure;  // both use the memory, whatever becomes of one of them
      for (Work& work : works) try {
          work.wait();
        } catch (const DistError&) {
          if (!failure) failure = std::current_exception();
        }
      if (failure) std::rethrow_exception(failure);
    };
  };
  return {
      detail::between("send", send_to(kVictim), receive_from(0)),
      detail::between(
          "isend",
          [](ProcessGroup& group, Data& data, const CallOptions& options) {
            group.isend(data, kVictim, 0, options).wait();
          },
          receive_from(0)),
      detail::between("recv", receive_from(kVictim), send_to(0)),
      detail::between(
          "irecv",
          [](ProcessGroup& group, Data& data, const CallOptions& options) {
            group.irecv(data, kVictim, 0, options).wait();
          },
          send_to(0)),
      detail::between(
          "recv_from_any",
          [](ProcessGroup& group, Data& data, const CallOptions& options) {
            group.recv(data, std::nullopt, 0, options);
          },
          send_to(0)),
      detail::between("batch_isend_irecv", batch_with(kVictim), batch_with(0)),
  };
}

// These take no time of their own: the group's counts.
inline std::vector<CallCase> calls_of_objects() {
  using nlohmann::json;
  const auto object = [](std::size_t count) { return json(std::string(count, 'x')); };
  constexpr auto kKind = CallCase::Kind::of_objects;
  using Group = ProcessGroup;
  return {
      {"all_gather_object",
       [=](Group& group, std::size_t count, std::size_t, const CallOptions&) {
         all_gather_object(group, object(count));
       },
       kKind},
      {"gather_object",
       [=](Group& group, std::size_t count, std::size_t, const CallOptions&) {
         gather_object(group, object(count), 2);
       },
       kKind},
      {"broadcast_object_list",
       [=](Group& group, std::size_t count, std::size_t, const CallOptions&) {
         std::vector<json> list{object(count)};
         broadcast_object_list(group, list, 2);
       },
       kKind},
      {"scatter_object",
       [=](Group& group, std::size_t count, std::size_t, const CallOptions&) {
         const bool root = group.rank() == 2;
         scatter_object(group, std::vector<json>(root ? detail::ranks(group) : 0, object(count)),
                        2);
       },
       kKind},
      {"send_recv_object_list",
       [=](Group& group, std::size_t count, std::size_t, const CallOptions&) {
         std::vector<json> list{object(count)};
         if (group.rank() == 0) send_object_list(group, list, kVictim);
         if (group.rank() == kVictim) recv_object_list(group, list, 0);
         if (group.rank() > kVictim) group.barrier();
       },
       kKind},
  };
}

}  // namespace distrun::test
