// KubernetesEnvironment: what a pod's variables say of the job that it is a part of, and what a
// launcher without flags makes of it.
//
//   JOB_COMPLETION_INDEX   Kubernetes sets it in each pod of an Indexed Job
//   DISTRUN_PODS           the job's completions      \  the manifest sets these: Kubernetes itself
//   DISTRUN_JOB_NAME       its name                    } does not tell a pod
//   DISTRUN_SERVICE        the headless service       /
//   DISTRUN_JOB_UID        its unique id; of use if a job of that name may run again
//
// The pods meet at pod 0, which the headless service makes known as JOB-0.SERVICE. What the user
// says wins, each option for itself. Half of these variables is an error that names the others;
// none of ours means a job of this pod alone. Pure.
#pragma once

#include "launcher/environment.h"
#include "launcher/options.h"
#include "runtime/base/result.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct KubernetesPod {
  int index = 0;
  int pods = 1;
  std::string job;
  std::string service;
  std::string uid;  // empty: not told
  bool operator==(const KubernetesPod&) const = default;
};

struct KubernetesEnvironment {
  std::optional<KubernetesPod> pod;
  std::optional<int> lone_index;  // a pod of an Indexed Job of which nothing else is told
};

// An error names the variable and what belongs in the manifest.
Result<KubernetesEnvironment> read_kubernetes_environment(const Environment& environment);

// The name under which the job's pods meet; another one when the job is made anew.
std::string rendezvous_id(const KubernetesPod& pod);
std::string meeting_host(const KubernetesPod& pod);

struct KubernetesPlace {
  Options options;
  std::vector<std::string> notes;  // for -v
};

// `options` is what `arguments` and `environment` alone gave.
Result<KubernetesPlace> place_in_kubernetes(const Options& options,
                                            std::span<const std::string_view> arguments,
                                            const Environment& environment);

}  // namespace distrun::launcher
