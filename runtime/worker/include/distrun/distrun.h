/* The C interface of the worker library: process groups for programs in C, and for bindings of
 * other languages.  Calls look like NCCL's.
 *
 *   distrun_group group;
 *   distrun_config config = DISTRUN_CONFIG_INITIALIZER;  // RANK, WORLD_SIZE, … of the launcher
 *   if (distrun_init(&config, &group) != DISTRUN_SUCCESS) puts(distrun_last_error());
 *   distrun_all_reduce(data, data, 1000, DISTRUN_FLOAT32, DISTRUN_SUM, group, NULL);
 *   distrun_close(group, 0);
 *   distrun_free(group);
 *
 * A function that fails returns a code; the sentence for a person, and the rank to blame, are then
 * to be had in the same thread until its next call.  With a work, a collective only begins, and its
 * memory belongs to it until the work is done; with NULL it returns when it is done.  Counts are
 * elements.  Ranks are the group's.  What process_group.h says of order, deadlines and failures
 * holds here, too.
 *
 * No C++ type and no exception comes across.  Nothing is changed or removed within a major version;
 * what is new in a struct goes to its end, where `size` tells whether it is there.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t distrun_result;
enum {
  DISTRUN_SUCCESS = 0,
  DISTRUN_INVALID_ARGUMENT = 1, /* what cannot be; nothing was sent */
  DISTRUN_UNSUPPORTED = 2,      /* understood, and not to be had with this build or backend */
  DISTRUN_STORE = 3,            /* the store refused */
  DISTRUN_TIMEOUT = 4,          /* a deadline passed */
  DISTRUN_NETWORK = 5,          /* the store cannot be reached */
  DISTRUN_BACKEND = 6,          /* a collective failed; its group is of no more use */
  DISTRUN_INTERNAL = 7          /* none of these: out of memory, a fault of the library */
};

typedef int32_t distrun_dtype;
enum {
  DISTRUN_INT8 = 0,
  DISTRUN_INT16 = 1,
  DISTRUN_INT32 = 2,
  DISTRUN_INT64 = 3,
  DISTRUN_UINT8 = 4,
  DISTRUN_UINT16 = 5,
  DISTRUN_UINT32 = 6,
  DISTRUN_UINT64 = 7,
  DISTRUN_BOOL = 8,
  DISTRUN_FLOAT16 = 9,
  DISTRUN_BFLOAT16 = 10,
  DISTRUN_FLOAT32 = 11,
  DISTRUN_FLOAT64 = 12,
  DISTRUN_COMPLEX64 = 13,
  DISTRUN_COMPLEX128 = 14
};

typedef int32_t distrun_op;
enum {
  DISTRUN_SUM = 0,
  DISTRUN_AVG = 1,
  DISTRUN_PRODUCT = 2,
  DISTRUN_MIN = 3,
  DISTRUN_MAX = 4,
  DISTRUN_BAND = 5,
  DISTRUN_BOR = 6,
  DISTRUN_BXOR = 7
};

typedef int32_t distrun_device; /* DLPack's */
enum { DISTRUN_CPU = 1, DISTRUN_CUDA = 2, DISTRUN_CUDA_HOST = 3, DISTRUN_ROCM = 10 };

#define DISTRUN_ANY_SOURCE (-1)

typedef struct distrun_group_s* distrun_group;
typedef struct distrun_work_s* distrun_work;
typedef struct distrun_buffer_s* distrun_buffer;

typedef struct distrun_config {
  uint32_t size;           /* of this struct, as the caller knows it */
  int32_t rank;            /* -1: from the environment, or from init_method */
  int32_t world_size;      /* as above */
  uint32_t reserved;       /* 0 */
  int64_t timeout_ms;      /* of joining, and of each operation; 0: 30 minutes */
  const char* backend;     /* NULL: "gloo" */
  const char* init_method; /* NULL: "env://" */
  const char* name;        /* NULL: "0", "1", … in the order of creation in this process */
} distrun_config;
#define DISTRUN_CONFIG_INITIALIZER \
  { (uint32_t)sizeof(distrun_config), -1, -1, 0, 0, NULL, NULL, NULL }

/* A backend for memory of other devices than the CPU, as register_backend() in backend.h; one of
 * the two is NULL: the file of a shared library, or its entry function (backend_abi.h). */
struct drb_backend;
distrun_result distrun_register_backend(const char* name, const char* library,
                                        const struct drb_backend* (*entry)(uint32_t host_abi));

/* Of the last function that failed in this thread; never NULL. */
const char* distrun_last_error(void);
/* -1: nobody in particular. */
int32_t distrun_last_error_rank(void);

/* ---- groups: distrun_free() each ---- */

distrun_result distrun_init(const distrun_config* config, distrun_group* group);
/* All ranks of `parent` call it; *group is NULL on those that are not in `ranks`.  timeout_ms 0:
 * the parent's. */
distrun_result distrun_new_group(distrun_group parent, const int32_t* ranks, size_t n,
                                 int64_t timeout_ms, distrun_group* group);
