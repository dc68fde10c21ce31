#include "launcher/program.h"

#include "tests/launcher/support.h"

#include <gmock/gmock.h>

namespace distrun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A working folder with files of all kinds, and a PATH of two folders.  The process stands in it,
// since paths without a leading slash are looked at from there.
class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(root_.path());
    cwd_ = std::filesystem::current_path().string();
    root_.write("bin/python3", "#!/bin/sh\n", true);
    root_.write("bin/solve", "#!/bin/sh\n", true);
    root_.write("bin/data", "not a program");
    root_.write("train.py", "");
    root_.write("tool.py", "#!/usr/bin/env python3\n", true);
    root_.write("model",
                "\x7f"
                "ELF",
                true);
    root_.write("notes", "");
    root_.write("pkg/__main__.py", "");
    environment_["PATH"] = cwd_ + "/bin:/nonexistent";
    python_ = cwd_ + "/bin/python3";
  }
  void TearDown() override { std::filesystem::current_path(before_); }

  Result<launcher::Program> find(const std::string& target) {
    options_.target = target;
    options_.target_arguments = {"--lr", "1"};
    return find_program(options_, environment_, cwd_);
  }
  std::vector<std::string> argv(const std::string& target) {
    auto found = find(target);
    EXPECT_TRUE(found) << found.error().detail;
    if (!found) return {};
    EXPECT_EQ(found->command.display_name, target);
    return found->command.argv;
  }
  Error refusal(const std::string& target) {
    auto found = find(target);
    EXPECT_FALSE(found) << "found " << target;
    return found ? Error{Errc::protocol, ""} : found.error();
  }

  TempFolder root_;
  std::filesystem::path before_;
  std::string cwd_;
  std::string python_;
  Options options_;
  Environment environment_;
};

TEST_F(Program, AScriptRunsUnbufferedInTheInterpreter) {
  EXPECT_THAT(argv("train.py"), ElementsAre(python_, "-u", "train.py", "--lr", "1"));
  EXPECT_EQ(find("train.py")->command.first_script_argument, 2U);
}

TEST_F(Program, APyFileIsAScriptEvenIfItIsExecutable) {
  EXPECT_THAT(argv("tool.py"), ElementsAre(python_, "-u", "tool.py", "--lr", "1"));
}

TEST_F(Program, AModuleIsNotLookedForAsAFile) {
  options_.module = true;
  EXPECT_THAT(argv("pkg.train"), ElementsAre(python_, "-u", "-m", "pkg.train", "--lr", "1"));
  EXPECT_EQ(find("pkg.train")->command.first_script_argument, 3U);
}

TEST_F(Program, AnExecutableFileRunsDirectly) {
  EXPECT_THAT(argv("./model"), ElementsAre("./model", "--lr", "1"));
  EXPECT_THAT(argv(cwd_ + "/model"), ElementsAre(cwd_ + "/model", "--lr", "1"));
  EXPECT_EQ(find("./model")->command.first_script_argument, 1U);
}

TEST_F(Program, AnExecutableFileWithoutASlashIsTheOneOfThisFolder) {
  EXPECT_THAT(argv("model"), ElementsAre("./model", "--lr", "1"));
}

TEST_F(Program, ANameThatIsNoFileHereMayBeAProgramInPath) {
  EXPECT_THAT(argv("solve"), ElementsAre("solve", "--lr", "1"));
}

TEST_F(Program, AFileHereGoesBeforeAProgramInPath) {
  root_.write("solve", "print(1)");
  EXPECT_THAT(argv("solve"), ElementsAre(python_, "-u", "solve", "--lr", "1"));
}

TEST_F(Program, WhatElseExistsIsForTheInterpreter) {
  EXPECT_THAT(argv("notes"), ElementsAre(python_, "-u", "notes", "--lr", "1"));
  EXPECT_THAT(argv("pkg"), ElementsAre(python_, "-u", "pkg", "--lr", "1"));
}

TEST_F(Program, ADashIsTheInterpretersStdin) {
  EXPECT_THAT(argv("-"), ElementsAre(python_, "-u", "-", "--lr", "1"));
}

