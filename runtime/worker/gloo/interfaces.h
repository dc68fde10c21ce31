// Which network interface to use, out of those that the user names.
#pragma once

#include <string>

namespace distrun {

// The first of `names` ("eth0,eth1") that is up and has an address.  All of them have to be there:
// one that is not is a slip of the pen, or another machine than was thought of.  Throws
// DistArgumentError, which begins with `variable` and lists what is there.
std::string usable_interface(const std::string& names, const std::string& variable);

// `name` as a numeric address of this machine.  Throws DistArgumentError.
std::string numeric_address(const std::string& name);

}  // namespace distrun
