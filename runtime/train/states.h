/* A unit's parameters and optimizer states between flats, wherever they live, and named tensors.
 * One thread (the loop's), streams drained; the pool helps.
 *
 * A flat holds several tensors with padding between them, and a rank may hold the whole flat or its
 * shard only. Here a *piece* is a run of elements of one tensor's state; pieces are visited unit by
 * unit, state by state, tensor by tensor, in bounded windows, so staging never exceeds
 * ZR_STATES_WINDOW_ELEMS floats.
 *
 * Parameters are seen as their exact fp32 masters, whatever type the device keeps them in. Of
 * 16-bit ones a rank holds the parameters of its flat or shard, and the rest of the masters
 * (zr_zero_unit_t.low) of what it updates: filling writes both, a share reads both. States of the
 * optimizer in bf16 are seen as fp32, and rounded to nearest when they are filled. */
#ifndef ZR_TRAIN_STATES_H
#define ZR_TRAIN_STATES_H

#include "runtime/base/pool.h"
#include "runtime/zero/zero.h"

/* The parameter, then the optimizer's own: kind - 1 is the place in zr_zero_unit_t.state. */
typedef enum { ZR_STATE_PARAM = 0, ZR_N_STATE_KINDS = 1 + ZR_MAX_STATES } zr_state_kind_t;

enum { ZR_STATES_WINDOW_ELEMS = 1 << 22 };

/* Reads or writes bytes of a persistent buffer: zr_exec_download and _upload, or a test's memory.
 */
typedef zr_status_t (*zr_states_get_fn_t)(void *context, int32_t buffer, int64_t offset,
                                          void *out_data, int64_t bytes);
typedef zr_status_t (*zr_states_put_fn_t)(void *context, int32_t buffer, int64_t offset,
                                          const void *data, int64_t bytes);

typedef struct {
  zr_alloc_t *alloc;
  const zr_zero_t *zero;
  int rank;
  zr_pool_t *pool;
  zr_states_get_fn_t get;
  zr_states_put_fn_t put;
  void *context;
} zr_states_t;

typedef struct {
  const zr_tape_tensor_t *tensor;
  int kind;           /* ZR_STATE_PARAM, or 1 + state of the optimizer */
  int64_t begin, end; /* elements of the tensor, row-major */
} zr_piece_t;

/* How many kinds there are here, and a tensor's name with the kind's: "lm_head.weight.exp_avg". */
int zr_states_n_kinds(const zr_zero_t *zero);
void zr_state_name(const zr_zero_t *zero, const zr_piece_t *piece, char *out_name,
                   size_t name_bytes);

/* data: [end - begin] floats; NULL when only places are asked for. */
typedef zr_status_t (*zr_piece_fn_t)(void *context, const zr_piece_t *piece, float *data);

/* The pieces of the shard that is this rank's to save, whole and without data. */
zr_status_t zr_states_list_share(const zr_states_t *states, zr_piece_fn_t fn,
                                 void *context) ZR_MUST_CHECK;
/* The same with data, cut into windows; concatenated they are the pieces above in the same order.
 */
zr_status_t zr_states_read_share(const zr_states_t *states, zr_piece_fn_t fn,
                                 void *context) ZR_MUST_CHECK;
/* Everything of one kind that this rank holds: fn fills data, padding becomes zero. */
zr_status_t zr_states_fill(const zr_states_t *states, int kind, zr_piece_fn_t fn,
                           void *context) ZR_MUST_CHECK;
/* Parameters from (seed, tensor name, index). */
zr_status_t zr_states_initialise(const zr_states_t *states, uint64_t seed) ZR_MUST_CHECK;
/* Names the first parameter of this rank's share that is not finite, or not in its 16-bit type:
 * ZR_ERR_NUMERIC; ZR_OK if there is none. */
zr_status_t zr_states_check_finite(const zr_states_t *states) ZR_MUST_CHECK;

#endif
