// Error and Result<T>: how a call tells its caller that it failed.
//
// An Error is a kind (for the program) and one sentence (for the person).  The sentence names the
// thing, the value, and what to do: "--nproc-per-node: not a number: 8x".  Callers write
//
//   auto r = parse(...);
//   if (!r) return r.error();
//
// What the world does (a peer gone, a worker dead) is an event, not an Error.
#pragma once

#include <boost/system/result.hpp>

#include <string>
#include <string_view>

namespace distrun {

enum class Errc {
  invalid_argument,  // the caller or the user gave something that cannot be
  not_found,         // a file, program, key or address does not exist
  io,                // the operating system refused; detail has its words
  timeout,           // a deadline passed
  closed,            // the other side is gone
  limit,             // a documented limit was reached
  protocol,          // bytes that are not what the format says
  unsupported,       // understood, and not to be had here
};

// The name of the kind, as in logs: "invalid_argument".
std::string_view to_string(Errc code);

struct Error {
  Errc code;
  std::string detail;
  bool operator==(const Error&) const = default;
};

// "what: strerror(errno_value)", with code io (ENOENT and ENOTDIR: not_found).
Error os_error(std::string_view what, int errno_value);

template <class T>
using Result = boost::system::result<T, Error>;

}  // namespace distrun
