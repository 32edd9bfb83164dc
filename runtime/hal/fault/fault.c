/* A device that misbehaves on purpose: wraps another one, and fails, delays, corrupts or hangs one
 * call, or delays every work by a pseudo-random time. Calls counted: mem_create, upload, download,
 * submit. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/rng.h"
#include "runtime/hal/hal.h"

enum { RING_WORKS = 2048, HANG_POLL_NS = 1000000 };

/* A wrapped work. A slot is free once the inner timeline has reached its signal. */
typedef struct {
  zr_hal_t *hal;
  zr_work_fn_t fn;
  void *context;
  zr_stream_id_t stream;
  uint64_t signal;
  int64_t delay_ns;
  bool hang;
} wrapped_t;

struct zr_hal_t {
  zr_hal_ops_t ops; /* the table is this object's own: its name has the inner one's in it */
  char name[64];
  zr_alloc_t *alloc;
  zr_fault_t fault;
  const zr_hal_ops_t *inner_ops;
  zr_hal_t *inner;
  int64_t n_calls;
  uint64_t n_submitted[ZR_N_STREAMS];
  wrapped_t *rings[ZR_N_STREAMS]; /* RING_WORKS each */
};

static bool hits(zr_hal_t *hal) {
  return ++hal->n_calls == hal->fault.at && hal->fault.random_seed == 0;
}

static bool any_failed(zr_hal_t *hal) {
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (hal->inner_ops->timeline(hal->inner, (zr_stream_id_t)s) == ZR_TIMELINE_FAILED) return true;
  }
  return false;
}

/* A blocking call that is hit: error, delay or hang. Corruption comes after the call. */
static zr_status_t misbehave(zr_hal_t *hal, const char *call) {
  switch (hal->fault.kind) {
    case ZR_FAULT_ERROR:
      return zr_fail(ZR_ERR_DEVICE, "%s: %s fails as asked (call %lld)", hal->name, call,
                     (long long)hal->n_calls);
    case ZR_FAULT_DELAY:
      zr_clock_sleep_ns(hal->fault.delay_ns);
      return ZR_OK;
    case ZR_FAULT_HANG:
      while (!any_failed(hal)) zr_clock_sleep_ns(HANG_POLL_NS);
      return zr_fail(ZR_ERR_DEVICE, "%s: %s hung until a stream failed", hal->name, call);
    case ZR_FAULT_NONE:
    case ZR_FAULT_CORRUPT:
      break;
  }
  return ZR_OK;
}

static void fault_close(zr_hal_t *hal) {
  if (!hal) return;
  if (hal->inner) hal->inner_ops->close(hal->inner);
  for (int s = 0; s < ZR_N_STREAMS; s++) zr_alloc_free(hal->alloc, hal->rings[s]);
  zr_alloc_free(hal->alloc, hal);
}

static zr_status_t fault_mem_create(zr_hal_t *hal, zr_tier_t tier, int64_t bytes,
                                    void **out_memory) {
  if (hits(hal)) ZR_TRY(misbehave(hal, "mem_create"));
  return hal->inner_ops->mem_create(hal->inner, tier, bytes, out_memory);
}

static void fault_mem_destroy(zr_hal_t *hal, zr_tier_t tier, void *memory, int64_t bytes) {
  hal->inner_ops->mem_destroy(hal->inner, tier, memory, bytes);
}

static zr_status_t fault_upload(zr_hal_t *hal, zr_tier_t tier, void *destination,
                                const void *source, int64_t bytes) {
  const bool hit = hits(hal);
  if (hit) ZR_TRY(misbehave(hal, "upload"));
  ZR_TRY(hal->inner_ops->upload(hal->inner, tier, destination, source, bytes));
  if (!hit || hal->fault.kind != ZR_FAULT_CORRUPT || bytes <= 0) return ZR_OK;
  /* The tier's memory may not be addressable here: the wrong byte goes the same way. */
  const int64_t place = bytes / 2;
  const unsigned char wrong = (unsigned char)(((const unsigned char *)source)[place] ^ 1u);
  return hal->inner_ops->upload(hal->inner, tier, (char *)destination + place, &wrong, 1);
}

static zr_status_t fault_download(zr_hal_t *hal, zr_tier_t tier, void *destination,
                                  const void *source, int64_t bytes) {
  const bool hit = hits(hal);
  if (hit) ZR_TRY(misbehave(hal, "download"));
  ZR_TRY(hal->inner_ops->download(hal->inner, tier, destination, source, bytes));
  if (hit && hal->fault.kind == ZR_FAULT_CORRUPT && bytes > 0) {
    ((unsigned char *)destination)[bytes / 2] ^= 1u;
  }
  return ZR_OK;
}

