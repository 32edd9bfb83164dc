/* Life of an executor: options, arenas, poison, the comparison of plans, destruction. */
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/exec/state.h"

enum { POISON_CHUNK_BYTES = 1 << 20 };

static const int64_t watchdog_default_ns = 300000000000;
static const int64_t rest_limit_ns = 30000000000;

void zr_exec_defaults(zr_exec_options_t *out_options) {
  memset(out_options, 0, sizeof *out_options);
  for (int p = 0; p < ZR_PROGRAM_MAX_PLANS; p++) out_options->control_buffer[p] = -1;
  out_options->watchdog_ns = watchdog_default_ns;
  out_options->poison = -1;
  out_options->trace_plan = -1;
}

static zr_status_t map_host(zr_exec_t *exec, int64_t bytes) {
  const zr_exec_options_t *o = &exec->options;
  zr_host_memory_t memory;
  ZR_TRY(o->host_map(bytes, o->pin_host, &memory));
  exec->host = memory;
  exec->arena[ZR_TIER_HOST] = memory.memory;
  if (memory.notice[0] && exec->rank == 0) zr_warn("%s", memory.notice);
  return ZR_OK;
}

/* In the order of tiers: a device that stores nothing needs no host memory and no disk either, and
 * a disk is told of the host memory. */
static zr_status_t create_arena(zr_exec_t *exec, zr_tier_t tier, int64_t bytes) {
  const zr_exec_options_t *o = &exec->options;
  if (tier == ZR_TIER_DISK) return exec->is_virtual ? ZR_OK : zr_exec_disk_open(exec, bytes);
  if (tier == ZR_TIER_HOST && o->host_map && !exec->is_virtual) return map_host(exec, bytes);
  ZR_TRY(o->hal_ops->mem_create(o->hal, tier, bytes, &exec->arena[tier]));
  if (!exec->arena[tier]) exec->is_virtual = true;
  return ZR_OK;
}

static zr_status_t create_arenas(zr_exec_t *exec) {
  for (int t = 0; t < ZR_N_TIERS; t++) {
    const int64_t bytes = exec->options.program->plan[0]->arena_bytes[t];
    if (!bytes) continue;
    ZR_TRY(create_arena(exec, (zr_tier_t)t, bytes));
    exec->arena_bytes[t] = bytes;
  }
  return ZR_OK;
}

static void destroy_arena(zr_exec_t *exec, zr_tier_t tier) {
  const zr_exec_options_t *o = &exec->options;
  if (tier == ZR_TIER_DISK) {
    zr_exec_disk_close(exec);
  } else if (tier == ZR_TIER_HOST && exec->host.bytes > 0) {
    o->host_unmap(&exec->host);
  } else if (exec->arena_bytes[tier] > 0) {
    o->hal_ops->mem_destroy(o->hal, tier, exec->arena[tier], exec->arena_bytes[tier]);
  }
}

static zr_status_t poison_arenas(zr_exec_t *exec) {
  const zr_exec_options_t *o = &exec->options;
  if (o->poison < 0 || exec->is_virtual) return ZR_OK;
  char *chunk = NULL;
  ZR_TRY(zr_alloc_get(exec->alloc, 1, POISON_CHUNK_BYTES, &chunk));
  memset(chunk, o->poison, POISON_CHUNK_BYTES);
  zr_status_t status = ZR_OK;
  for (int t = 0; t < ZR_TIER_DISK; t++) {
    for (int64_t at = 0; at < exec->arena_bytes[t] && status == ZR_OK; at += POISON_CHUNK_BYTES) {
      const int64_t left = exec->arena_bytes[t] - at;
      status = o->hal_ops->upload(o->hal, (zr_tier_t)t, (char *)exec->arena[t] + at, chunk,
                                  left < POISON_CHUNK_BYTES ? left : POISON_CHUNK_BYTES);
    }
  }
  zr_alloc_free(exec->alloc, chunk);
  if (status != ZR_OK || !exec->arena_bytes[ZR_TIER_DISK]) return status;
  return zr_exec_disk_fill(exec, o->poison);
}

