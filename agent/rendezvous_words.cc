#include "agent/rendezvous_words.h"

#include <algorithm>
#include <chrono>

namespace distrun::agent {
namespace {

std::string whole_seconds(Duration time) {
  const auto up = std::chrono::ceil<std::chrono::seconds>(std::max(time, Duration{}));
  return std::to_string(up.count()) + " s";
}

std::string names(const rendezvous::Waiting& waiting) {
  if (waiting.hosts.empty()) return {};
  std::string list;
  for (const std::string& host : waiting.hosts) list += (list.empty() ? "" : ", ") + host;
  const int more = waiting.present - static_cast<int>(waiting.hosts.size());
  if (more > 0) list += " and " + std::to_string(more) + " more";
  return " (" + list + ")";
}

}  // namespace

std::string words(const rendezvous::Waiting& waiting) {
  const std::string max = std::to_string(waiting.max_nodes);
  std::string text;
  if (waiting.finished) return "the workers here have succeeded; " + waiting.why;
  if (waiting.spare) {
    text = "a spare beside " + max + " nodes: it takes over when one is lost";
  } else {
    text = std::to_string(waiting.present) + " of " + max + " nodes" + names(waiting);
    if (waiting.sealing_in) {
      text += "; sealing at " + max;
      if (waiting.present < waiting.max_nodes) {
        text += ", or with " + std::to_string(waiting.present) + " in " +
                whole_seconds(*waiting.sealing_in);
      }
    } else if (waiting.present < waiting.min_nodes) {
      text += "; " + std::to_string(waiting.min_nodes) + " are needed";
      if (waiting.giving_up_in) text += ", giving up in " + whole_seconds(*waiting.giving_up_in);
    }
  }
  if (!waiting.why.empty()) text += "; " + waiting.why;
  return text;
}

bool same_but_for_time(const rendezvous::Waiting& a, const rendezvous::Waiting& b) {
  return a.present == b.present && a.min_nodes == b.min_nodes && a.max_nodes == b.max_nodes &&
         a.hosts == b.hosts && a.why == b.why && a.spare == b.spare && a.quorum == b.quorum &&
         a.sealing_in.has_value() == b.sealing_in.has_value();
}

}  // namespace distrun::agent
