/* cable NEAR_IF FAR_PID FAR_IF: an Ethernet cable in user space, for what real ones do to frames.
 *
 * Makes a TAP device NEAR_IF in this network namespace and FAR_IF in that of process FAR_PID, and
 * carries frames between the two.  Says "ready" once both are there.  How it treats them is told on
 * standard input, one line for both directions, which replaces the line before:
 *
 *   delay_us=50000 jitter_us=5000 loss=0.02
 *
 * What a line does not name is 0.  Frames keep their order.  At the end of standard input it goes,
 * and both devices with it.  For kernels without sch_netem, and the same everywhere. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_MAX = 65600, IN_FLIGHT_MAX = 16384, LINE_MAX_BYTES = 512 };

struct frame {
  uint64_t due_ns;
  size_t size;
  unsigned char* bytes;
};

/* One direction: a ring of frames in order of due time. */
struct direction {
  int from, to;
  struct frame in_flight[IN_FLIGHT_MAX];
  unsigned first, count;
  uint64_t last_due_ns;
};

static double delay_us, jitter_us, loss;
static struct direction directions[2];

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char* what) {
  fprintf(stderr, "cable: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int tap(const char* name) {
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) fail("/dev/net/tun");
  struct ifreq request;
  memset(&request, 0, sizeof request);
  if (strlen(name) >= IFNAMSIZ) {
    errno = ENAMETOOLONG;
    fail(name);
  }
  memcpy(request.ifr_name, name, strlen(name));
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(fd, TUNSETIFF, &request) != 0) fail(name);
  return fd;
}

/* A device stays in the namespace in which it was made, wherever its maker goes. */
static int tap_at(const char* pid, const char* name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
  const int there = open(path, O_RDONLY | O_CLOEXEC);
  if (there < 0 || setns(there, CLONE_NEWNET) != 0) fail(path);
  close(there);
  return tap(name);
}

static void set(char* line) {
  delay_us = jitter_us = loss = 0;
  char* rest = line;
  for (char* word; (word = strsep(&rest, " \t")) != NULL;) {
    char key[16];
    double value;
    if (*word == '\0') continue;
    if (sscanf(word, "%15[^=]=%lf", key, &value) != 2 || value < 0) {
      fprintf(stderr, "cable: not KEY=NUMBER: %s\n", word);
      exit(2);
    }
    if (strcmp(key, "delay_us") == 0) {
      delay_us = value;
    } else if (strcmp(key, "jitter_us") == 0) {
      jitter_us = value;
    } else if (strcmp(key, "loss") == 0) {
      loss = value;
    } else {
      fprintf(stderr, "cable: no such setting: %s\n", key);
      exit(2);
    }
  }
  puts("set");
  fflush(stdout);
}

/* False: standard input has ended. */
static int read_settings(void) {
  static char line[LINE_MAX_BYTES];
  static size_t size;
  const ssize_t n = read(STDIN_FILENO, line + size, sizeof line - 1 - size);
  if (n <= 0) return n < 0 && errno == EINTR;
  size += (size_t)n;
  line[size] = '\0';
  for (char* end; (end = strchr(line, '\n')) != NULL;) {
    *end = '\0';
    set(line);
    size -= (size_t)(end + 1 - line);
    memmove(line, end + 1, size + 1);
  }
  if (size == sizeof line - 1) {
    fputs("cable: a line is too long\n", stderr);
    return 0;
  }
  return 1;
}

static void enter(struct direction* way, const unsigned char* bytes, size_t size) {
  if (drand48() < loss || way->count == IN_FLIGHT_MAX) return;
  uint64_t due = now_ns() + (uint64_t)((delay_us + drand48() * jitter_us) * 1000);
  if (due < way->last_due_ns) due = way->last_due_ns;
  way->last_due_ns = due;
  unsigned char* copy = malloc(size);
  if (copy == NULL) return; /* lost */
  memcpy(copy, bytes, size);
  way->in_flight[(way->first + way->count++) % IN_FLIGHT_MAX] = (struct frame){due, size, copy};
}

static void take(struct direction* way) {
  static unsigned char buffer[FRAME_MAX];
  for (int i = 0; i < 64; ++i) { /* then the other direction has its turn */
    const ssize_t n = read(way->from, buffer, sizeof buffer);
    if (n > 0) {
      enter(way, buffer, (size_t)n);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EIO) {
      fail("read"); /* EIO: the device is down */
    } else {
      return;
    }
  }
}

/* Nanoseconds until the next frame is due; UINT64_MAX: none is in flight. */
static uint64_t deliver(struct direction* way) {
  while (way->count > 0) {
    struct frame* next = &way->in_flight[way->first];
    const uint64_t now = now_ns();
    if (next->due_ns > now) return next->due_ns - now;
    /* A device that is down, or full, loses it; so do real ones. */
    if (write(way->to, next->bytes, next->size) < 0 && errno == EBADF) fail("write");
    free(next->bytes);
    way->first = (way->first + 1) % IN_FLIGHT_MAX;
    --way->count;
  }
  return UINT64_MAX;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fputs("usage: cable NEAR_IF FAR_PID FAR_IF\n", stderr);
    return 2;
  }
  srand48((long)now_ns());
  const int near = tap(argv[1]);
  const int far = tap_at(argv[2], argv[3]);
  directions[0].from = directions[1].to = near;
  directions[0].to = directions[1].from = far;
  puts("ready");
  fflush(stdout);
  for (;;) {
    uint64_t wait_ns = UINT64_MAX;
    for (int i = 0; i < 2; ++i) {
      const uint64_t due = deliver(&directions[i]);
      if (due < wait_ns) wait_ns = due;
    }
    struct timespec limit = {(time_t)(wait_ns / 1000000000u), (long)(wait_ns % 1000000000u)};
    struct pollfd polled[3] = {{near, POLLIN, 0}, {far, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    if (ppoll(polled, 3, wait_ns == UINT64_MAX ? NULL : &limit, NULL) < 0 && errno != EINTR)
      fail("poll");
    if (polled[2].revents != 0 && !read_settings()) return 0;
    for (int i = 0; i < 2; ++i) {
      if (polled[i].revents & POLLIN) {
        take(&directions[i]);
      } else if (polled[i].revents != 0) {
        const struct timespec moment = {0, 1000000}; /* down: it stays readable without a frame */
        nanosleep(&moment, NULL);
      }
    }
  }
}