/* Runs on the stream's thread in place of the caller's work. */
static zr_status_t run_wrapped(void *context, int64_t iteration) {
  const wrapped_t wrapped = *(wrapped_t *)context;
  zr_hal_t *hal = wrapped.hal;
  if (wrapped.delay_ns > 0) zr_clock_sleep_ns(wrapped.delay_ns);
  if (wrapped.hang) {
    while (hal->inner_ops->timeline(hal->inner, wrapped.stream) != ZR_TIMELINE_FAILED) {
      zr_clock_sleep_ns(HANG_POLL_NS);
    }
    return zr_fail(ZR_ERR_TIMEOUT, "%s: work on %s hung until its stream failed", hal->name,
                   zr_stream_name(wrapped.stream));
  }
  return wrapped.fn ? wrapped.fn(wrapped.context, iteration) : ZR_OK;
}

static int64_t random_delay_ns(const zr_hal_t *hal, zr_stream_id_t stream) {
  if (hal->fault.delay_ns <= 0) return 0;
  const uint64_t bits = zr_rng_u64(hal->fault.random_seed,
                                   hal->n_submitted[stream] * ZR_N_STREAMS + (uint64_t)stream);
  return (int64_t)(bits % ((uint64_t)hal->fault.delay_ns + 1));
}

static zr_status_t fault_submit(zr_hal_t *hal, zr_stream_id_t stream, const zr_work_t *work) {
  const bool hit = hits(hal);
  if (hit && hal->fault.kind == ZR_FAULT_ERROR) return misbehave(hal, "submit");
  const bool random = hal->fault.random_seed != 0;
  const bool one = hit && (hal->fault.kind == ZR_FAULT_DELAY || hal->fault.kind == ZR_FAULT_HANG);
  const bool known = stream >= 0 && stream < ZR_N_STREAMS;
  if ((!random && !one) || !known) return hal->inner_ops->submit(hal->inner, stream, work);

  wrapped_t *slot = &hal->rings[stream][hal->n_submitted[stream] % RING_WORKS];
  /* On a failed stream slots are never freed and nothing runs: the inner device drops the work. */
  if (hal->inner_ops->wait(hal->inner, stream, slot->signal, -1) != ZR_OK) {
    return hal->inner_ops->submit(hal->inner, stream, work);
  }
  *slot = (wrapped_t){.hal = hal,
                      .fn = work->fn,
                      .context = work->context,
                      .stream = stream,
                      .signal = work->signal,
                      .delay_ns = random ? random_delay_ns(hal, stream) : hal->fault.delay_ns,
                      .hang = one && hal->fault.kind == ZR_FAULT_HANG};
  if (slot->hang) slot->delay_ns = 0;
  zr_work_t outer = *work;
  outer.fn = run_wrapped;
  outer.context = slot;
  const zr_status_t status = hal->inner_ops->submit(hal->inner, stream, &outer);
  if (status == ZR_OK) {
    hal->n_submitted[stream]++;
  } else {
    slot->signal = 0;
  }
  return status;
}

static uint64_t fault_timeline(zr_hal_t *hal, zr_stream_id_t stream) {
  return hal->inner_ops->timeline(hal->inner, stream);
}

static zr_status_t fault_wait(zr_hal_t *hal, zr_stream_id_t stream, uint64_t value,
                              int64_t timeout_ns) {
  return hal->inner_ops->wait(hal->inner, stream, value, timeout_ns);
}

static void fault_fail(zr_hal_t *hal, zr_stream_id_t stream, zr_status_t status,
                       const char *detail) {
  hal->inner_ops->fail(hal->inner, stream, status, detail);
}

static int64_t fault_time_ns(zr_hal_t *hal) {
  return hal->inner_ops->time_ns(hal->inner);
}

static const zr_hal_ops_t fault_ops = {
    .close = fault_close,
    .mem_create = fault_mem_create,
    .mem_destroy = fault_mem_destroy,
    .upload = fault_upload,
    .download = fault_download,
    .submit = fault_submit,
    .timeline = fault_timeline,
    .wait = fault_wait,
    .fail = fault_fail,
    .time_ns = fault_time_ns,
};

zr_status_t zr_hal_fault_open(zr_alloc_t *alloc, const zr_fault_t *fault,
                              const zr_hal_ops_t *inner_ops, zr_hal_t *inner,
                              const zr_hal_ops_t **out_ops, zr_hal_t **out_hal) {
  zr_hal_t *hal = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *hal, &hal));
  hal->alloc = alloc;
  zr_status_t status = ZR_OK;
  for (int s = 0; s < ZR_N_STREAMS && status == ZR_OK; s++) {
    status = zr_alloc_get(alloc, RING_WORKS, sizeof *hal->rings[s], &hal->rings[s]);
  }
  if (status != ZR_OK) {
    fault_close(hal); /* the inner device stays the caller's */
    return status;
  }
  hal->fault = *fault;
  hal->inner_ops = inner_ops;
  hal->inner = inner;
  snprintf(hal->name, sizeof hal->name, "fault(%s)", inner_ops->name);
  hal->ops = fault_ops;
  hal->ops.name = hal->name;
  *out_ops = &hal->ops;
  *out_hal = hal;
  return ZR_OK;
}
