/* distrun/backend_abi.h is C, and its layout is what it was. */
#include <distrun/backend_abi.h>

#include <stddef.h>

_Static_assert(sizeof(drb_tensor) == 32, "fixed for ever: it is passed in arrays");
_Static_assert(offsetof(drb_tensor, device_type) == 20, "");
_Static_assert(sizeof(drb_op) == 88, "may only grow");
_Static_assert(offsetof(drb_op, tag) == 32, "");
_Static_assert(offsetof(drb_op, inputs) == 56, "");
_Static_assert(sizeof(drb_call) == 24, "may only grow");
_Static_assert(sizeof(drb_store) == 72, "may only grow");
_Static_assert(sizeof(drb_group_options) == 56, "may only grow");
_Static_assert(offsetof(drb_backend, probe) == 40, "");
_Static_assert(offsetof(drb_backend, deallocate) == 40 + 19 * sizeof(void (*)(void)), "");

/* As C calls it. */
drb_status drb_probe_from_c(drb_entry entry, char* text, uint64_t capacity);
drb_status drb_probe_from_c(drb_entry entry, char* text, uint64_t capacity) {
  const drb_backend* backend = entry(DRB_ABI);
  if (!backend || backend->abi != DRB_ABI || backend->size < sizeof(drb_backend)) {
    return DRB_UNSUPPORTED;
  }
  return backend->probe(text, capacity);
}
