/* The ABI between libdistrun and a backend: what carries out the operations of a process group on
 * one kind of device.  NCCL's is libdistrun_nccl.so; anybody else's is a shared library like it.
 *
 *   handle = dlopen("libdistrun_nccl.so", RTLD_NOW | RTLD_LOCAL);   never dlclose: it has threads
 *   entry = dlsym(handle, DRB_ENTRY_SYMBOL);
 *   backend = entry(DRB_ABI);                    NULL: it does not know this host's ABI
 *   status = backend->probe(text, sizeof text);  not DRB_OK: text says why it cannot run here
 *   backend->create(&options, &group);
 *   backend->submit(group, ops, 1, &call, &work);
 *
 * Plain C: fixed-width integers, no exceptions and no C++ types across.  A function that fails
 * returns a drb_status; the sentence for a person, and the rank to blame, are then to be had from
 * last_error() and last_error_rank() in the same thread, until its next call.
 *
 * Nothing in here is ever changed or removed.  What is new goes to the end of a struct, and the
 * struct's `size`, which whoever fills it sets to his sizeof, says what is there; what is not there
 * counts as zero.  Pointers in an argument are only read during the call, unless said.
 *
 * Threads: a group's functions may be called from any thread, also several at once: the backend
 * locks.  The order of its operations is the order of the calls of submit(); all ranks must have
 * the same.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DRB_ABI 1u
#define DRB_ENTRY_SYMBOL "distrun_backend_entry"

typedef int32_t drb_status;
enum {
  DRB_OK = 0,
  DRB_ARGUMENT = 1,    /* the caller gave something that cannot be; nothing was sent */
  DRB_UNSUPPORTED = 2, /* understood, and not to be had with this backend, library or device */
  DRB_STORE = 3,       /* the store refused, or its data is not what it should be */
  DRB_TIMEOUT = 4,     /* a deadline passed */
  DRB_NETWORK = 5,     /* the store cannot be reached */
  DRB_BACKEND = 6      /* an operation failed; its group is of no more use */
};

/* -------------------------------------------------------------------------------- what is given */

/* A dense run of elements.  Codes are DLPack's.  The memory belongs to the operation until its work
 * is done. */
typedef struct drb_tensor {
  void* data;
  uint64_t count;     /* elements */
  uint8_t dtype_code; /* int 0, uint 1, float 2, bfloat 4, complex 5, bool 6, float8 7…14 */
  uint8_t dtype_bits; /* of one element */
  uint16_t reserved;
  int32_t device_type; /* CPU 1, CUDA 2, pinned 3, ROCm 10, managed 13 */
  int32_t device_index;
  uint32_t reserved2;
} drb_tensor;

typedef int32_t drb_op_kind;
enum {
  DRB_BROADCAST = 0,
  DRB_ALL_REDUCE = 1,
  DRB_REDUCE = 2,
  DRB_ALL_GATHER = 3,
  DRB_GATHER = 4,
  DRB_SCATTER = 5,
  DRB_REDUCE_SCATTER = 6,
  DRB_ALL_TO_ALL = 7,
  DRB_SEND = 8,
  DRB_RECV = 9,
  DRB_BARRIER = 10
};

typedef int32_t drb_reduce_op;
enum {
  DRB_SUM = 0,
  DRB_AVG = 1,
  DRB_PRODUCT = 2,
  DRB_MIN = 3,
  DRB_MAX = 4,
  DRB_BAND = 5,
  DRB_BOR = 6,
  DRB_BXOR = 7,
  DRB_PREMUL_SUM = 8 /* sum of factor * element */
};

#define DRB_ANY_RANK (-1)

/* One operation.  Ranks are the group's.
 *
 *   broadcast        outputs[0]; at the root it is what is sent, unless inputs[0] is given
 *   all_reduce       outputs[0], from inputs[0] if given, else in place
 *   reduce           as all_reduce; written at the root only
 *   all_gather       inputs[0] -> outputs[0] of world_size times its count, or world_size outputs,
 *                    which may differ in size (one form or the other on all ranks)
 *   gather           inputs[0] -> the same, at the root only
 *   scatter          at the root inputs[0] of world_size times the count, or world_size inputs,
 *                    which may differ in size -> outputs[0]
 *   reduce_scatter   inputs as of scatter, on every rank -> outputs[0]
 *   all_to_all       one input and one output, in equal parts or as the splits say; or world_size
 *                    of each.  No output is an input
 *   send, recv       inputs[0] to `peer`; outputs[0] from `peer`
 *   barrier          no tensors
 */
