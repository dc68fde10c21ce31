#include <distrun/error.h>
#include <distrun/join.h>

#include <string>

namespace distrun {

// While join_uneven runs.
struct JoinContext {
  JoinContext(ProcessGroup& of_group, const std::vector<Joinable*>& of_joinables,
              JoinOptions with_options)
      : group(of_group), joinables(of_joinables), options(with_options) {
    for (Joinable* joinable : joinables) joinable->context_ = this;
  }
  ~JoinContext() {
    for (Joinable* joinable : joinables) joinable->context_ = nullptr;
  }
  JoinContext(const JoinContext&) = delete;
  JoinContext& operator=(const JoinContext&) = delete;

  std::int64_t sum(std::int64_t mine) {
    std::vector<std::int64_t> value{mine};
    group.all_reduce(value);
    return value[0];
  }

  // The same two sums on every rank, in each round: who has data, and who has run out of it.
  void has_data() {
    sum(1);
    if (options.throw_on_early_termination && sum(0) != 0)
      throw DistBackendError("join_uneven: a rank has run out of data before this one (rank " +
                             std::to_string(group.rank()) + ")");
  }
  bool others_have_data() {
    if (sum(0) == 0) return false;
    if (options.throw_on_early_termination) {
      sum(1);
      throw DistBackendError("join_uneven: this rank (" + std::to_string(group.rank()) +
                             ") has run out of data before others");
    }
    return true;
  }

  ProcessGroup& group;
  const std::vector<Joinable*>& joinables;
  const JoinOptions options;
};

void join_uneven(ProcessGroup& group, const std::vector<Joinable*>& joinables,
                 const std::function<void()>& body, JoinOptions options) {
  if (joinables.empty()) throw DistArgumentError("join_uneven: no joinables");
  JoinContext context(group, joinables, options);
  body();
  bool is_last = true;
  while (context.others_have_data()) {
    is_last = false;
    for (Joinable* joinable : joinables) joinable->shadow();
  }
  for (Joinable* joinable : joinables) joinable->after(is_last);
}

void notify_join_context(Joinable& joinable) {
  JoinContext* const context = joinable.context_;
  if (context != nullptr && context->joinables.front() == &joinable) context->has_data();
}

}  // namespace distrun
