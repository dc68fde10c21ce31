#include "agent/process/spawn.h"

#include <boost/asio/detail/throw_error.hpp>  // before Process: its issue 318
#include <boost/process/v2/posix/default_launcher.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace distrun::agent {
namespace {

namespace process = boost::process::v2;

// cpu_set_t ends at 1024, machines do not.
constexpr int kCpusMax = 8 * CPU_SETSIZE;
using CpuMask = std::array<cpu_set_t, 8>;

// What the program was started with.
struct Inherited {
  sigset_t mask{};
  bool pipe_ignored = false;
  bool child_ignored = false;
  rlimit files{};
  bool known = false;
};

Inherited& inherited() {
  static Inherited inherited;
  return inherited;
}

bool is_ignored(int signo) {
  struct sigaction now {};
  return ::sigaction(signo, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// A descriptor handed from one process to another, over a pair of sockets.
union Handed {
  char room[CMSG_SPACE(sizeof(int))] = {};
  cmsghdr align;
};

struct HandedMessage {
  explicit HandedMessage(Handed& handed) {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = handed.room;
    message.msg_controllen = sizeof handed.room;
  }
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
};

bool hand_over(int socket, int descriptor) {
  Handed handed;
  HandedMessage sent(handed);
  cmsghdr* const head = CMSG_FIRSTHDR(&sent.message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  return ::sendmsg(socket, &sent.message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

// -1: none came.
int take_over(int socket) {
  Handed handed;
  HandedMessage received(handed);
  if (::recvmsg(socket, &received.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* const head = CMSG_FIRSTHDR(&received.message);
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
  return descriptor;
}

// Runs between vfork and exec, in the parent's memory: system calls only, nothing that allocates or
// locks.  Leaves behind at which stage it failed.
struct ChildSetup {
  const SpawnRequest& request;
  const CpuMask* cpus;
  pid_t parent;
  int exits;   // the epoll set
  int socket;  // takes the pidfd to the parent
  ExecStage stage = ExecStage::fork;

  template <class Launcher>
  process::error_code on_exec_setup(Launcher&, const process::filesystem::path&,
                                    const char* const*&) {
    stage = ExecStage::pidfd;
    if (!be_watched()) return failed();
    stage = ExecStage::session;
    if (::setsid() < 0) return failed();
    stage = ExecStage::parent_death_signal;
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return failed();
    if (::getppid() != parent)
      ::_exit(127);  // it died before the line above: nobody is left to tell
    stage = ExecStage::signals;
    if (!set_disposition(SIGPIPE, inherited().pipe_ignored)) return failed();
    if (inherited().child_ignored && !set_disposition(SIGCHLD, true)) return failed();
    if (inherited().known)
      ::setrlimit(RLIMIT_NOFILE, &inherited().files);  // lowering a soft limit cannot fail
    stage = ExecStage::cpus;
    if (cpus != nullptr && ::sched_setaffinity(0, sizeof *cpus, cpus->data()) != 0) return failed();
    stage = ExecStage::streams;
    if (!put(request.in, STDIN_FILENO) || !put(request.out, STDOUT_FILENO) ||
        !put(request.err, STDERR_FILENO)) {
      return failed();
    }
    stage = ExecStage::exec;
    if (::sigprocmask(SIG_SETMASK, &inherited().mask, nullptr) != 0) return failed();
    return {};
  }

 private:
  static bool set_disposition(int signo, bool ignored) {
    struct sigaction action {};
    action.sa_handler = ignored ? SIG_IGN : SIG_DFL;
    return ::sigaction(signo, &action, nullptr) == 0;
  }
  // What stays in the set is the open file, which lives on in the parent's descriptor.
  bool be_watched() const {
    const pid_t self = ::getpid();
    const auto own = static_cast<int>(::syscall(SYS_pidfd_open, self, 0));
    if (own < 0) return false;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = static_cast<std::uint64_t>(self);
    return ::epoll_ctl(exits, EPOLL_CTL_ADD, own, &event) == 0 && hand_over(socket, own);
  }
  static process::error_code failed() { return {errno, process::system_category()}; }
  // Our own 0, 1 and 2 are inherited as they are; all other descriptors of ours are close-on-exec.
  static bool put(int from, int to) { return from == to || ::dup2(from, to) == to; }
};

// Boost.Process' launcher with vfork in place of fork: at 64 workers half of the time to start them
// went into copying page tables.  Its own vfork_launcher cannot be used: it lets Asio prepare the
// child (notify_fork) in what is still the parent's memory, and so breaks the parent's reactor.
struct VforkLauncher : process::posix::default_launcher {
  // The child's pid, or -1 and why.
  std::pair<pid_t, int> operator()(const SpawnRequest& request, ChildSetup& setup) {
    const std::vector<std::string> arguments(request.argv.begin() + 1, request.argv.end());
    const char* const* argv = build_argv_(request.argv[0], arguments);
    const process::filesystem::path executable(request.executable);
    env = request.envp;
    volatile int child_errno = 0;
    const pid_t child = ::vfork();
    if (child < 0) return {-1, errno};
    if (child == 0) {
      const process::error_code ec =
          process::posix::detail::on_exec_setup(*this, executable, argv, setup);
      if (ec) {
        child_errno = ec.value();
        ::_exit(127);
      }
      ::execve(executable.c_str(), const_cast<char* const*>(argv), const_cast<char* const*>(env));
      child_errno = errno;
      ::_exit(127);
    }
    if (child_errno == 0) return {child, 0};
    ::waitpid(child, nullptr, 0);  // has ended: vfork returned because of _exit
    return {-1, child_errno};
  }
};

// Both ends are closed with it, and what is on its way between them.
struct Pair {
  Pair() { made = ::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) == 0; }
  ~Pair() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  int ends[2] = {-1, -1};
  bool made = false;
};

}  // namespace

void prepare_process() {
  Inherited& start = inherited();
  ::sigprocmask(SIG_SETMASK, nullptr, &start.mask);
  start.pipe_ignored = is_ignored(SIGPIPE);
  start.child_ignored = is_ignored(SIGCHLD);
  if (start.child_ignored) ::signal(SIGCHLD, SIG_DFL);
  start.known = ::getrlimit(RLIMIT_NOFILE, &start.files) == 0;
  rlimit most = start.files;
  most.rlim_cur = most.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &most);
}

std::string explain_exec(const std::string& executable, int errno_value) {
  const int fd = ::open(executable.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char head[256];
  const ssize_t n = ::read(fd, head, sizeof head);
  ::close(fd);
  const std::string_view text(head, n > 0 ? static_cast<std::size_t>(n) : 0);
  if (!text.starts_with("#!")) {
    return errno_value == ENOEXEC ? executable + " is neither a program nor a script with a #! line"
                                  : std::string();
  }
  std::string_view interpreter = text.substr(2, text.find('\n') - 2);
  interpreter.remove_prefix(std::min(interpreter.find_first_not_of(" \t"), interpreter.size()));
  interpreter = interpreter.substr(0, interpreter.find_first_of(" \t\r"));
  if (errno_value != ENOENT && errno_value != EACCES) return {};
  return "the interpreter in the first line of " + executable + ", " + std::string(interpreter) +
         ", does not exist or cannot be executed";
}

boost::system::result<Spawned, SpawnError> spawn(const SpawnRequest& request, int exits) {
  CpuMask cpus{};
  for (const int cpu : request.cpus) {
    if (cpu < 0 || cpu >= kCpusMax) return SpawnError{ExecStage::cpus, EINVAL};
    CPU_SET_S(static_cast<unsigned>(cpu), sizeof cpus, cpus.data());
  }
  const Pair pair;
  if (!pair.made) return SpawnError{ExecStage::pidfd, errno};
  ChildSetup setup{request, request.cpus.empty() ? nullptr : &cpus, ::getpid(), exits,
                   pair.ends[1]};
  VforkLauncher launcher;
  const auto [pid, failure] = launcher(request, setup);
  if (pid < 0) return SpawnError{setup.stage, failure};
  const int pidfd = take_over(pair.ends[0]);
  if (pidfd < 0) {
    const int why = errno;  // no descriptor is left
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return SpawnError{ExecStage::pidfd, why};
  }
  return Spawned{pid, pidfd};
}

}  // namespace distrun::agent
