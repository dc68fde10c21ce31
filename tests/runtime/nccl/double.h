// A double of the CUDA runtime and of NCCL, for ranks that are threads of one process: memory is
// the host's, a stream is a thread that does one thing after another, an event fires when its
// stream comes to it, and a collective really moves and reduces the data once all its ranks have
// come.
//
// It is as strict as the real ones are not.  Everything that those leave undefined (a call on a
// communicator that is gone or still "in progress", ranks that disagree, a second abort…) is
// written down as a violation, and so is what is never given back.  A test ends by looking that
// there are none.
//
// Calls answer "in progress" for a few polls, as non-blocking communicators do; what was called
// happens only then.  Faults are injected by the names of Api's members.
#pragma once

#include "runtime/nccl/api.h"

#include <chrono>
#include <functional>
#include <latch>
#include <string>
#include <vector>

namespace distrun::nccl::testing {

// The table whose functions are the double's.  A test may take out what a library lacks.
Api& double_api();

// Everything as new: no faults, no violations, all calls counted from 0.
void reset_double();

struct Faults {
  // "all_reduce": the next such call of this device (-1: any) after `skip` others returns this.
  static void fail(const std::string& call, int result, int device = -1, int skip = 0);
  // Steps "join", "enqueue", "derive" or "finalize" of this device stay in progress.
  static void never_ready(const std::string& step, int device);
  // The communicators of this device report an asynchronous error from now on.
  static void asynchronous_error(int device, NcclResult result);
  // All streams say that they are part of a graph that is being made.
  static void capturing(bool on = true);
  // ncclCommAbort does not come back before this.
  static void hold_aborts(std::latch& until);
  // ncclCommAbort takes this long.
  static void slow_abort(std::chrono::milliseconds time);
};

// How many polls a call stays in progress; default 2.
void set_polls(int polls);
void set_devices(int count);
void set_version(int version);
// CUDA as on a machine without a driver.
void set_no_driver();

int calls(const std::string& name);
// How many ids the newest communicator was made from.
int roots_of_newest();
// What high_priority the streams of this device were made with.
std::vector<bool> priorities(int device);
// What went wrong, and what was not given back; empty if all is well.
std::vector<std::string> violations();

// A kernel: runs when the stream comes to it.  Null: the default stream of the calling thread's
// device.
void enqueue(Stream stream, std::function<void()> kernel);
// Waits until all that is enqueued is done; false: it is not within ten seconds.
bool synchronize(Stream stream);

}  // namespace distrun::nccl::testing
