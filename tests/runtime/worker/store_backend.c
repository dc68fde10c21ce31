/* A backend of a third party, as small as it can be and in plain C: sums of float on the CPU, by way
 * of the store.  Operations are carried out at once, so that a work is done when it is made.
 *
 *   distrun::register_backend("by_store", ".../libstore_backend.so");
 *   distrun::init_process_group("cpu:by_store");
 */
#include <distrun/backend_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct drb_group {
  drb_store store;
  int32_t rank;
  int32_t world_size;
  int64_t timeout_ms;
  int64_t submitted;
  int aborted;
};
struct drb_work {
  int64_t sequence;
};

enum { ROOM = 4096 };

static _Thread_local char error_text[256] = "";

static drb_status fail(drb_status status, const char* text) {
  snprintf(error_text, sizeof error_text, "by_store: %s", text);
  return status;
}

static drb_status probe(char* text, uint64_t capacity) {
  snprintf(text, capacity, "a backend for tests");
  return DRB_OK;
}
static const char* last_error(void) {
  return error_text;
}
static int32_t last_error_rank(void) {
  return -1;
}

static drb_status create(const drb_group_options* options, drb_group** out) {
  for (uint32_t i = 0; i < options->n_options; ++i)
    return fail(DRB_ARGUMENT, options->options[i].key);
  drb_group* group = calloc(1, sizeof *group);
  if (group == NULL) return fail(DRB_BACKEND, "out of memory");
  const drb_status cloned = options->store->clone(options->store->user, &group->store);
  if (cloned != DRB_OK) {
    free(group);
    return fail(cloned, options->store->last_error(options->store->user));
  }
  group->rank = options->rank;
  group->world_size = options->world_size;
  group->timeout_ms = options->timeout_ms;
  *out = group;
  return DRB_OK;
}
static drb_status destroy(drb_group* group, int64_t timeout_ms) {
  (void)timeout_ms;
  group->store.release(group->store.user);
  free(group);
  return DRB_OK;
}
static drb_status abort_group(drb_group* group, const char* reason, int32_t culprit) {
  (void)reason;
  (void)culprit;
  group->aborted = 1;
  return DRB_OK;
}
static drb_status check(drb_group* group) {
  return group->aborted ? fail(DRB_BACKEND, "aborted") : DRB_OK;
}

/* Everybody's data under a key of its own; then each adds them all up in the order of ranks. */
static drb_status sum(drb_group* group, const drb_tensor* data, int64_t timeout_ms) {
  static _Thread_local float theirs[ROOM];
  const uint64_t bytes = data->count * sizeof(float);
  char key[64];
  float* mine = data->data;
  snprintf(key, sizeof key, "%lld/%d", (long long)group->submitted, (int)group->rank);
  drb_status status = group->store.set(group->store.user, key, mine, bytes);
  if (status != DRB_OK) return status;
  for (int32_t rank = 0; rank < group->world_size; ++rank) {
    uint64_t got = 0;
    snprintf(key, sizeof key, "%lld/%d", (long long)group->submitted, (int)rank);
    status = group->store.get(group->store.user, key, timeout_ms, theirs, sizeof theirs, &got);
    if (status != DRB_OK) return status;
    if (got != bytes) return fail(DRB_BACKEND, "the ranks' sizes differ");
    for (uint64_t i = 0; i < data->count; ++i) mine[i] = rank == 0 ? theirs[i] : mine[i] + theirs[i];
  }
  return DRB_OK;
}

static drb_status submit(drb_group* group, const drb_op* const* ops, uint32_t n,
                         const drb_call* call, drb_work** work) {
  if (group->aborted) return fail(DRB_BACKEND, "aborted");
  for (uint32_t i = 0; i < n; ++i) {
    const drb_op* op = ops[i];
    if (op->kind != DRB_ALL_REDUCE || op->reduce_op != DRB_SUM)
      return fail(DRB_UNSUPPORTED, "sums by all_reduce only");
    const drb_tensor* data = &op->outputs[0];
    if (data->dtype_code != 2 || data->dtype_bits != 32 || data->count > ROOM)
      return fail(DRB_UNSUPPORTED, "at most 4096 floats");
    const int64_t timeout = call->timeout_ms > 0 ? call->timeout_ms : group->timeout_ms;
    const drb_status status = sum(group, data, timeout);
    if (status != DRB_OK) {
      group->aborted = 1;
      return fail(status, group->store.last_error(group->store.user));
    }
    group->submitted++;
  }
  if (work != NULL) {
    *work = malloc(sizeof **work);
    if (*work == NULL) return fail(DRB_BACKEND, "out of memory");
    (*work)->sequence = group->submitted - 1;
  }
  return DRB_OK;
}
static drb_status work_test(drb_work* work, drb_work_state* state) {
  (void)work;
  *state = DRB_WORK_DONE;
  return DRB_OK;
}
static drb_status work_wait(drb_work* work, void* stream, int64_t timeout_ms, uint32_t flags) {
  (void)work;
  (void)stream;
  (void)timeout_ms;
  (void)flags;
  return DRB_OK;
}
static int64_t work_sequence(drb_work* work) {
  return work->sequence;
}
static void work_release(drb_work* work) {
  free(work);
}

static const drb_backend backend = {
    .size = sizeof(drb_backend),
    .abi = DRB_ABI,
    .name = "by_store",
    .devices = "cpu",
    .capabilities = DRB_CAN_COALESCE,
    .device_type = 1,
    .default_timeout_ms = 60000,
    .probe = probe,
    .last_error = last_error,
    .last_error_rank = last_error_rank,
    .create = create,
    .destroy = destroy,
    .abort = abort_group,
    .check = check,
    .submit = submit,
    .work_test = work_test,
    .work_wait = work_wait,
    .work_sequence = work_sequence,
    .work_release = work_release,
};

__attribute__((visibility("default"))) const drb_backend* distrun_backend_entry(uint32_t host_abi) {
  return host_abi == DRB_ABI ? &backend : NULL;
}
