/* Versions and stream positions of a complete list. */
#include <string.h>

#include "runtime/plan/plan_internal.h"

static uint64_t hash_name(const char *name) {
  uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */
  for (; *name != 0; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3ull;
  return h;
}

zr_status_t zr_name_map_init(zr_name_map_t *map, const zr_plan_t *plan) {
  size_t n_slots = 16;
  while (n_slots < 2 * plan->n_buffers) n_slots *= 2;
  *map = (zr_name_map_t){.alloc = plan->alloc};
  ZR_TRY(zr_alloc_get(map->alloc, n_slots, sizeof *map->slot, &map->slot));
  map->n_slots = n_slots;
  for (size_t i = 0; i < plan->n_buffers; i++) {
    const char *name = plan->buffer[i].name;
    size_t at = hash_name(name) & (n_slots - 1);
    for (; map->slot[at] != 0; at = (at + 1) & (n_slots - 1)) {
      if (strcmp(plan->buffer[map->slot[at] - 1].name, name) != 0) continue;
      zr_name_map_fini(map);
      return zr_fail(ZR_ERR_INTERNAL, "plan %s: two buffers are named %s", plan->name, name);
    }
    map->slot[at] = (int32_t)i + 1;
  }
  return ZR_OK;
}

void zr_name_map_fini(zr_name_map_t *map) {
  zr_alloc_free(map->alloc, map->slot);
  *map = (zr_name_map_t){0};
}

int32_t zr_name_map_find(const zr_name_map_t *map, const zr_plan_t *plan, const char *name) {
  if (map->n_slots == 0) return -1;
  size_t at = hash_name(name) & (map->n_slots - 1);
  for (; map->slot[at] != 0; at = (at + 1) & (map->n_slots - 1)) {
    if (strcmp(plan->buffer[map->slot[at] - 1].name, name) == 0) return map->slot[at] - 1;
  }
  return -1;
}

static zr_status_t unwritten(const zr_plan_t *plan, size_t op, const zr_operand_t *operand) {
  char name[2 * ZR_PLAN_NAME_BYTES];
  zr_plan_op_name(plan, (int32_t)op, name, sizeof name);
  return zr_fail(ZR_ERR_INTERNAL, "plan %s: operation %zu (%s) reads %s before it is written",
                 plan->name, op, name, plan->buffer[operand->buffer].name);
}

typedef struct {
  uint32_t *version;
  uint8_t *used;
  uint8_t *written; /* some of it: the verifier looks at each byte */
} finish_t;

/* All reads of an operation see what was there before it; then its writes count up in operand
 * order. Scratch makes no value, so no version. */
static zr_status_t finish_op(zr_plan_t *plan, size_t at, const finish_t *state) {
  zr_op_t *op = &plan->op[at];
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    zr_operand_t *operand = &op->operand[i];
    if (operand->buffer < 0) continue;
    state->used[operand->buffer] = 1;
    bool transient = !plan->buffer[operand->buffer].persistent;
    if ((operand->access & ZR_READ) && transient && !state->written[operand->buffer])
      return unwritten(plan, at, operand);
    if (operand->access == ZR_READ) operand->version = state->version[operand->buffer];
  }
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    zr_operand_t *operand = &op->operand[i];
    if (operand->buffer < 0 || !(operand->access & ZR_WRITE)) continue;
    operand->version = ++state->version[operand->buffer];
    state->written[operand->buffer] = 1;
  }
  return ZR_OK;
}

static zr_status_t finish_list(zr_plan_t *plan, const finish_t *state) {
  int32_t count[ZR_N_STREAMS] = {0};
  for (size_t at = 0; at < plan->n_ops; at++) {
    zr_op_t *op = &plan->op[at];
    if (op->stream >= ZR_N_STREAMS)
      return zr_fail(ZR_ERR_INTERNAL, "plan %s: operation %zu is on stream %d", plan->name, at,
                     op->stream);
    ZR_TRY(finish_op(plan, at, state));
    op->stream_index = count[op->stream]++;
  }
  for (size_t i = 0; i < plan->n_buffers; i++) {
    if (!plan->buffer[i].persistent && !state->used[i])
      return zr_fail(ZR_ERR_INTERNAL, "plan %s: no operation uses buffer %s", plan->name,
                     plan->buffer[i].name);
  }
  memcpy(plan->stream_ops, count, sizeof count);
  return ZR_OK;
}

zr_status_t zr_plan_finish(zr_plan_t *plan) {
  if (plan->finished) return ZR_OK;
  zr_name_map_t names = {0};
  ZR_TRY(zr_name_map_init(&names, plan));
  zr_name_map_fini(&names);
  finish_t state = {0};
  zr_status_t status =
      zr_alloc_get(plan->alloc, plan->n_buffers, sizeof *state.version, &state.version);
  if (status == ZR_OK) status = zr_alloc_get(plan->alloc, plan->n_buffers, 1, &state.used);
  if (status == ZR_OK) status = zr_alloc_get(plan->alloc, plan->n_buffers, 1, &state.written);
  if (status == ZR_OK) status = finish_list(plan, &state);
  zr_alloc_free(plan->alloc, state.version);
  zr_alloc_free(plan->alloc, state.used);
  zr_alloc_free(plan->alloc, state.written);
  if (status == ZR_OK) plan->finished = true;
  return status;
}