typedef struct drb_op {
  uint32_t size;
  drb_op_kind kind;
  drb_reduce_op reduce_op;
  int32_t root;
  int32_t peer; /* DRB_ANY_RANK: recv from any source, where the backend has it */
  uint32_t n_inputs;
  uint32_t n_outputs;
  uint32_t reserved;
  int64_t tag;
  double premul;             /* premul_sum's factor… */
  const void* premul_device; /* …unless it is one element of the tensors' dtype on their device */
  const drb_tensor* inputs;
  const drb_tensor* outputs;
  const uint64_t* input_splits; /* all_to_all: elements to each rank; NULL: equal parts */
  const uint64_t* output_splits;
} drb_op;

enum {
  DRB_CALL_ASYNC = 1u,
  /* Sends and receives that are a batch, if only of one: all ranks of the group take part in
   * connecting for it, if that is still to be done. */
  DRB_CALL_BATCH = 2u
};

/* How an operation is called.
 *
 * Synchronous: it is enqueued on `stream`, and what is enqueued there later sees its result;
 * submit() returns when it is enqueued (barrier: when it is done).  Asynchronous: it starts when
 * all that is on `stream` now is done, beside what is enqueued there later. */
typedef struct drb_call {
  uint32_t size;
  uint32_t flags;
  void* stream;       /* cudaStream_t; NULL: the default stream.  CPU backends: NULL */
  int64_t timeout_ms; /* from submit() to done; 0: the group's; negative is refused */
} drb_call;

/* Keys and values shared by the ranks, seen through the host.  The group's name is already part of
 * every key.  Each function returns DRB_OK, DRB_TIMEOUT, DRB_STORE, DRB_NETWORK or, if the host has
 * heard that the group has failed on another rank and nothing is to be waited for, DRB_BACKEND; and
 * comes back within its timeout, or else the store's own.  One call at a time on each clone. */
typedef struct drb_store {
  uint32_t size;
  uint32_t reserved;
  void* user; /* first argument of each */
  drb_status (*set)(void* user, const char* key, const void* value, uint64_t bytes);
  /* Waits for the key.  *bytes is the whole value's size, also when it is larger than capacity and
   * only the beginning is copied. */
  drb_status (*get)(void* user, const char* key, int64_t timeout_ms, void* value, uint64_t capacity,
                    uint64_t* bytes);
  /* Until all of them exist.  A timeout of 0 looks once. */
  drb_status (*wait)(void* user, const char* const* keys, uint32_t n, int64_t timeout_ms);
  drb_status (*add)(void* user, const char* key, int64_t delta, int64_t* sum);
  /* What the last call that failed on this clone failed with. */
  const char* (*last_error)(void* user);
  /* Another one on the same data, which may be used at the same time, and after the function it was
   * lent to has returned; until release(). */
  drb_status (*clone)(void* user, struct drb_store* out);
  void (*release)(void* user);
} drb_store;

typedef struct drb_option {
  const char* key;
  const char* value;
} drb_option;

enum {
  DRB_GROUP_EAGER = 1u /* connect in create(); needs device_index; the same on all ranks */
};

typedef struct drb_group_options {
  uint32_t size;
  uint32_t flags;
  int32_t rank;
  int32_t world_size;
  int32_t device_index; /* negative: that of the first operation's tensors */
  uint32_t n_options;
  int64_t timeout_ms;        /* of connecting, and of each operation; greater than 0 */
  const char* name;          /* as errors show it */
  const drb_store* store;    /* lent for the call; the backend clones it */
  const drb_option* options; /* the backend's own settings; an unknown key is an error */
} drb_group_options;

/* ------------------------------------------------------------------------------ what is answered
 */

typedef struct drb_group drb_group;
typedef struct drb_work drb_work;
typedef struct drb_registration drb_registration;

typedef int32_t drb_work_state;
enum { DRB_WORK_PENDING = 0, DRB_WORK_DONE = 1, DRB_WORK_FAILED = 2 };

enum {
  /* Block the calling thread until it is done, and not only the stream. */
  DRB_WAIT_HOST = 1u
};

/* For a flight recorder: sequence numbers count a group's submits, from 0; -1: none yet. */
typedef struct drb_progress {
  uint32_t size;
  uint32_t reserved;
  int64_t submitted;
  int64_t completed;
} drb_progress;

