// A RendezvousStory runs one Rendezvous by commands in words, in virtual time, and answers each
// with what was said to whom.  Pings are answered by all who are not told to be silent, and not
// shown.  The commands are listed in tests/scenario/README.md.
#pragma once

#include "rendezvous/core/rendezvous.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace distrun::scenario {

class RendezvousStory {
 public:
  std::string tell(const std::string& line);
  const std::vector<std::string>& broken() const { return broken_; }

 private:
  using Settings = std::map<std::string, std::string>;

  std::string obey(const std::string& verb, const std::vector<std::string>& words,
                   const Settings& settings);
  std::string begin(const Settings& settings);
  std::string join(const std::string& host, const Settings& settings);
  std::string failed(const std::string& host, const std::vector<std::string>& words,
                     const Settings& settings);
  std::string after(Duration time);
  std::string feed(const rendezvous::Event& event);
  rendezvous::SessionId session(const std::string& host) const;

  std::optional<rendezvous::Rendezvous> core_;
  rendezvous::Terms terms_;
  TimePoint now_{std::chrono::hours(1)};
  int last_session_ = 0;
  std::map<std::string, rendezvous::SessionId> sessions_;
  std::map<rendezvous::SessionId, std::string> hosts_;
  std::set<rendezvous::SessionId> silent_;
  std::string hosting_;
  std::vector<std::string> broken_;
};

}  // namespace distrun::scenario