/* One slot per rank and plan; a sum of vectors that are zero but for the own slots shows everyone
 * all of them. */
static zr_status_t exchange_hashes(zr_exec_t *exec, int64_t *slot, void *scratch) {
  const zr_exec_options_t *o = &exec->options;
  const int n_plans = o->program->n_plans;
  int64_t *mine = slot + (int64_t)exec->rank * n_plans;
  for (int p = 0; p < n_plans; p++) mine[p] = (int64_t)zr_plan_hash(o->program->plan[p]);
  ZR_TRY(o->comm_ops->all_reduce(o->comm, slot, (int64_t)exec->n_ranks * n_plans, scratch));
  for (int r = 0; r < exec->n_ranks; r++) {
    for (int p = 0; p < n_plans; p++) {
      const int64_t theirs = slot[r * n_plans + p];
      if (theirs == slot[p]) continue;
      return zr_fail(ZR_ERR_INTERNAL,
                     "rank %d compiled another plan '%s' than rank 0 (hash %016llx, not %016llx)",
                     r, o->program->plan[p]->name, (unsigned long long)theirs,
                     (unsigned long long)slot[p]);
    }
  }
  return ZR_OK;
}

static zr_status_t compare_plans(zr_exec_t *exec) {
  const zr_exec_options_t *o = &exec->options;
  if (exec->n_ranks == 1 || exec->is_virtual) return ZR_OK;
  const size_t n_slots = (size_t)(exec->n_ranks * o->program->n_plans);
  const int64_t scratch_bytes = o->comm_ops->scratch_bytes(o->comm, (int64_t)n_slots * 8);
  int64_t *slot = NULL;
  void *scratch = NULL;
  zr_status_t status = zr_alloc_get(exec->alloc, n_slots, sizeof *slot, &slot);
  if (status == ZR_OK) status = zr_alloc_get(exec->alloc, 1, (size_t)scratch_bytes, &scratch);
  if (status == ZR_OK) status = exchange_hashes(exec, slot, scratch);
  zr_alloc_free(exec->alloc, scratch);
  zr_alloc_free(exec->alloc, slot);
  return status;
}

static zr_status_t check_options(const zr_exec_options_t *o) {
  if (!o->program || o->program->n_plans < 1 || !o->hal_ops || !o->comm_ops) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "the executor needs a program, a device and ranks");
  }
  if (!o->host_map != !o->host_unmap) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "the executor needs host_map and host_unmap, or none");
  }
  const int n_ranks = o->comm_ops->info(o->comm).n_ranks;
  for (int p = 0; p < o->program->n_plans; p++) {
    const zr_plan_t *plan = o->program->plan[p];
    if (plan->n_ranks == n_ranks) continue;
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "plan '%s' is for %d ranks; there are %d", plan->name,
                   plan->n_ranks, n_ranks);
  }
  return ZR_OK;
}

static zr_status_t create_trace(zr_exec_t *exec) {
  const zr_exec_options_t *o = &exec->options;
  if (o->trace_count <= 0 || o->trace_plan < 0) return ZR_OK;
  if (o->trace_plan >= o->program->n_plans) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "there is no plan %d to trace", o->trace_plan);
  }
  const size_t n_ops = o->program->plan[o->trace_plan]->n_ops;
  return zr_alloc_get(exec->alloc, (size_t)o->trace_count * n_ops, sizeof *exec->event,
                      &exec->event);
}

