/* reporting_worker FOLDER [deaf] [kill|CODE]: a worker that tells when and as what it runs, for
 * tests over many hosts and for the figures of recovery.
 *
 * Adds one line to FOLDER/lines when main begins:
 *
 *   began TIME_NS HOST PID RANK WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE RESTART_COUNT
 *         MASTER_ADDR MASTER_PORT
 *
 * and one, with another first word, when it ends by itself:
 *
 *   done   because FOLDER/finish is there: exit 0
 *   died   because FOLDER/die.RANK was there, which it takes away first: exit CODE (1), or SIGKILL
 *
 * deaf: SIGTERM is ignored.
 *
 * TIME_NS is CLOCK_MONOTONIC, one for all namespaces of a machine.  A line is one write to a file
 * opened for appending, so lines of many workers stay whole. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
}

static const char* variable(const char* name) {
  const char* text = getenv(name);
  if (text == NULL) {
    fprintf(stderr, "reporting_worker: %s is not set\n", name);
    exit(2);
  }
  return text;
}

static void tell(int file, const char* what, long long when) {
  char host[256] = "";
  char line[1024];
  gethostname(host, sizeof host - 1);
  const int size =
      snprintf(line, sizeof line, "%s %lld %s %d %s %s %s %s %s %s %s\n", what, when, host,
               (int)getpid(), variable("RANK"), variable("WORLD_SIZE"), variable("GROUP_RANK"),
               variable("GROUP_WORLD_SIZE"), variable("TORCHELASTIC_RESTART_COUNT"),
               variable("MASTER_ADDR"), variable("MASTER_PORT"));
  if (size < 0 || (size_t)size >= sizeof line || write(file, line, (size_t)size) != size) {
    perror("reporting_worker: lines");
    exit(2);
  }
}

int main(int argc, char** argv) {
  const long long began = now_ns();
  if (argc < 2) {
    fputs("usage: reporting_worker FOLDER [deaf] [kill|CODE]\n", stderr);
    return 2;
  }
  const char* death = "1";
  for (int i = 2; i < argc; ++i) {
    if (strcmp(argv[i], "deaf") == 0) {
      signal(SIGTERM, SIG_IGN);
    } else {
      death = argv[i];
    }
  }
  char lines[4096], finish[4096], die[4096];
  snprintf(lines, sizeof lines, "%s/lines", argv[1]);
  snprintf(finish, sizeof finish, "%s/finish", argv[1]);
  snprintf(die, sizeof die, "%s/die.%s", argv[1], variable("RANK"));
  const int file = open(lines, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    perror(lines);
    return 2;
  }
  tell(file, "began", began);
  for (;;) {
    if (access(finish, F_OK) == 0) {
      tell(file, "done", now_ns());
      return 0;
    }
    if (unlink(die) == 0) {
      fprintf(stderr, "reporting_worker: rank %s was told to die\n", variable("RANK"));
      tell(file, "died", now_ns());
      if (strcmp(death, "kill") == 0) raise(SIGKILL);
      _exit(atoi(death));
    }
    const struct timespec moment = {0, 5000000};
    nanosleep(&moment, NULL);
  }
}
