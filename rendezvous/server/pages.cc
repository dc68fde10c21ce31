#include "rendezvous/server/pages.h"

#include "rendezvous/protocol/record_json.h"

#include <array>
#include <string>
#include <vector>

namespace distrun::rendezvous {
namespace {

constexpr std::array<RoundPhase, 6> kPhases{RoundPhase::gathering,  RoundPhase::last_call,
                                            RoundPhase::sealed,     RoundPhase::ended,
                                            RoundPhase::recovering, RoundPhase::over};

// Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/
class Metrics {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " +
             std::string(type) + "\n";
  }
  template <class Number>
  void value(Number number) {
    text_ += name_ + " " + std::to_string(number) + "\n";
  }
  template <class Number>
  void value(std::string_view label, std::string_view held, Number number) {
    text_ += name_ + "{" + std::string(label) + "=\"" + escaped(held) + "\"} " +
             std::to_string(number) + "\n";
  }
  std::string finish() { return std::move(text_); }

 private:
  static std::string escaped(std::string_view held) {
    std::string out;
    for (const char c : held) {
      if (c == '\\' || c == '"') out += '\\';
      if (c == '\n')
        out += "\\n";
      else
        out += c;
    }
    return out;
  }

  std::string name_;
  std::string text_;
};

std::string metrics(const std::vector<RendezvousState>& jobs, const Figures& figures) {
  Metrics out;
  out.family("distrun_jobs", "gauge", "Jobs that the coordinator knows, by phase.");
  for (const RoundPhase phase : kPhases) {
    int count = 0;
    for (const auto& job : jobs) count += job.phase == phase ? 1 : 0;
    out.value("phase", to_string(phase), count);
  }
  const auto of_each_job = [&](auto number) {
    for (const auto& job : jobs) out.value("job", job.job, number(job));
  };
  out.family("distrun_job_members", "gauge", "Nodes that are attached, spares included.");
  of_each_job([](const RendezvousState& job) { return job.members.size(); });
  out.family("distrun_job_nodes", "gauge", "Nodes of the last sealed round.");
  of_each_job([](const RendezvousState& job) { return job.node_count; });
  out.family("distrun_job_round", "gauge", "Number of the last sealed round; -1: none yet.");
  of_each_job([](const RendezvousState& job) { return job.last.generation.value; });
  out.family("distrun_job_restarts_total", "counter", "Restarts after failures.");
  of_each_job([](const RendezvousState& job) { return job.restarts; });

  out.family("distrun_connections", "gauge", "Open connections, by kind.");
  out.value("kind", "agent", figures.agents);
  out.value("kind", "store", figures.store_connections);
  out.value("kind", "other", figures.other_connections);
  out.family("distrun_store_bytes", "gauge", "Memory in use by the store.");
  out.value(figures.store_bytes);
  out.family("distrun_store_bytes_limit", "gauge", "Memory that the store may use.");
  out.value(figures.store_bytes_limit);
  return out.finish();
}

}  // namespace

HttpAnswer page_for(std::string_view target, const Coordinator& coordinator, const Figures& figures,
                    TimePoint now) {
  HttpAnswer answer;
  if (target == "/status") {
    answer.content_type = "application/json";
    answer.body = status_json(coordinator.jobs(), now);
  } else if (target == "/metrics") {
    answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    answer.body = metrics(coordinator.jobs(), figures);
  } else {
    answer.status = 404;
    answer.body = "there is /status and /metrics\n";
  }
  return answer;
}

}  // namespace distrun::rendezvous
