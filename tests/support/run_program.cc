#include "tests/support/run_program.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <signal.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace distrun::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

pid_t start(const std::vector<std::string>& argv, const RunOptions& options,
            const std::string& folder) {
  std::vector<std::string> arguments = argv;
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  if (options.own_group) ::setpgid(0, 0);
  const int null = ::open("/dev/null", O_RDONLY);
  const int out = ::open((folder + "/out").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  const int err = ::open((folder + "/err").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  for (const int fd : {null, out, err}) ::close(fd);
  for (const std::string& name : options.unset) ::unsetenv(name.c_str());
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execvp(pointers[0], pointers.data());
  ::_exit(127);
}

int as_shell(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TempFolder::TempFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "distrun_test_XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool wait_for(const std::function<bool()>& condition, milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  while (!condition()) {
    if (steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

std::vector<pid_t> processes_with(const std::string& marker) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const std::string folder = entry.path();
    const std::string stat = read_file(folder + "/stat");
    const auto bracket = stat.rfind(')');
    if (bracket == stat.npos || bracket + 2 >= stat.size() || stat[bracket + 2] == 'Z') continue;
    if (read_file(folder + "/environ").find(marker) == std::string::npos &&
        read_file(folder + "/cmdline").find(marker) == std::string::npos) {
      continue;
    }
    found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

Background::Background(const std::vector<std::string>& argv, const RunOptions& options) {
  std::string pattern = std::filesystem::temp_directory_path() / "distrun_run_XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  folder_ = pattern;
  pid_ = start(argv, options, folder_);
  if (pid_ < 0) throw std::runtime_error("fork");
}

Background::~Background() {
  if (!status_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::optional<int> Background::wait(milliseconds limit) {
  if (status_) return status_;
  int status = 0;
  if (wait_for([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit)) {
    status_ = as_shell(status);
  }
  return status_;
}

std::string Background::out() const {
  return read_file(folder_ + "/out");
}
std::string Background::err() const {
  return read_file(folder_ + "/err");
}

Ran run_program(const std::vector<std::string>& argv, const RunOptions& options) {
  const auto begin = steady_clock::now();
  Background program(argv, options);
  if (options.meanwhile) options.meanwhile(program.pid());
  const std::optional<int> status = program.wait(options.limit);
  Ran ran;
  ran.timed_out = !status;
  ran.status = status.value_or(-1);
  ran.out = program.out();
  ran.err = program.err();
  ran.took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
  return ran;
}

}  // namespace distrun::test