TEST_F(Program, AMissingScriptIsSaidWithTheFolder) {
  EXPECT_EQ(refusal("trian.py"), (Error{Errc::not_found, "not found: trian.py in " + cwd_}));
  EXPECT_EQ(refusal("./nosuch").code, Errc::not_found);
  EXPECT_EQ(refusal("nosuch").code, Errc::not_found);
  EXPECT_EQ(refusal("").code, Errc::not_found);
}

TEST_F(Program, AScriptIsNotLookedForInPath) {
  root_.write("bin/far.py", "", true);
  EXPECT_EQ(refusal("far.py").code, Errc::not_found);
}

TEST_F(Program, NoPythonTakesAPathOrANameInPath) {
  options_.no_python = true;
  EXPECT_THAT(argv("solve"), ElementsAre("solve", "--lr", "1"));
  EXPECT_THAT(argv("./model"), ElementsAre("./model", "--lr", "1"));
  EXPECT_THAT(argv("./tool.py"), ElementsAre("./tool.py", "--lr", "1"));
}

TEST_F(Program, NoPythonSaysWhatIsWrong) {
  options_.no_python = true;
  EXPECT_EQ(refusal("nosuch"), (Error{Errc::not_found, "not found: nosuch in PATH"}));
  EXPECT_THAT(refusal("model").detail, HasSubstr("write ./model"));
  EXPECT_EQ(refusal("./notes").code, Errc::io);
  EXPECT_EQ(refusal("./pkg").code, Errc::io);
  EXPECT_EQ(refusal("data").code, Errc::io);
  EXPECT_THAT(refusal("./nosuch").detail, HasSubstr("not found: ./nosuch in " + cwd_));
}

TEST_F(Program, RunPathBeatsNoPython) {
  options_.no_python = true;
  options_.run_path = true;
  EXPECT_THAT(argv("./model"), ElementsAre(python_, "-u", "./model", "--lr", "1"));
}

TEST_F(Program, PythonExecGoesBeforeAllElse) {
  root_.write("venv/bin/python", "", true);
  environment_["VIRTUAL_ENV"] = cwd_ + "/venv";
  environment_["PYTHON_EXEC"] = "solve";
  EXPECT_THAT(argv("train.py").front(), cwd_ + "/bin/solve");
}

TEST_F(Program, APythonExecThatDoesNotExistIsAnErrorAndNotAnotherPython) {
  environment_["PYTHON_EXEC"] = "/nonexistent/python";
  EXPECT_EQ(
      refusal("train.py"),
      (Error{Errc::not_found, "not found: the interpreter /nonexistent/python (PYTHON_EXEC)"}));
}

TEST_F(Program, TheActiveEnvironmentGoesBeforePath) {
  root_.write("venv/bin/python", "", true);
  root_.write("conda/bin/python", "", true);
  environment_["CONDA_PREFIX"] = cwd_ + "/conda";
  EXPECT_EQ(argv("train.py").front(), cwd_ + "/conda/bin/python");
  environment_["VIRTUAL_ENV"] = cwd_ + "/venv";
  EXPECT_EQ(argv("train.py").front(), cwd_ + "/venv/bin/python");
}

TEST_F(Program, AnActiveEnvironmentWithoutPythonIsAWarning) {
  environment_["VIRTUAL_ENV"] = cwd_ + "/gone";
  EXPECT_EQ(argv("train.py").front(), python_);
  EXPECT_THAT(find("train.py")->warnings, ElementsAre(HasSubstr("VIRTUAL_ENV names " + cwd_)));
}

TEST_F(Program, PythonIsTakenWhereThereIsNoPython3) {
  std::filesystem::rename("bin/python3", "bin/python");
  EXPECT_EQ(argv("train.py").front(), cwd_ + "/bin/python");
}

TEST_F(Program, NoInterpreterIsAnErrorOnlyIfOneIsNeeded) {
  std::filesystem::remove("bin/python3");
  EXPECT_THAT(refusal("train.py").detail, HasSubstr("not found: a Python interpreter"));
  EXPECT_THAT(argv("./model").front(), "./model");
}

TEST_F(Program, AnEmptyPartOfPathIsTheWorkingFolder) {
  environment_["PATH"] = "/nonexistent:";
  root_.write("python3", "", true);
  EXPECT_EQ(argv("train.py").front(), cwd_ + "/python3");
}

}  // namespace
}  // namespace distrun::launcher
