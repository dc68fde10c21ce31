#include "launcher/hosts/host_list.h"

#include "launcher/endpoint.h"
#include "launcher/text.h"

#include <algorithm>
#include <cctype>
#include <map>

namespace distrun::launcher {
namespace {

constexpr int kWorkersMax = 65536;
constexpr std::size_t kNameMax = 255;

Error wrong(std::string text) {
  return Error{Errc::invalid_argument, std::move(text)};
}

// Only what no shell, no ssh and no terminal can take for something else.
bool is_plain(std::string_view text, std::string_view more) {
  return !text.empty() && text.size() <= kNameMax && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [more](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || more.find(c) != more.npos;
         });
}

Result<int> parse_workers(std::string_view text, std::string_view entry) {
  const auto n = parse_int(text, 1, kWorkersMax);
  if (n && trim(text) == text) return static_cast<int>(*n);
  return wrong(quote(entry) + ": not a number of workers from 1 to " + std::to_string(kWorkersMax) +
               ": " + quote(text));
}

Result<Host> parse_host_entry(std::string_view entry) {
  Host host;
  std::string_view rest = entry;
  if (const std::size_t at = rest.rfind('@'); at != rest.npos) {
    const std::string_view user = rest.substr(0, at);
    if (!is_plain(user, "._-")) return wrong(quote(entry) + ": not a user: " + quote(user));
    host.name = std::string(user) + "@";
    rest.remove_prefix(at + 1);
  }
  std::string_view name = rest;
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    name = rest.substr(1, end == rest.npos ? rest.npos : end - 1);
    const bool address = name.find(':') != name.npos && is_plain(name, ":.%");
    if (end == rest.npos || !address || !parse_host(name)) {
      return wrong(quote(entry) + ": only an IPv6 address stands in brackets");
    }
    rest.remove_prefix(end + 1);
    if (!rest.empty() && rest.front() != ':') {
      return wrong(quote(entry) + ": behind ']' only :WORKERS may follow");
    }
  } else {
    const std::size_t colon = rest.find(':');
    name = rest.substr(0, colon);
    rest.remove_prefix(std::min(colon, rest.size()));
    if (rest.find(':', 1) != rest.npos) {
      return wrong(quote(entry) + ": an IPv6 address stands in brackets: [ADDRESS] or [ADDRESS]:8");
    }
    if (!is_plain(name, "._-")) {
      return wrong(quote(entry) + ": not a host name or address: " + quote(name));
    }
  }
  host.name += name;
  if (rest.empty()) return host;
  auto workers = parse_workers(rest.substr(1), entry);
  if (!workers) return workers.error();
  host.workers = *workers;
  return host;
}

// A line without its comment, not empty: an entry, and perhaps slots=N.
Result<Host> parse_line(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
    words.push_back(line.substr(0, end));
    line = trim(line.substr(end));
  }
  auto host = parse_host_entry(words.front());
  if (!host) return host;
  for (std::size_t i = 1; i < words.size(); ++i) {
    constexpr std::string_view kSlots = "slots=";
    if (!words[i].starts_with(kSlots)) {
      return wrong(quote(words[i]) + ": only slots=N may stand behind the host");
    }
    if (host->workers) return wrong(quote(words[i]) + ": the number of workers is there twice");
    auto workers = parse_workers(words[i].substr(kSlots.size()), words[i]);
    if (!workers) return workers.error();
    host->workers = *workers;
  }
  return host;
}

class Collector {
 public:
  // `where` is for people: "line 3".
  Result<void> add(Host host, std::string where) {
    std::string key(address_of(host));
    std::transform(key.begin(), key.end(), key.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto [known, fresh] = seen_.emplace(key, where);
    if (!fresh) {
      return wrong(quote(key) + " is there twice" +
                   (where.empty() ? "" : " (" + known->second + ", " + where + ")") +
                   "; give it once, with the number of its workers: " + key + ":8");
    }
    if (hosts_.size() == kHostsMax) {
      return Error{Errc::limit, "more than " + std::to_string(kHostsMax) + " hosts"};
    }
    hosts_.push_back(std::move(host));
    return {};
  }
  std::vector<Host> take() { return std::move(hosts_); }

 private:
  std::vector<Host> hosts_;
  std::map<std::string, std::string> seen_;
};

}  // namespace

std::string_view address_of(const Host& host) {
  const std::string_view name = host.name;
  return name.substr(name.rfind('@') + 1);  // npos + 1 is 0
}

Result<std::vector<Host>> parse_hosts(std::string_view text) {
  Collector hosts;
  for (const std::string_view piece : split(text, ',')) {
    const std::string_view entry = trim(piece);
    if (entry.empty()) return wrong("an empty name in the list: " + quote(text));
    auto host = parse_host_entry(entry);
    if (!host) return host.error();
    if (auto added = hosts.add(std::move(*host), {}); !added) return added.error();
  }
  return hosts.take();
}

Result<std::vector<Host>> parse_hostfile(std::string_view text) {
  Collector hosts;
  int number = 0;
  bool any = false;
  for (const std::string_view whole : split(text, '\n')) {
    const std::string where = "line " + std::to_string(++number);
    const std::string_view line = trim(whole.substr(0, whole.find('#')));
    if (line.empty()) continue;
    any = true;
    auto host = parse_line(line);
    if (!host) return Error{host.error().code, where + ": " + host.error().detail};
    if (auto added = hosts.add(std::move(*host), where); !added) return added.error();
  }
  if (!any) return wrong("there is no host in it");
  return hosts.take();
}

}  // namespace distrun::launcher
