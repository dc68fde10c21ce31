#include "launcher/kubernetes_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Environment pod(const std::string& index) {
  return {{"JOB_COMPLETION_INDEX", index},
          {"DISTRUN_PODS", "4"},
          {"DISTRUN_JOB_NAME", "train"},
          {"DISTRUN_SERVICE", "train-pods"}};
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

Result<KubernetesPlace> place(const std::vector<std::string>& words,
                              const Environment& environment) {
  const std::vector<std::string_view> views(words.begin(), words.end());
  const auto options = parse_options(views, environment);
  if (!options) return options.error();
  return place_in_kubernetes(*options, views, environment);
}

std::string why(const Environment& environment) {
  const auto read = read_kubernetes_environment(environment);
  return read ? "it was taken" : read.error().detail;
}

TEST(KubernetesEnvironment, APodOfAnIndexedJobKnowsItsPlace) {
  const auto read = read_kubernetes_environment(with(pod("2"), "DISTRUN_JOB_UID", "u-1"));
  ASSERT_TRUE(read && read->pod);
  EXPECT_EQ(*read->pod, (KubernetesPod{2, 4, "train", "train-pods", "u-1"}));
  EXPECT_EQ(rendezvous_id(*read->pod), "k8s-train-u-1");
  EXPECT_EQ(meeting_host(*read->pod), "train-0.train-pods");
}

TEST(KubernetesEnvironment, OutsideThereIsNothing) {
  const auto read = read_kubernetes_environment({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}});
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->pod);
  EXPECT_FALSE(read->lone_index);
}

TEST(KubernetesEnvironment, AnIndexAloneIsAJobOfThePodAlone) {
  const auto placed = place({"x.py"}, {{"JOB_COMPLETION_INDEX", "3"}});
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->options.max_nodes, 1);
  EXPECT_FALSE(placed->options.endpoint);
  EXPECT_THAT(placed->notes,
              ElementsAre(HasSubstr("pod 3 of an Indexed Job, and a job of its own")));
}

TEST(KubernetesEnvironment, WhatIsMissingIsNamed) {
  EXPECT_EQ(why(without(pod("1"), "DISTRUN_SERVICE")),
            "DISTRUN_SERVICE is not set (the headless service of the Job's pods, their subdomain), "
            "though others of its kind are; docs/kubernetes.md has the manifest, --standalone "
            "ignores them");
  EXPECT_THAT(why(without(pod("1"), "DISTRUN_PODS")),
              HasSubstr("DISTRUN_PODS is not set (the Job's completions)"));
  EXPECT_THAT(why(without(pod("1"), "DISTRUN_JOB_NAME")), HasSubstr("DISTRUN_JOB_NAME is not set"));
  EXPECT_THAT(why(without(pod("1"), "JOB_COMPLETION_INDEX")),
              HasSubstr("JOB_COMPLETION_INDEX is not set (set by Kubernetes if the Job has "
                        "completionMode: Indexed)"));
  EXPECT_THAT(why(with(pod("1"), "DISTRUN_SERVICE", "")), HasSubstr("DISTRUN_SERVICE is not set"));
}

TEST(KubernetesEnvironment, WhatDoesNotFitIsRefusedInWords) {
  EXPECT_EQ(why(pod("4")),
            "JOB_COMPLETION_INDEX: not below DISTRUN_PODS (4), which has to be the Job's "
            "completions: '4'; --standalone ignores Kubernetes' variables");
  EXPECT_THAT(why(pod("x")), HasSubstr("JOB_COMPLETION_INDEX: not below"));
  EXPECT_THAT(why(with(pod("1"), "DISTRUN_PODS", "many")),
              HasSubstr("not a number of pods: 'many'"));
  EXPECT_THAT(why(with(pod("1"), "DISTRUN_JOB_NAME", "a b")), HasSubstr("not the name of a Job"));
  EXPECT_THAT(why(with(pod("1"), "DISTRUN_SERVICE", "a:1")),
              HasSubstr("not the name of a service"));
  EXPECT_THAT(why(with(pod("1"), "DISTRUN_JOB_UID", "a/b")), HasSubstr("not a unique id"));
}

TEST(KubernetesPlace, NoFlagsAreNeeded) {
  const auto placed = place({"x.py"}, pod("2"));
  ASSERT_TRUE(placed);
  const Options& options = placed->options;
  EXPECT_EQ(options.min_nodes, 4);
  EXPECT_EQ(options.max_nodes, 4);
  EXPECT_EQ(options.node_rank, 2);
  EXPECT_EQ(options.backend, Backend::c10d);
  EXPECT_EQ(options.rdzv_id, "k8s-train");
  EXPECT_EQ(options.endpoint, (Endpoint{"train-0.train-pods", std::nullopt}));
  EXPECT_EQ(options.rdzv_conf.is_host, false);
  EXPECT_EQ(place({"x.py"}, pod("0"))->options.rdzv_conf.is_host, true);
}

TEST(KubernetesPlace, WhatTheUserSaysWins) {
  const auto placed = place({"--nnodes", "2:3", "--rdzv-id", "mine", "x.py"},
                            with(pod("3"), "PET_RDZV_ENDPOINT", "distrund:29400"));
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->options.min_nodes, 2);
  EXPECT_EQ(placed->options.max_nodes, 3);
  EXPECT_EQ(placed->options.rdzv_id, "mine");
  EXPECT_EQ(placed->options.endpoint, (Endpoint{"distrund", 29400}));
  EXPECT_FALSE(placed->options.rdzv_conf.is_host);
  EXPECT_FALSE(placed->options.node_rank) << "the fourth of three is a spare";
}

TEST(KubernetesPlace, StandaloneAndOnePodMeetNobody) {
  EXPECT_FALSE(
      place({"--standalone", "x.py"}, without(pod("2"), "DISTRUN_PODS"))->options.endpoint);
  const auto one = place({"x.py"}, with(pod("0"), "DISTRUN_PODS", "1"));
  ASSERT_TRUE(one);
  EXPECT_FALSE(one->options.endpoint);
  EXPECT_EQ(one->options.max_nodes, 1);
}

TEST(KubernetesPlace, OutsideNothingChanges) {
  const auto placed = place({"x.py"}, {});
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->options.max_nodes, 1);
  EXPECT_THAT(placed->notes, IsEmpty());
}

}  // namespace
}  // namespace distrun::launcher
