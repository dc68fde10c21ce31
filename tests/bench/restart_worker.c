/* restart_worker DIR LIVES CAUSE: measures how long a dead worker's replacement takes to reach main.
 *
 * In its first LIVES-1 lives (TORCHELASTIC_RESTART_COUNT) rank 0 lets its siblings settle, notes the
 * time in DIR/died.<life> and dies by CAUSE: "exit" (status 1) or "kill" (SIGKILL). The other ranks
 * sleep and leave TERM at its default, so they are gone the moment they are told. In the last life
 * everybody ends well. Every life of every rank notes when its main began in DIR/main.<life>.<rank>.
 * All times are CLOCK_MONOTONIC, so they compare across processes. */
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

static void sleep_ms(long ms) {
  struct timespec left = {ms / 1000, (ms % 1000) * 1000000L};
  while (nanosleep(&left, &left) != 0) continue;
}

static long number(const char* name) {
  const char* text = getenv(name);
  if (text == NULL) {
    fprintf(stderr, "restart_worker: %s is not set\n", name);
    exit(2);
  }
  return strtol(text, NULL, 10);
}

static void note(const char* folder, const char* what, long life, long rank, long long when) {
  char path[4096];
  if (rank < 0) {
    snprintf(path, sizeof path, "%s/%s.%ld", folder, what, life);
  } else {
    snprintf(path, sizeof path, "%s/%s.%ld.%ld", folder, what, life, rank);
  }
  FILE* file = fopen(path, "w");
  if (file == NULL) {
    perror(path);
    exit(2);
  }
  fprintf(file, "%lld\n", when);
  fclose(file);
}

int main(int argc, char** argv) {
  const long long began = now_ns();
  if (argc != 4) {
    fputs("usage: restart_worker DIR LIVES exit|kill\n", stderr);
    return 2;
  }
  const long lives = strtol(argv[2], NULL, 10);
  const long life = number("TORCHELASTIC_RESTART_COUNT");
  const long rank = number("RANK");
  note(argv[1], "main", life, rank, began);
  if (life >= lives - 1) return 0;
  if (rank != 0) {
    sleep_ms(60000); /* Ended by TERM; the limit is for a launcher that forgets us. */
    return 3;
  }
  /* A launcher may treat a death within its first second as a start-up failure: not what is measured. */
  sleep_ms(life == 0 ? 1200 : 50);
  /* The file is made first, so that its cost does not count: only the clock's value is missing. */
  char path[4096];
  snprintf(path, sizeof path, "%s/died.%ld", argv[1], life);
  FILE* file = fopen(path, "w");
  if (file == NULL) return 2;
  fprintf(file, "%lld\n", now_ns());
  fflush(file);
  if (strcmp(argv[3], "kill") == 0) raise(SIGKILL);
  _exit(1);
}
