// Uneven inputs: ranks that run out of data early go on taking part in the others' collectives.
//
//   struct Averaging : distrun::Joinable { … };    // what issues collectives in each iteration
//   distrun::join_uneven(*group, {&averaging}, [&] {
//     while (auto batch = next()) {
//       distrun::notify_join_context(averaging);   // before its collectives, once an iteration
//       averaging.step(*batch);
//     }
//   });
//
// A rank that has left its loop shadows the others' iterations (Joinable::shadow must issue the
// same collectives) until none is left; then all are told whether they were last.
#pragma once

#include <distrun/process_group.h>

#include <functional>
#include <vector>

namespace distrun {

class Joinable {
 public:
  virtual ~Joinable() = default;
  // In place of one iteration of a rank that still has data: the same collectives.
  virtual void shadow() = 0;
  // After all are done.  `is_last`: this rank never had to shadow; its state is the newest.
  virtual void after(bool is_last) { static_cast<void>(is_last); }

 private:
  friend struct JoinContext;
  friend void notify_join_context(Joinable& joinable);
  struct JoinContext* context_ = nullptr;
};

struct JoinOptions {
  // As soon as one rank has no more data, all throw DistBackendError instead.
  bool throw_on_early_termination = false;
};

// Runs `body` on every rank of the group.  If `body` throws, nothing more is issued.
void join_uneven(ProcessGroup& group, const std::vector<Joinable*>& joinables,
                 const std::function<void()>& body, JoinOptions options = {});

// Once in each iteration, before its first collective, by or for each joinable: the first one's
// call tells the others that this rank still has data.  Outside of join_uneven it does nothing.
void notify_join_context(Joinable& joinable);

}  // namespace distrun
