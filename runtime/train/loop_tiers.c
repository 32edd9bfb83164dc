/* What a run keeps on the host and on disk: opening it, saying it, wearing it. */
#include <string.h>

#include "runtime/plan/cost.h"
#include "runtime/train/loop_state.h"

static const zr_plan_t *step_plan(const zr_loop_t *loop) {
  return loop->zero->program->plan[loop->plan_step];
}

int32_t zr_loop_control(const zr_loop_t *loop) {
  const zr_zero_t *zero = loop->zero;
  return zero->control_away >= 0 ? zero->control_away : zero->control;
}

static bool is_auto(const zr_option_bytes_t *budget) {
  return budget->bytes < 0 && budget->share <= 0;
}

/* A budget that is auto is what the node has, and the host's memory is the device's too: both
 * arenas must fit it together. */
zr_status_t zr_loop_check_memory(const zr_loop_t *loop) {
  const int64_t *budget = loop->zero->options.place.budget_bytes;
  const int64_t *arena = step_plan(loop)->arena_bytes;
  zr_tier_t tier = is_auto(&loop->v->memory_device) ? ZR_TIER_DEVICE : ZR_TIER_HOST;
  if (tier == ZR_TIER_HOST && !is_auto(&loop->v->memory_host)) return ZR_OK;
  int64_t missing = arena[ZR_TIER_DEVICE] + arena[ZR_TIER_HOST] - budget[tier];
  if (missing <= 0) return ZR_OK;
  return zr_fail(
      ZR_ERR_OUT_OF_MEMORY,
      "device %lld and host %lld bytes are %lld more than this node has for a rank "
      "(%lld): give the device a budget (memory.device), put more on disk, or shard more",
      (long long)arena[ZR_TIER_DEVICE], (long long)arena[ZR_TIER_HOST], (long long)missing,
      (long long)budget[tier]);
}

/* --- the disk -------------------------------------------------------------------------------- */

static int64_t or_zero(int64_t value) {
  return value == ZR_OPTION_AUTO_INT ? 0 : value;
}

static int64_t whole_grains(int64_t bytes) {
  return (bytes + ZR_DISK_ALIGN_BYTES - 1) / ZR_DISK_ALIGN_BYTES * ZR_DISK_ALIGN_BYTES;
}

static zr_status_t open_disk(zr_loop_t *loop, int64_t bytes, int64_t node_bytes) {
  const zr_config_t *v = loop->v;
  zr_disk_options_t options = {.kind = v->disk_backend,
                               .path = (const char *const *)v->disk_path.items,
                               .n_paths = (int)v->disk_path.n_items,
                               .bytes = bytes,
                               .node_bytes = node_bytes,
                               .block_bytes = or_zero(v->disk_block_bytes),
                               .queue_depth = (int)or_zero(v->disk_depth),
                               .checksums = v->checksums != 0,
                               .rank = loop->rank};
  if (loop->options->open_disk == NULL) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "this program has no disk: choose other homes (plan.homes)");
  }
  return loop->options->open_disk(loop->alloc, &options, &loop->disk_ops, &loop->disk);
}

/* The first rank of a node asks for the space of all of them before the others take theirs. */
zr_status_t zr_loop_open_disk(zr_loop_t *loop) {
  zr_comm_info_t info = zr_job_info(loop->job);
  int64_t bytes = whole_grains(step_plan(loop)->arena_bytes[ZR_TIER_DISK]);
  if (bytes == 0) return ZR_OK;
  zr_status_t status = ZR_OK;
  if (info.local_rank == 0) status = open_disk(loop, bytes, bytes * info.n_local_ranks);
  ZR_TRY(zr_job_agree(loop->job, status));
  if (info.local_rank != 0) status = open_disk(loop, bytes, bytes);
  return zr_job_agree(loop->job, status);
}