/* The device may have served another executor: its timelines go on. */
static zr_status_t adopt_streams(zr_exec_t *exec, zr_exec_stream_t *stream) {
  const zr_exec_options_t *o = &exec->options;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    const uint64_t value = o->hal_ops->timeline(o->hal, (zr_stream_id_t)s);
    if (value == ZR_TIMELINE_FAILED) {
      return zr_fail(ZR_ERR_INVALID_ARGUMENT, "stream %s of the device has failed before",
                     zr_stream_name((zr_stream_id_t)s));
    }
    atomic_store(&stream[s].n_begun, value);
    stream[s].submitted = stream[s].start = stream[s].known_done = value;
  }
  exec->stream = stream;
  return ZR_OK;
}

static zr_status_t create_streams(zr_exec_t *exec) {
  zr_exec_stream_t *stream = NULL;
  ZR_TRY(zr_alloc_get(exec->alloc, ZR_N_STREAMS, sizeof *stream, &stream));
  const zr_status_t status = adopt_streams(exec, stream);
  if (status != ZR_OK) zr_alloc_free(exec->alloc, stream);
  return status;
}

static zr_status_t build(zr_exec_t *exec) {
  const zr_exec_options_t *o = &exec->options;
  ZR_TRY(create_streams(exec));
  ZR_TRY(create_arenas(exec));
  ZR_TRY(poison_arenas(exec));
  if (!exec->is_virtual && !o->kern_ops) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "the executor needs kernels");
  }
  for (int p = 0; p < o->program->n_plans; p++) ZR_TRY(zr_exec_plan_prepare(exec, p));
  ZR_TRY(create_trace(exec));
  return compare_plans(exec);
}

zr_status_t zr_exec_create(zr_alloc_t *alloc, const zr_exec_options_t *options,
                           zr_exec_t **out_exec) {
  ZR_TRY(check_options(options));
  zr_exec_t *exec = NULL;
  zr_status_t status = zr_alloc_get(alloc, 1, sizeof *exec, &exec);
  if (status != ZR_OK) goto fail;
  exec->alloc = alloc;
  exec->options = *options;
  const zr_comm_info_t info = options->comm_ops->info(options->comm);
  exec->rank = info.rank;
  exec->n_ranks = info.n_ranks;
  exec->current = -1;
  exec->last_stream = -1;
  for (int k = 0; k < ZR_CONTROL_RECORDS; k++) exec->kept[k].plan = -1;
  status = build(exec);
  if (status != ZR_OK) goto fail;
  exec->created_ns = options->hal_ops->time_ns(options->hal);
  exec->sent_before_bytes = options->comm_ops->sent_bytes(options->comm);
  *out_exec = exec;
  return ZR_OK;

fail:;
  char detail[ZR_DETAIL_BYTES]; /* kept: destroying may write another one */
  snprintf(detail, sizeof detail, "%s", zr_detail());
  if (status == ZR_ERR_PEER) status = zr_exec_failure_of_peer(exec, detail);
  if (status == ZR_OK) status = ZR_ERR_PEER; /* it is gone without a word */
  /* The others are on their way to the comparison of plans and would wait there for ever. */
  if (status != ZR_ERR_PEER && options->comm_ops->info(options->comm).n_ranks > 1) {
    options->comm_ops->abort(options->comm, status, detail);
  }
  zr_exec_destroy(exec);
  zr_detail_set(detail);
  return status;
}

void zr_exec_destroy(zr_exec_t *exec) {
  if (!exec) return;
  const zr_exec_options_t *o = &exec->options;
  if (exec->stream && zr_exec_wait(exec) != ZR_OK && !zr_exec_at_rest(exec, rest_limit_ns)) {
    /* Memory that an operation still writes to can not be given back. */
    zr_error("rank %d: an operation does not end; its memory is left behind", exec->rank);
    return;
  }
  for (int p = 0; p < o->program->n_plans; p++) zr_exec_plan_release(exec, p);
  for (int t = 0; t < ZR_N_TIERS; t++) destroy_arena(exec, (zr_tier_t)t);
  zr_alloc_free(exec->alloc, exec->event);
  zr_alloc_free(exec->alloc, exec->stream);
  zr_alloc_free(exec->alloc, exec);
}
