#include "launcher/exit_code.h"
#include "launcher/submit.h"
#include "tests/launcher/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string_view>;

SubmitOptions options(const Words& arguments) {
  const auto submission = parse_submission(arguments);
  EXPECT_TRUE(submission) << (submission ? "" : submission.error().detail);
  return submission ? submission->options : SubmitOptions{};
}

std::string script(const Words& arguments) {
  SubmitOptions o = options(arguments);
  if (o.launcher.empty()) o.launcher = "distrun";
  const auto text = to_batch_script(o);
  return text ? *text : "error: " + text.error().detail;
}

std::string refusal(const Words& arguments) {
  const auto submission = parse_submission(arguments);
  return submission ? script(arguments) : submission.error().detail;
}

TEST(Submit, OptionsEndAtTheProgram) {
  const SubmitOptions o = options({"--nodes=2", "--", "train.py", "--nodes", "7"});
  EXPECT_EQ(o.nodes, 2);
  EXPECT_THAT(o.command, ElementsAre("train.py", "--nodes", "7"));
}

TEST(Submit, WhatItDoesNotKnowGoesThroughBehindSlurm) {
  EXPECT_THAT(script({"--slurm", "--account=physics", "--slurm=--qos=high", "--", "x"}),
              HasSubstr("#SBATCH --account=physics\n#SBATCH --qos=high\n"));
  EXPECT_THAT(refusal({"--account", "physics", "--", "x"}),
              HasSubstr("options of sbatch go behind --slurm="));
}

TEST(Submit, SparesAreNodesOfTheAllocationOnly) {
  const std::string text = script({"--nodes", "4", "--spares", "2", "--", "x"});
  EXPECT_THAT(text, HasSubstr("#SBATCH --nodes=6\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --no-kill\n"));
  EXPECT_THAT(text, HasSubstr(" --nnodes 4:4 "));
}

TEST(Submit, WordsReachTheShellWhole) {
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
  EXPECT_EQ(shell_word("--lr=0.1"), "--lr=0.1");
}

TEST(Submit, ALineForSlurmCannotBeBroken) {
  EXPECT_THAT(refusal({"--partition", "a\nrm -rf x", "--", "x"}), HasSubstr("--partition: no"));
  EXPECT_THAT(refusal({"--slurm", "account", "--", "x"}), HasSubstr("not an option of sbatch"));
}

TEST(Submit, SaysWhatIsMissing) {
  EXPECT_THAT(refusal({"--nodes", "2"}), HasSubstr("nothing to run"));
  EXPECT_THAT(refusal({"--requeue", "--", "x"}), HasSubstr("--requeue: needs --time"));
  EXPECT_THAT(refusal({"--nodes"}), HasSubstr("--nodes: needs a value"));
  EXPECT_THAT(refusal({"--nodes", "0", "--", "x"}), HasSubstr("--nodes: not a whole number"));
  EXPECT_THAT(refusal({"--nods", "1"}), HasSubstr("the nearest is --nodes"));
}

TEST(Submit, AJobIsNotStoppedAsSoonAsItStarts) {
  const auto with = [](std::string_view time, std::string_view notice) {
    return script({"--requeue", "--time", time, "--notice", notice, "--", "x"});
  };
  for (const auto time : {"2", "2:59", "0:02:30", "0-0:2"}) {
    EXPECT_THAT(with(time, "120"), HasSubstr("shorter than --notice, 120 s")) << time;
  }
  for (const auto time : {"3", "3:00", "1:00:00", "1-0", "UNLIMITED", "1-0:0:1"}) {
    EXPECT_THAT(with(time, "120"), HasSubstr("#SBATCH --time=")) << time;
  }
}

TEST(Submit, WaitingIsForOneJobAndItsOwnOutput) {
  for (const auto option : {"--array=1-4", "-a 1-4", "--output=x", "-ox", "--chdir=/x", "-M all"}) {
    EXPECT_THAT(refusal({"--wait", "--slurm", option, "--", "x"}), HasSubstr("--wait: ")) << option;
  }
  EXPECT_THAT(refusal({"--wait", "--slurm=--account=a", "--", "x"}), HasSubstr("--account=a"));
}