/* -1 if `group` is NULL. */
int32_t distrun_rank(distrun_group group);
int32_t distrun_size(distrun_group group);
/* Whose memory this group's calls are given from now on; at first the CPU's.  stream: a
 * cudaStream_t of that device, or NULL (process_group.h, CallOptions).  There a reduction's `send`
 * is its `recv`.
 */
distrun_result distrun_use_device(distrun_group group, distrun_device device, int32_t index,
                                  void* stream);
/* Waits for what was issued, and until all ranks have come here; timeout_ms 0: the group's. */
distrun_result distrun_close(distrun_group group, int64_t timeout_ms);
/* What is under way fails here, and soon on the other ranks, which are told `why`. */
distrun_result distrun_abort(distrun_group group, const char* why);
/* Closes first, for at most five seconds, if that was not done.  NULL is nothing. */
void distrun_free(distrun_group group);

/* ---- memory: distrun_buffer_free() each ---- */

/* Zeros, for tensors of the CPU that collectives read where they lie (buffer.h).  No other rank
 * takes part; it is good for every group of the process, and may outlive this one. */
distrun_result distrun_allocate(distrun_group group, size_t bytes, distrun_buffer* buffer);
/* At a page's beginning; NULL: no bytes, or `buffer` is NULL. */
void* distrun_buffer_data(distrun_buffer buffer);
/* 0: ordinary memory, since this host's ranks cannot share any, or no more of it. */
int32_t distrun_buffer_is_registered(distrun_buffer buffer);
/* NULL is nothing. */
void distrun_buffer_free(distrun_buffer buffer);

/* ---- collectives: `send` may be `recv` ---- */

distrun_result distrun_broadcast(void* data, size_t count, distrun_dtype dtype, int32_t root,
                                 distrun_group group, distrun_work* work);
distrun_result distrun_all_reduce(const void* send, void* recv, size_t count, distrun_dtype dtype,
                                  distrun_op op, distrun_group group, distrun_work* work);
/* The sum of what each rank multiplied by its factor. */
distrun_result distrun_all_reduce_premul_sum(const void* send, void* recv, size_t count,
                                             distrun_dtype dtype, double factor,
                                             distrun_group group, distrun_work* work);
/* `recv` counts at the root only. */
distrun_result distrun_reduce(const void* send, void* recv, size_t count, distrun_dtype dtype,
                              distrun_op op, int32_t root, distrun_group group, distrun_work* work);
/* `recv` has room for size times `count`. */
distrun_result distrun_all_gather(const void* send, void* recv, size_t count, distrun_dtype dtype,
                                  distrun_group group, distrun_work* work);
/* recv_counts[r] from rank r, one behind the other; the same on all ranks. */
distrun_result distrun_all_gather_v(const void* send, void* recv, const size_t* recv_counts,
                                    distrun_dtype dtype, distrun_group group, distrun_work* work);
/* `recv` counts at the root only. */
distrun_result distrun_gather(const void* send, void* recv, size_t count, distrun_dtype dtype,
                              int32_t root, distrun_group group, distrun_work* work);
/* `send` counts at the root only: size times `count`. */
distrun_result distrun_scatter(const void* send, void* recv, size_t count, distrun_dtype dtype,
                               int32_t root, distrun_group group, distrun_work* work);
/* `send` holds size times `count`. */
distrun_result distrun_reduce_scatter(const void* send, void* recv, size_t count,
                                      distrun_dtype dtype, distrun_op op, distrun_group group,
                                      distrun_work* work);
/* `count` to and from each rank. */
distrun_result distrun_all_to_all(const void* send, void* recv, size_t count, distrun_dtype dtype,
                                  distrun_group group, distrun_work* work);
/* `send` may be `recv` if the counts are the same. */
distrun_result distrun_all_to_all_v(const void* send, const size_t* send_counts, void* recv,
                                    const size_t* recv_counts, distrun_dtype dtype,
                                    distrun_group group, distrun_work* work);
distrun_result distrun_barrier(distrun_group group, distrun_work* work);

/* ---- between two ranks ---- */

distrun_result distrun_send(const void* data, size_t count, distrun_dtype dtype, int32_t to,
                            int32_t tag, distrun_group group, distrun_work* work);
/* from: may be DISTRUN_ANY_SOURCE; *source (if not NULL, and without a work) is who sent it. */
distrun_result distrun_recv(void* data, size_t count, distrun_dtype dtype, int32_t from,
                            int32_t tag, distrun_group group, int32_t* source, distrun_work* work);

/* ---- works: distrun_work_free() each ---- */

/* What it failed with; DISTRUN_TIMEOUT also if it is only not done yet (it goes on).  timeout_ms 0:
 * it has only its own deadline. */
distrun_result distrun_work_wait(distrun_work work, int64_t timeout_ms);
/* What is enqueued on `stream` from now on sees the result; this thread does not wait.  Of memory
 * of the CPU: as distrun_work_wait(). */
distrun_result distrun_work_wait_on(distrun_work work, void* stream);
/* *done: well or not.  Never blocks. */
distrun_result distrun_work_test(distrun_work work, int32_t* done);
/* Of a recv that is done; else -1. */
int32_t distrun_work_source(distrun_work work);
/* The operation goes on.  NULL is nothing. */
void distrun_work_free(distrun_work work);

#ifdef __cplusplus
}
#endif
