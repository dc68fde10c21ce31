#include "runtime/base/result.h"

#include <cerrno>
#include <system_error>

namespace distrun {

std::string_view to_string(Errc code) {
  switch (code) {
    case Errc::invalid_argument:
      return "invalid_argument";
    case Errc::not_found:
      return "not_found";
    case Errc::io:
      return "io";
    case Errc::timeout:
      return "timeout";
    case Errc::closed:
      return "closed";
    case Errc::limit:
      return "limit";
    case Errc::protocol:
      return "protocol";
    case Errc::unsupported:
      return "unsupported";
  }
  return "?";
}

Error os_error(std::string_view what, int errno_value) {
  const Errc code = errno_value == ENOENT || errno_value == ENOTDIR ? Errc::not_found : Errc::io;
  return Error{code, std::string(what) + ": " + std::generic_category().message(errno_value)};
}

}  // namespace distrun
