/* spawn_floor N PROGRAM [ARG...]: starts N copies with posix_spawn, waits for them, exits.
 * The least a launcher can cost: what distrun's start-up time is measured against. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char** environ;

int main(int argc, char** argv) {
  if (argc < 3) {
    fputs("usage: spawn_floor N PROGRAM [ARG...]\n", stderr);
    return 2;
  }
  const long copies = strtol(argv[1], NULL, 10);
  if (copies < 1 || copies > 4096) {
    fprintf(stderr, "spawn_floor: not in 1..4096: %s\n", argv[1]);
    return 2;
  }
  for (long i = 0; i < copies; ++i) {
    pid_t pid;
    const int error = posix_spawn(&pid, argv[2], NULL, NULL, argv + 2, environ);
    if (error != 0) {
      fprintf(stderr, "spawn_floor: %s: %s\n", argv[2], strerror(error));
      return 1;
    }
  }
  int failed = 0;
  for (long i = 0; i < copies; ++i) {
    int status;
    while (waitpid(-1, &status, 0) < 0) {
      if (errno != EINTR) return 1;
    }
    if (status != 0) failed = 1;
  }
  return failed;
}