enum {
  DRB_CAN_SPLIT = 1u,
  DRB_CAN_SHRINK = 2u,
  DRB_CAN_COALESCE = 4u, /* else submit() is given one operation */
  DRB_CAN_REGISTER = 8u,
  DRB_CAN_ALLOCATE = 16u,
  DRB_CAN_TAG = 32u,      /* else tags are 0: order is the match */
  DRB_CAN_ANY_RANK = 64u, /* recv from any source */
  DRB_IS_STREAM_ORDERED = 128u
};

#define DRB_NO_COLOUR (-1)
enum { DRB_SHRINK_ABORT = 1u };

typedef struct drb_backend {
  uint32_t size;
  uint32_t abi;
  const char* name;      /* "nccl" */
  const char* devices;   /* "cuda"; several: "cpu,cuda" */
  uint32_t capabilities; /* DRB_CAN_… */
  int32_t device_type;   /* DLPack's, of the tensors it takes */
  int64_t default_timeout_ms;

  /* Can it run on this machine?  The answer in words goes to `text`, also a good one (versions). */
  drb_status (*probe)(char* text, uint64_t capacity);
  const char* (*last_error)(void);
  int32_t (*last_error_rank)(void); /* -1: nobody in particular */

  drb_status (*create)(const drb_group_options* options, drb_group** out);
  /* Waits for what was submitted and until all ranks are here, at most that long, then closes.  The
   * handle is gone whatever it returns.  Works stay valid. */
  drb_status (*destroy)(drb_group* group, int64_t timeout_ms);
  /* Ends all that is pending, here and (through the store) on the other ranks.  `reason` becomes
   * the error of each; culprit: the rank to blame, or -1.  Does not block.  destroy() is still due.
   */
  drb_status (*abort)(drb_group* group, const char* reason, int32_t culprit);
  /* DRB_OK, or what the group failed with. */
  drb_status (*check)(drb_group* group);
  drb_status (*progress)(drb_group* group, drb_progress* out);

  /* Several operations are carried out as one.  work NULL: nobody asks for it any more. */
  drb_status (*submit)(drb_group* group, const drb_op* const* ops, uint32_t n, const drb_call* call,
                       drb_work** work);

  /* Never blocks.  DRB_OK, whatever the state; why it failed: work_wait. */
  drb_status (*work_test)(drb_work* work, drb_work_state* state);
  /* What is enqueued on `stream` from now on sees the result.  With DRB_WAIT_HOST, or for a
   * barrier: returns when it is done, or after timeout_ms with DRB_TIMEOUT (it goes on
   * nevertheless; 0: it has only its own deadline).  What it failed with. */
  drb_status (*work_wait)(drb_work* work, void* stream, int64_t timeout_ms, uint32_t flags);
  /* As abort() of its group. */
  drb_status (*work_abort)(drb_work* work, const char* reason);
  int64_t (*work_sequence)(drb_work* work);
  /* Lets go of the handle; the operation goes on. */
  void (*work_release)(drb_work* work);

  /* Called by all ranks of `parent`.  Those of one colour (0 or more) become a group, ordered by
   * options->rank, which they must all know already; DRB_NO_COLOUR: *out is NULL, and of `options`
   * only timeout_ms counts. */
  drb_status (*split)(drb_group* parent, int32_t colour, const drb_group_options* options,
                      drb_group** out);
  /* Called by the ranks that stay.  DRB_SHRINK_ABORT: first ends what is pending on `parent`, which
   * is of no more use afterwards. */
  drb_status (*shrink)(drb_group* parent, const int32_t* exclude, uint32_t n, uint32_t flags,
                       const drb_group_options* options, drb_group** out);

  /* Memory that operations will use often, told once. */
  drb_status (*register_memory)(drb_group* group, void* data, uint64_t bytes,
                                drb_registration** out);
  drb_status (*deregister_memory)(drb_group* group, drb_registration* registration);
  /* Memory of the kind the backend likes best, on the calling thread's device. */
  drb_status (*allocate)(uint64_t bytes, void** out);
  drb_status (*deallocate)(void* data);
} drb_backend;

/* The one symbol that a backend exports, under the name DRB_ENTRY_SYMBOL. */
typedef const drb_backend* (*drb_entry)(uint32_t host_abi);

#ifdef __cplusplus
} /* extern "C" */
#endif
