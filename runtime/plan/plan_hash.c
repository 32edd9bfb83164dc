/* Hashes over a canonical serialisation: every number as a little-endian 64-bit word, in a fixed
 * order, strings as length and bytes. Padding and capacities do not count. */
#include <string.h>
/* The state on the stack: hashing allocates nothing. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "runtime/plan/plan.h"

enum { WORDS = 512 };

typedef struct {
  XXH64_state_t state;
  uint8_t pending[WORDS * 8];
  size_t n_bytes;
} hasher_t;

static void flush(hasher_t *h) {
  XXH64_update(&h->state, h->pending, h->n_bytes);
  h->n_bytes = 0;
}

static void put(hasher_t *h, int64_t value) {
  uint64_t word = (uint64_t)value;
  if (h->n_bytes == sizeof h->pending) flush(h);
  for (int i = 0; i < 8; i++) h->pending[h->n_bytes++] = (uint8_t)(word >> (8 * i));
}

static void put_text(hasher_t *h, const char *text) {
  size_t length = strlen(text);
  put(h, (int64_t)length);
  flush(h);
  XXH64_update(&h->state, text, length);
}

static void begin(hasher_t *h) {
  XXH64_reset(&h->state, 0);
  h->n_bytes = 0;
}

static uint64_t end(hasher_t *h) {
  flush(h);
  return XXH64_digest(&h->state);
}

static void put_shape(hasher_t *h, const zr_kern_shape_t *shape) {
  int64_t real_bits = 0;
  memcpy(&real_bits, &shape->real, sizeof real_bits);
  put(h, shape->kind);
  put(h, shape->accumulate);
  put(h, shape->present);
  put(h, real_bits);
  for (int i = 0; i < ZR_MAX_ATTRS; i++) put(h, shape->attr[i]);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) put(h, shape->dtype[i]);
}

static void put_op(hasher_t *h, const zr_op_t *op) {
  put_shape(h, &op->shape);
  put(h, op->stream);
  put(h, op->unit);
  put(h, op->micro);
  put(h, op->phase);
  put(h, op->stream_index);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    const zr_operand_t *operand = &op->operand[i];
    put(h, operand->buffer);
    if (operand->buffer < 0) continue;
    put(h, operand->version);
    put(h, operand->offset);
    put(h, operand->bytes);
    put(h, operand->rank_stride);
    put(h, operand->access);
    put(h, operand->dtype);
  }
  put(h, op->n_waits);
  for (int i = 0; i < op->n_waits; i++) {
    put(h, op->wait[i].op);
    put(h, op->wait[i].back);
    put(h, op->wait[i].placement_only);
  }
}

uint64_t zr_plan_hash(const zr_plan_t *plan) {
  hasher_t h;
  begin(&h);
  put_text(&h, plan->name);
  put(&h, plan->n_ranks);
  put(&h, plan->finished);
  put(&h, (int64_t)plan->n_units);
  for (size_t i = 0; i < plan->n_units; i++) put_text(&h, plan->unit_name[i]);
  put(&h, (int64_t)plan->n_buffers);
  for (size_t i = 0; i < plan->n_buffers; i++) {
    const zr_buffer_t *buffer = &plan->buffer[i];
    put_text(&h, buffer->name);
    put(&h, buffer->tier);
    put(&h, buffer->category);
    put(&h, buffer->dtype);
    put(&h, buffer->persistent);
    put(&h, buffer->bytes);
    put(&h, buffer->offset);
  }
  put(&h, (int64_t)plan->n_ops);
  for (size_t i = 0; i < plan->n_ops; i++) put_op(&h, &plan->op[i]);
  for (int tier = 0; tier < ZR_N_TIERS; tier++) put(&h, plan->arena_bytes[tier]);
  return end(&h);
}

uint64_t zr_plan_collective_hash(const zr_plan_t *plan) {
  hasher_t h;
  begin(&h);
  put(&h, plan->n_ranks);
  for (size_t i = 0; i < plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    if (!zr_op_row(op->shape.kind)->collective) continue;
    put_shape(&h, &op->shape);
    put(&h, op->stream);
    for (int j = 0; j < ZR_MAX_OPERANDS; j++)
      put(&h, op->operand[j].buffer < 0 ? -1 : op->operand[j].bytes);
  }
  return end(&h);
}
