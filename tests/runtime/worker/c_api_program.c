/* A program in C, one rank of several: distrun --nproc-per-node 3 c_api_program.  Silent and 0 if
 * all is right. */
#include <distrun/distrun.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(int right, const char* what) {
  if (right) return;
  fprintf(stderr, "%s: %s (rank %d)\n", what, distrun_last_error(), distrun_last_error_rank());
  exit(1);
}
#define OK(call) need((call) == DISTRUN_SUCCESS, #call)

static void collectives(distrun_group world) {
  const int rank = distrun_rank(world), size = distrun_size(world);
  const int sum = size * (size - 1) / 2;
  float mine[2] = {(float)rank, 1}, out[2];
  OK(distrun_all_reduce(mine, out, 2, DISTRUN_FLOAT32, DISTRUN_SUM, world, NULL));
  need(out[0] == (float)sum && mine[0] == (float)rank, "all_reduce");
  OK(distrun_all_reduce_premul_sum(mine, out, 2, DISTRUN_FLOAT32, 0.5, world, NULL));
  need(out[1] == (float)size / 2, "premul_sum");
  OK(distrun_reduce(mine, rank == 1 ? out : NULL, 2, DISTRUN_FLOAT32, DISTRUN_MAX, 1, world, NULL));
  need(rank != 1 || out[0] == (float)(size - 1), "reduce");
  OK(distrun_broadcast(mine, 2, DISTRUN_FLOAT32, size - 1, world, NULL));
  need(mine[0] == (float)(size - 1), "broadcast");

  int32_t one = rank, all[8];
  OK(distrun_all_gather(&one, all, 1, DISTRUN_INT32, world, NULL));
  need(all[size - 1] == size - 1, "all_gather");
  OK(distrun_reduce_scatter(all, &one, 1, DISTRUN_INT32, DISTRUN_SUM, world, NULL));
  need(one == rank * size, "reduce_scatter");
  OK(distrun_scatter(all, &one, 1, DISTRUN_INT32, 0, world, NULL));
  need(one == rank, "scatter");
  OK(distrun_gather(&one, all, 1, DISTRUN_INT32, 0, world, NULL));
  int32_t exchanged[8];
  OK(distrun_all_to_all(all, exchanged, 1, DISTRUN_INT32, world, NULL));
  need(exchanged[0] == rank, "all_to_all");

  /* Rank r gives r + 1 numbers. */
  size_t counts[8], total = 0;
  for (int i = 0; i < size; ++i) total += counts[i] = (size_t)i + 1;
  double parts[64], gathered[64];
  for (int i = 0; i <= rank; ++i) parts[i] = rank;
  OK(distrun_all_gather_v(parts, gathered, counts, DISTRUN_FLOAT64, world, NULL));
  need(gathered[total - 1] == size - 1, "all_gather_v");
  size_t in_counts[8];
  for (int i = 0; i < size; ++i) in_counts[i] = (size_t)rank + 1;
  OK(distrun_all_to_all_v(gathered, counts, parts, in_counts, DISTRUN_FLOAT64, world, NULL));
  need(parts[0] == rank, "all_to_all_v");
}

static void works(distrun_group world) {
  const int rank = distrun_rank(world);
  static double data[100000];
  for (int i = 0; i < 100000; ++i) data[i] = 1;
  distrun_work work;
  OK(distrun_all_reduce(data, data, 100000, DISTRUN_FLOAT64, DISTRUN_SUM, world, &work));
  OK(distrun_work_wait(work, 0));
  int32_t done = 0;
  OK(distrun_work_test(work, &done));
  need(done && data[99999] == distrun_size(world), "async all_reduce");
  distrun_work_free(work);

  int32_t number = rank;
  if (rank == 0) {
    OK(distrun_recv(&number, 1, DISTRUN_INT32, DISTRUN_ANY_SOURCE, 3, world, NULL, &work));
    OK(distrun_work_wait(work, 0));
    need(distrun_work_source(work) == 1 && number == 1, "recv");
    distrun_work_free(work);
  } else if (rank == 1) {
    OK(distrun_send(&number, 1, DISTRUN_INT32, 0, 3, world, NULL));
  }
}

static void errors(distrun_group world) {
  float data[1] = {0};
  need(distrun_broadcast(data, 1, DISTRUN_FLOAT32, 99, world, NULL) == DISTRUN_INVALID_ARGUMENT &&
           strstr(distrun_last_error(), "root 99 is not a rank") != NULL,
       "a root that is none");
  need(distrun_all_reduce(data, data, 1, DISTRUN_FLOAT32, DISTRUN_BOR, world, NULL) ==
           DISTRUN_INVALID_ARGUMENT,
       "bits of floats");
  need(distrun_all_reduce(data, data, 1, 77, DISTRUN_SUM, world, NULL) == DISTRUN_INVALID_ARGUMENT,
       "a dtype that is none");
  need(distrun_barrier(NULL, NULL) == DISTRUN_INVALID_ARGUMENT, "a null group");
  distrun_config small = DISTRUN_CONFIG_INITIALIZER;
  small.size = 4;
  distrun_group none;
  need(distrun_init(&small, &none) == DISTRUN_INVALID_ARGUMENT, "a config of another size");
}

static void buffers(distrun_group world) {
  const int32_t size = distrun_size(world);
  distrun_buffer buffer = NULL;
  OK(distrun_allocate(world, 100000 * sizeof(float), &buffer));
  float* data = distrun_buffer_data(buffer);
  need(data != NULL && data[99999] == 0, "memory of zeros");
  need(distrun_buffer_is_registered(buffer) == (size > 1), "the ranks of one host share memory");
  for (size_t i = 0; i < 100000; ++i) data[i] = 1;
  OK(distrun_all_reduce(data, data, 100000, DISTRUN_FLOAT32, DISTRUN_SUM, world, NULL));
  need(data[0] == (float)size && data[99999] == (float)size, "all_reduce where it lies");
  distrun_buffer_free(buffer);
  distrun_buffer_free(NULL);
  need(distrun_buffer_data(NULL) == NULL && distrun_buffer_is_registered(NULL) == 0, "no buffer");
  need(distrun_allocate(world, 8, NULL) == DISTRUN_INVALID_ARGUMENT, "no place for a buffer");
  need(distrun_allocate(world, (size_t)1 << 60, &buffer) == DISTRUN_UNSUPPORTED && buffer == NULL,
       "more memory than there is");
}

int main(void) {
  distrun_config config = DISTRUN_CONFIG_INITIALIZER;
  config.timeout_ms = 30000;
  distrun_group world, pair;
  OK(distrun_init(&config, &world));
  collectives(world);
  works(world);
  buffers(world);
  errors(world);
  const int32_t ranks[2] = {0, 1};
  OK(distrun_new_group(world, ranks, 2, 0, &pair));
  need((pair != NULL) == (distrun_rank(world) < 2), "new_group");
  if (pair != NULL) OK(distrun_barrier(pair, NULL));
  distrun_free(pair);

  /* Who differs is named on every rank, and the group is of no more use. */
  float data[2] = {0, 0};
  const size_t count = distrun_rank(world) == 1 ? 2 : 1;
  need(distrun_all_reduce(data, data, count, DISTRUN_FLOAT32, DISTRUN_SUM, world, NULL) ==
           DISTRUN_BACKEND,
       "different counts");
  need(strstr(distrun_last_error(), "they differ in the count") != NULL, "the reason");
  need(distrun_barrier(world, NULL) == DISTRUN_BACKEND, "a dead group");
  distrun_free(world);
  return 0;
}