zr_status_t zr_loop_disk_written(const zr_loop_t *loop, int64_t *out_bytes) {
  zr_disk_stats_t stats = {0};
  if (step_plan(loop)->arena_bytes[ZR_TIER_DISK] == 0) return ZR_OK;
  loop->disk_ops->stats(loop->disk, &stats);
  *out_bytes = stats.written_bytes;
  return zr_job_sum(loop->job, out_bytes, 1);
}

/* --- what is said of it ---------------------------------------------------------------------- */

static void say_homes(const zr_loop_t *loop) {
  const zr_zero_options_t *o = &loop->zero->options;
  char share[32] = "";
  if (o->home.optimizer != ZR_TIER_DEVICE && o->ratio > 0 && o->ratio < 1) {
    (void)snprintf(share, sizeof share, " (%.3g %% of them)", o->ratio * 100);
  }
  zr_events_say(loop->events,
                "  parameters live on the %s, gradients on the %s, optimizer states on the %s%s, "
                "activations on the %s; %lld slots of %lld elements",
                zr_tier_name((zr_tier_t)o->home.param), zr_tier_name((zr_tier_t)o->home.grad),
                zr_tier_name((zr_tier_t)o->home.optimizer), share,
                zr_tier_name((zr_tier_t)o->home.activation), (long long)o->n_slots,
                (long long)o->chunk_elems);
}

static const char *host_form(const zr_host_memory_t *host) {
  if (host->is_pinned) return host->is_huge ? "pinned, huge pages" : "pinned";
  return host->is_huge ? "not pinned, huge pages" : "not pinned";
}

void zr_loop_say_tiers(const zr_loop_t *loop) {
  const zr_plan_t *plan = step_plan(loop);
  char size[32], out[32], in[32];
  zr_account_t account;
  if (plan->arena_bytes[ZR_TIER_HOST] == 0 && plan->arena_bytes[ZR_TIER_DISK] == 0) return;
  zr_cost_account(plan, &account);
  say_homes(loop);
  const zr_host_memory_t *host = zr_exec_host_memory(loop->exec);
  if (plan->arena_bytes[ZR_TIER_HOST] > 0) {
    zr_events_bytes(plan->arena_bytes[ZR_TIER_HOST], size, sizeof size);
    zr_events_bytes(account.h2d_bytes, in, sizeof in);
    zr_events_bytes(account.d2h_bytes, out, sizeof out);
    zr_events_say(loop->events, "  host %s a rank%s%s; a step moves %s to the device, %s from it",
                  size, host->bytes > 0 ? ", " : "", host->bytes > 0 ? host_form(host) : "", in,
                  out);
  }
  if (loop->disk_ops == NULL) return;
  zr_events_bytes(plan->arena_bytes[ZR_TIER_DISK], size, sizeof size);
  zr_events_bytes(account.disk_read_bytes, in, sizeof in);
  zr_events_bytes(account.disk_write_bytes, out, sizeof out);
  zr_events_say(loop->events, "  disk %s a rank, %s; a step reads %s, writes %s", size,
                loop->disk_ops->describe(loop->disk), in, out);
}

json_t *zr_loop_tiers_json(const zr_loop_t *loop) {
  const zr_zero_options_t *o = &loop->zero->options;
  const zr_host_memory_t *host = zr_exec_host_memory(loop->exec);
  json_t *homes = json_pack("{s:s, s:s, s:s, s:s}", "param", zr_tier_name((zr_tier_t)o->home.param),
                            "grad", zr_tier_name((zr_tier_t)o->home.grad), "optimizer",
                            zr_tier_name((zr_tier_t)o->home.optimizer), "activation",
                            zr_tier_name((zr_tier_t)o->home.activation));
  json_t *object =
      json_pack("{s:o, s:b, s:b, s:s}", "homes", homes, "host_pinned", (int)host->is_pinned,
                "host_huge", (int)host->is_huge, "host_notice", host->notice);
  if (loop->disk_ops != NULL) {
    (void)json_object_set_new(object, "disk", json_string(loop->disk_ops->describe(loop->disk)));
  }
  return object;
}
