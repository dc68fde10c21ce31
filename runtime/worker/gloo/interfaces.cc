#include "runtime/worker/gloo/interfaces.h"

#include <distrun/error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <map>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <system_error>

namespace distrun {
namespace {

struct Interface {
  bool up = false;
  std::string address;  // the first one
};

std::string text_of(const sockaddr* address) {
  const bool v4 = address->sa_family == AF_INET;
  const socklen_t size = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = "";
  ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::map<std::string, Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    throw std::system_error(errno, std::generic_category(), "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> held(list, &::freeifaddrs);
  std::map<std::string, Interface> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    Interface& interface = found[one->ifa_name];
    interface.up = interface.up || (one->ifa_flags & IFF_UP) != 0;
    const sockaddr* const address = one->ifa_addr;
    if (address == nullptr || !interface.address.empty()) continue;
    if (address->sa_family == AF_INET || address->sa_family == AF_INET6)
      interface.address = text_of(address);
  }
  return found;
}

std::string why_not(const Interface& interface) {
  if (!interface.up) return "it is down";
  return interface.address.empty() ? "it has no address" : "";
}

std::string describe(const std::map<std::string, Interface>& all) {
  std::string text;
  for (const auto& [name, interface] : all) {
    const std::string problem = why_not(interface);
    text += (text.empty() ? "" : ", ") + name + " (" +
            (problem.empty() ? interface.address : problem) + ")";
  }
  return text;
}

}  // namespace

std::string usable_interface(const std::string& names, const std::string& variable) {
  const auto all = interfaces();
  const auto refuse = [&](const std::string& why) -> DistArgumentError {
    return DistArgumentError(variable + "=" + names + ": " + why + "; there are: " + describe(all));
  };
  std::string first;
  std::string problems;
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t comma = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, comma - at);
    at = comma + 1;
    const auto found = all.find(name);
    if (found == all.end()) throw refuse("no network interface is called \"" + name + "\"");
    const std::string problem = why_not(found->second);
    if (problem.empty() && first.empty()) first = name;
    if (problem.empty()) continue;
    problems.append(problems.empty() ? "" : ", ").append(name).append(": ").append(problem);
  }
  if (first.empty()) throw refuse("none can be used: " + problems);
  return first;
}

std::string numeric_address(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failure = ::getaddrinfo(name.c_str(), nullptr, &hints, &list);
  if (failure != 0)
    throw DistArgumentError("local address \"" + name + "\": " + ::gai_strerror(failure));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(list, &::freeaddrinfo);
  return text_of(list->ai_addr);
}

}  // namespace distrun
