// A worker that does as its arguments say, one verb after the other:
//
//   rank N         go on with what follows only as rank N; else skip to the next "," argument
//   restart N      the same, for TORCHELASTIC_RESTART_COUNT
//   out TEXT       one line on stdout          err TEXT     one line on stderr
//   raw TEXT       on stdout, no newline       env NAME     NAME=value on stdout
//   args           the rest, one a line, and exit 0
//   sleep MS       wait                        forever      wait until killed
//   exit N         _exit(N)                    die SIGNO    kill ourselves
//   deaf           ignore SIGTERM and SIGINT   on-term N    _exit(N) on SIGTERM
//   say SIGNO      print "got SIGNO" when it comes, and go on
//   heard          wait until one of those has come
//   child          a child that waits for ever, in our group, deaf
//   orphan         a grandchild that waits for ever, in a session of its own, deaf, parent gone
//   walker         a grandchild that forks and exits all the time, deaf, for ten seconds at most
//   touch FILE     make it                     until FILE   wait until it exists
//   pid FILE       write our pid into it       lines N      N numbered lines on stdout
//   gone FILE      wait until the process whose pid is in FILE is dead (a zombie, or reaped)
//   eat MIB        use that much memory
//
// At the end: exit 0.
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace {

int exit_on_term = 0;
volatile sig_atomic_t signals_heard = 0;

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n <= 0) ::_exit(90);
    at += static_cast<std::size_t>(n);
  }
}

void pause_ms(long ms) {
  timespec left{ms / 1000, (ms % 1000) * 1'000'000};
  while (::nanosleep(&left, &left) != 0) {
  }
}

[[noreturn]] void wait_for_ever() {
  for (;;) pause_ms(1000);
}

// The first line of a small file; empty while there is none.
std::string first_line(const std::string& path) {
  std::string text(512, '\0');
  const int fd = ::open(path.c_str(), O_RDONLY);
  const ssize_t n = fd < 0 ? -1 : ::read(fd, text.data(), text.size());
  if (fd >= 0) ::close(fd);
  text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? std::string() : text.substr(0, end);
}

// Dead as its parent sees it: a file that it made, or a connection that it closed, comes earlier.
bool is_dead(const std::string& pid) {
  const std::string stat = first_line("/proc/" + pid + "/stat");
  const std::size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos || stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X';
}

int environment_number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

void be_deaf() {
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
}

void start_child(bool as_orphan) {
  if (::fork() != 0) return;
  if (as_orphan) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    if (::fork() != 0) ::_exit(0);
  }
  be_deaf();
  wait_for_ever();
}

void start_walker() {
  if (::fork() != 0) return;
  ::setsid();
  be_deaf();
  const time_t end = ::time(nullptr) + 10;
  while (::time(nullptr) < end) {
    if (::fork() != 0) ::_exit(0);
  }
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i) { return std::atoi(argv[i]); };
  for (int i = 1; i < argc; ++i) {
    const std::string verb = argv[i];
    const auto skip_unless = [&](bool holds) {
      ++i;
      while (!holds && i + 1 < argc && std::string(argv[i]) != ",") ++i;
    };
    if (verb == ",") continue;
    if (verb == "args") {
      for (++i; i < argc; ++i) write_all(1, std::string(argv[i]) + "\n");
      return 0;
    }
    if (verb == "forever") wait_for_ever();
    if (verb == "deaf") {
      be_deaf();
      continue;
    }
    if (verb == "heard") {
      while (signals_heard == 0) pause_ms(5);
      continue;
    }
    if (verb == "walker") {
      start_walker();
      continue;
    }
    if (verb == "child" || verb == "orphan") {
      start_child(verb == "orphan");
      continue;
    }
    if (i + 1 >= argc) {
      std::fprintf(stderr, "scripted_worker: %s wants an argument\n", verb.c_str());
      return 91;
    }
    const std::string value = argv[i + 1];
    if (verb == "rank") {
      skip_unless(environment_number("RANK") == number(i + 1));
      continue;
    }
    if (verb == "restart") {
      skip_unless(environment_number("TORCHELASTIC_RESTART_COUNT") == number(i + 1));
      continue;
    }
    ++i;
    if (verb == "out")
      write_all(1, value + "\n");
    else if (verb == "err")
      write_all(2, value + "\n");
    else if (verb == "raw")
      write_all(1, value);
    else if (verb == "env") {
      const char* set = std::getenv(value.c_str());
      write_all(1, value + (set ? std::string("=") + set : " is not set") + "\n");
    } else if (verb == "sleep")
      pause_ms(number(i));
    else if (verb == "exit")
      ::_exit(number(i));
    else if (verb == "die")
      ::kill(::getpid(), number(i));
    else if (verb == "on-term") {
      exit_on_term = number(i);
      ::signal(SIGTERM, [](int) { ::_exit(exit_on_term); });
    } else if (verb == "say") {
      ::signal(number(i), [](int signo) {
        write_all(1, "got " + std::to_string(signo) + "\n");
        signals_heard = 1;
      });
    } else if (verb == "touch")
      ::close(::open(value.c_str(), O_CREAT | O_WRONLY, 0644));
    else if (verb == "until") {
      struct stat info {};
      while (::stat(value.c_str(), &info) != 0) pause_ms(5);
    } else if (verb == "gone") {
      std::string pid;
      while ((pid = first_line(value)).empty()) pause_ms(5);
      while (!is_dead(pid)) pause_ms(5);
    } else if (verb == "pid") {
      const int fd = ::open(value.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644);
      write_all(fd, std::to_string(::getpid()) + "\n");
      ::close(fd);
    } else if (verb == "eat") {
      for (int mib = 0; mib < number(i); ++mib) {
        auto* block = static_cast<volatile char*>(std::malloc(1U << 20));
        for (std::size_t at = 0; block != nullptr && at < (1U << 20); at += 4096) block[at] = 1;
      }
    } else if (verb == "lines") {
      for (int line = 0; line < number(i); ++line) {
        write_all(1, "line " + std::to_string(line) + "\n");
      }
    } else {
      std::fprintf(stderr, "scripted_worker: no such verb: %s\n", verb.c_str());
      return 91;
    }
  }
  return 0;
}