TEST(Submit, WhatIsSourcedMayReadUnsetVariables) {
  const std::string text = script({"--setup", "env.sh", "--", "x"});
  EXPECT_LT(text.find("\n. ./env.sh\n"), text.find("\nset -u\n"));
  EXPECT_THAT(text, HasSubstr("[ -r ./env.sh ] || { echo '--setup: cannot be read: env.sh' >&2"));
  EXPECT_THAT(script({"--setup", "/opt/env", "--", "x"}), HasSubstr("\n. /opt/env\n"));
}

TEST(Submit, ReadsAFileAndTheCommandLineWins) {
  const TempFolder folder;
  folder.write("job.json",
               R"({"nodes": 4, "requeue": true, "time": "1:00:00", "slurm": ["--qos=x"],
                   "command": ["train.py", "--lr", "0.1"]})");
  const std::string file = folder.path("job.json");
  const SubmitOptions o = options({"--nodes", "2", "--from", file});
  EXPECT_EQ(o.nodes, 2);
  EXPECT_TRUE(o.requeue);
  EXPECT_EQ(o.time, "1:00:00");
  EXPECT_THAT(o.slurm, ElementsAre("--qos=x"));
  EXPECT_THAT(o.command, ElementsAre("train.py", "--lr", "0.1"));
}

TEST(Submit, AFileWithAnUnknownKeyIsRefused) {
  const TempFolder folder;
  folder.write("job.json", R"({"nods": 4})");
  const std::string file = folder.path("job.json");
  EXPECT_THAT(refusal({"--from", file}), HasSubstr("nods: "));
}

// The templates are what the command writes, so that they are never behind it.
TEST(Submit, TheTemplatesAreItsOwn) {
  const std::vector<std::pair<std::string, Words>> templates{
      {"single-node", {"--nproc-per-node", "auto", "--cpus-per-node", "8", "--time", "1:00:00"}},
      {"multi-node",
       {"--nodes", "2", "--nproc-per-node", "4", "--cpus-per-node", "8", "--time", "1:00:00",
        "--log-dir", "logs"}},
      {"elastic",
       {"--nodes", "2", "--spares", "1", "--nproc-per-node", "4", "--cpus-per-node", "8", "--time",
        "1:00:00", "--max-restarts", "3"}},
      {"preemptible",
       {"--nodes", "2", "--nproc-per-node", "4", "--cpus-per-node", "8", "--time", "1:00:00",
        "--requeue"}},
  };
  for (const auto& [name, words] : templates) {
    Words arguments = words;
    arguments.insert(arguments.end(), {"--", "train.py"});
    const std::string path = source_path("configs/slurm/" + name + ".sbatch");
    if (std::getenv("DISTRUN_REWRITE") != nullptr) std::ofstream(path) << script(arguments);
    EXPECT_EQ(contents(path), script(arguments)) << name;
  }
}

TEST(Submit, TheManualPageAndTheCompletionsHaveEveryOption) {
  const std::string page = contents(source_path("docs/man/distrun-submit.1"));
  const std::string bash = contents(source_path("configs/completions/distrun.bash"));
  const std::string zsh = contents(source_path("configs/completions/_distrun"));
  const std::string fish = contents(source_path("configs/completions/distrun.fish"));
  for (const std::string_view option : submit_option_names()) {
    const std::string name(option);
    std::string dashed = name;
    for (std::size_t at = 0; (at = dashed.find('-', at)) != std::string::npos; at += 2) {
      dashed.replace(at, 1, "\\-");
    }
    EXPECT_NE(bash.find("--" + name), std::string::npos) << name;
    EXPECT_NE(zsh.find("--" + name), std::string::npos) << name;
    if (name == "help") continue;
    EXPECT_NE(page.find("\n.BR \\-\\-" + dashed), std::string::npos) << name;
    EXPECT_NE(fish.find("from submit' -l " + name + " "), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace distrun::launcher
