#include "launcher/kubernetes_environment.h"

#include "launcher/endpoint.h"
#include "launcher/text.h"

#include <array>

namespace distrun::launcher {
namespace {

constexpr std::string_view kIndex = "JOB_COMPLETION_INDEX";
constexpr std::string_view kPods = "DISTRUN_PODS";
constexpr std::string_view kJob = "DISTRUN_JOB_NAME";
constexpr std::string_view kService = "DISTRUN_SERVICE";
constexpr std::string_view kUid = "DISTRUN_JOB_UID";
constexpr int kPodsMax = 65536;

struct Needed {
  std::string_view name;
  std::string_view what;  // where its value comes from
};
constexpr std::array kNeeded{
    Needed{kIndex, "set by Kubernetes if the Job has completionMode: Indexed"},
    Needed{kPods, "the Job's completions"},
    Needed{kJob, "the Job's name"},
    Needed{kService, "the headless service of the Job's pods, their subdomain"},
};

Error wrong(std::string_view name, std::string_view value, std::string_view what) {
  return Error{Errc::invalid_argument, std::string(name) + ": " + std::string(what) + ": " +
                                           quote(value) +
                                           "; --standalone ignores Kubernetes' variables"};
}

// Set and not empty: a manifest's variable that refers to nothing is empty.
std::string_view value_of(const Environment& environment, std::string_view name) {
  return lookup(environment, name).value_or("");
}

bool is_dns_name(std::string_view text) {
  return parse_host(text) && text.find(':') == text.npos && text.find('%') == text.npos;
}

}  // namespace

Result<KubernetesEnvironment> read_kubernetes_environment(const Environment& environment) {
  KubernetesEnvironment result;
  const std::string_view index = value_of(environment, kIndex);
  const auto number = parse_int(index, 0, kPodsMax - 1);
  const bool any = !value_of(environment, kPods).empty() || !value_of(environment, kJob).empty() ||
                   !value_of(environment, kService).empty();
  if (!any) {
    if (number) result.lone_index = static_cast<int>(*number);
    return result;
  }
  for (const Needed& needed : kNeeded) {
    if (!value_of(environment, needed.name).empty()) continue;
    return Error{Errc::invalid_argument,
                 std::string(needed.name) + " is not set (" + std::string(needed.what) +
                     "), though others of its kind are; docs/kubernetes.md has the manifest, "
                     "--standalone ignores them"};
  }
  const std::string_view pods = value_of(environment, kPods);
  const auto count = parse_int(pods, 1, kPodsMax);
  if (!count) return wrong(kPods, pods, "not a number of pods");
  if (!number || *number >= *count) {
    return wrong(kIndex, index,
                 "not below " + std::string(kPods) + " (" + std::to_string(*count) +
                     "), which has to be the Job's completions");
  }
  KubernetesPod pod;
  pod.index = static_cast<int>(*number);
  pod.pods = static_cast<int>(*count);
  pod.job = value_of(environment, kJob);
  pod.service = value_of(environment, kService);
  pod.uid = value_of(environment, kUid);
  if (!is_dns_name(pod.job)) return wrong(kJob, pod.job, "not the name of a Job");
  if (!is_dns_name(pod.service)) return wrong(kService, pod.service, "not the name of a service");
  if (pod.uid.find('/') != std::string::npos || pod.uid.size() > 64) {
    return wrong(kUid, pod.uid, "not a unique id");
  }
  result.pod = std::move(pod);
  return result;
}

std::string rendezvous_id(const KubernetesPod& pod) {
  return "k8s-" + pod.job + (pod.uid.empty() ? "" : "-" + pod.uid);
}

std::string meeting_host(const KubernetesPod& pod) {
  return pod.job + "-0." + pod.service;
}

Result<KubernetesPlace> place_in_kubernetes(const Options& options,
                                            std::span<const std::string_view> arguments,
                                            const Environment& environment) {
  KubernetesPlace place{options, {}};
  if (options.standalone) return place;
  const auto kubernetes = read_kubernetes_environment(environment);
  if (!kubernetes) return kubernetes.error();
  if (kubernetes->lone_index) {
    place.notes.push_back("pod " + std::to_string(*kubernetes->lone_index) +
                          " of an Indexed Job, and a job of its own; docs/kubernetes.md tells how "
                          "its pods become one");
  }
  if (!kubernetes->pod) return place;
  const KubernetesPod& pod = *kubernetes->pod;

  const bool says_where = options.endpoint.has_value() || options.master_addr.has_value();
  // As PET_ variables: what was said on the command line, or in such a variable, wins.
  Environment taken = environment;
  taken.emplace("PET_NNODES", std::to_string(pod.pods));
  taken.emplace("PET_RDZV_BACKEND", "c10d");
  taken.emplace("PET_NODE_RANK", std::to_string(pod.index));
  taken.emplace("PET_RDZV_ID", rendezvous_id(pod));
  auto parsed = parse_options(arguments, taken);
  if (!parsed) return parsed.error();
  place.options = std::move(*parsed);
  Options& result = place.options;
  if (result.max_nodes == 1) {  // one pod, or told so: nobody to meet
    place.notes.push_back("pod " + std::to_string(pod.index) + " of Job " + pod.job +
                          ": a job of this pod alone");
    return place;
  }
  // More pods than take part: a spare has no rank until it takes a lost pod's.
  if (!options.node_rank && result.backend == Backend::c10d && pod.index >= result.max_nodes) {
    result.node_rank.reset();
  }
  if (!says_where) {
    result.endpoint = Endpoint{meeting_host(pod), std::nullopt};
    // Its own name may be looked up before the service knows it.
    if (!result.rdzv_conf.is_host) result.rdzv_conf.is_host = pod.index == 0;
  }
  place.notes.push_back(
      "pod " + std::to_string(pod.index) + " of " + std::to_string(pod.pods) + " of Job " +
      pod.job + ", rendezvous " + result.rdzv_id.value_or("none") +
      (result.endpoint ? ", meeting at " + result.endpoint->host : std::string()));
  return place;
}

}  // namespace distrun::launcher
