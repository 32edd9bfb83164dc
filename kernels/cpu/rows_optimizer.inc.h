/* Optimizers: the same bits in every instruction set, and in kernels/ref. The operations and their
 * order are those of kernels/adamw.h and kernels/optimizer.h. */
#ifndef ZR_KERNELS_CPU_ROWS_OPTIMIZER_INC_H
#define ZR_KERNELS_CPU_ROWS_OPTIMIZER_INC_H

#include "kernels/cpu/rows.h"
#include "kernels/cpu/rows_update.inc.h"
#include "kernels/cpu/vec.h"
#include "kernels/optimizer.h"

/* --- formulas --------------------------------------------------------------------------------- */

static inline void adamw_vector(const zr_cpu_update_t *c, vf *p, vf g, vf *m, vf *v) {
  *m = v_fma_exact(v_set(c->one_minus_beta1), g - *m, *m);
  *v = v_fma_exact(v_set(c->one_minus_beta2), g * g, c->beta2 * *v);
  vf d = v_sqrt(*v) * c->inv_sqrt_bias2 + c->eps;
  *p = v_fma_exact(v_set(-c->step_size), *m / d, *p);
}

static inline void sgd_vector(const zr_cpu_update_t *c, int has_buffer, vf *p, vf g, vf *buffer) {
  if (has_buffer) {
    *buffer = v_fma_exact(v_set(c->momentum), *buffer, c->gain * g);
    g = c->nesterov ? v_fma_exact(v_set(c->momentum), *buffer, g) : *buffer;
  }
  *p = v_fma_exact(v_set(-c->step_size), g, *p);
}

static inline void lion_vector(const zr_cpu_update_t *c, vf *p, vf g, vf *m) {
  vf turn = v_fma_exact(v_set(c->one_minus_beta1), g - *m, *m);
  *m = v_fma_exact(v_set(c->one_minus_beta2), g - *m, *m);
  vf sign = (vf)(((turn > 0) & (vi)v_set(1.0f)) | ((turn < 0) & (vi)v_set(-1.0f)));
  *p = v_fma_exact(v_set(-c->step_size), sign, *p);
}

static inline void adagrad_vector(const zr_cpu_update_t *c, vf *p, vf g, vf *sum) {
  *sum = v_fma_exact(g, g, *sum);
  vf d = v_sqrt(*sum) + c->eps;
  *p = v_fma_exact(v_set(-c->step_size), g / d, *p);
}

/* --- operands --------------------------------------------------------------------------------- */

/* What holds an element's fp32 master. */
typedef struct {
  elem *p;
#if ZR_ELEM == 16
  uint16_t *low;
#elif ZR_ELEM == 5
  float *low;
#endif
} master_t;

/* n lanes of masters from i on. */
static inline vf master_load(const master_t *a, int64_t i, int64_t n) {
#if ZR_ELEM == 16
  vs high = vs_load_n(a->p + i, n), low = vs_load_n(a->low + i, n);
  vi signed_low = (vi)(vs_widen(low) << 16) >> 16;
  return (vf)((vs_widen(high) << 16) + (vu)signed_low);
#elif ZR_ELEM == 5
  return v_load_n(a->low + i, n);
#else
  return e_load_n(a->p + i, n);
#endif
}

/* Stores n lanes; -1 in the lanes whose parameter, as it is read by kernels, is not finite. */
static inline vi master_store(const master_t *a, int64_t i, int64_t n, vf x) {
#if ZR_ELEM == 16
  vu bits = (vu)x;
  vi nan = (vi)((bits & 0x7fffffffu) > 0x7f800000u);
  vu high = (vu)((nan & (vi)(bits >> 16 | 0x40u)) | (~nan & (vi)((bits + 0x8000u) >> 16)));
  vs_store_n(a->p + i, vs_narrow(high), n);
  vs_store_n(a->low + i, vs_narrow((vu)((vi)bits & ~nan)), n);
  return (vi)((high & 0x7f80u) == 0x7f80u);
#elif ZR_ELEM == 5
  vs half = E_ROUND(x);
  v_store_n(a->low + i, x, n);
  vs_store_n(a->p + i, half, n);
  return (vi)((vs_widen(half) & 0x7c00u) == 0x7c00u);
#else
  e_store_n(a->p + i, x, n);
  return ((vi)x & 0x7f800000) == 0x7f800000;
#endif
}

static inline vf gradient_load(const void *g, zr_cpu_type_t type, int64_t i, int64_t n) {
  if (type == ZR_CPU_F32) return v_load_n((const float *)g + i, n);
  vs half = vs_load_n((const uint16_t *)g + i, n);
  return type == ZR_CPU_BF16 ? v_of_bf16(half) : v_of_f16(half);
}

/* What is constant where a loop is compiled. */
typedef struct {
  int32_t kind;
  zr_cpu_type_t g_type;
  int half_states;
} update_form_t;

static inline vf state_load(const void *state, int half, int64_t i, int64_t n) {
  if (state == NULL) return v_set(0);
  return half ? v_of_bf16(vs_load_n((const uint16_t *)state + i, n))
              : v_load_n((const float *)state + i, n);
}

/* zr_bf16_round_random; random: 16 bits of each lane. */
static inline vs round_random(vf x, vu random) {
  vu bits = (vu)x;
  vi special = (bits & 0x7f800000u) == 0x7f800000u;
  vu quiet = ((vu)((bits & 0x7fffffu) != 0)) & 0x40u;
  return vs_narrow(((vu)special & (bits >> 16 | quiet)) | ((vu)~special & ((bits + random) >> 16)));
}

static inline void state_store(void *state, float *seen, int half, int64_t i, int64_t n, vf x,
                               vu random) {
  if (state == NULL) return;
  if (half) {
    vs stored = round_random(x, random);
    vs_store_n((uint16_t *)state + i, stored, n);
    if (seen != NULL) v_store_n(seen + i, v_of_bf16(stored), n);
  } else {
    v_store_n((float *)state + i, x, n);
  }
}

/* zr_state_round_bits of the lanes from an element on; of its first lane alone if that is odd. */
static inline vu random_bits(uint64_t key, uint64_t index) {
  const uint64_t stride = 0x9e3779b97f4a7c15ull;
  if (index & 1) {
    vu first = {0};
    first[0] = zr_state_round_bits(key, index);
    return first;
  }
  vq counter = {0};
  for (int l = 0; l < ZR_VEC / 2; l++) counter[l] = key + ((index >> 1) + (uint64_t)l) * stride;
  return (vu)mix_vector(counter);
}

/* n lanes from element i on; -1 in those whose parameter is not finite. */
__attribute__((always_inline)) static inline vi update_lanes(const zr_cpu_update_t *c,
                                                             const zr_cpu_update_range_t *r,
                                                             const master_t *master,
                                                             const update_form_t form, int64_t i,
                                                             int64_t n) {
  vf p = master_load(master, i, n), g = gradient_load(r->g, form.g_type, i, n);
  vf first = state_load(r->state[0], form.half_states, i, n), second = v_set(0);
  if (form.kind == ZR_OP_ADAMW) second = state_load(r->state[1], form.half_states, i, n);
  vu random = {0};
  if (form.half_states) random = random_bits(r->round_key, r->index + (uint64_t)i);
  g *= c->clip_coef;
  if (c->use_l2) g = v_fma_exact(v_set(c->l2), p, g);
  if (c->decays) p *= c->decay_mul;
  if (form.kind == ZR_OP_SGD) sgd_vector(c, r->state[0] != NULL, &p, g, &first);
  if (form.kind == ZR_OP_LION) lion_vector(c, &p, g, &first);
  if (form.kind == ZR_OP_ADAGRAD) adagrad_vector(c, &p, g, &first);
  if (form.kind == ZR_OP_ADAMW) adamw_vector(c, &p, g, &first, &second);
  state_store(r->state[0], r->seen[0], form.half_states, i, n, first, random & 0xffffu);
  if (form.kind == ZR_OP_ADAMW)
    state_store(r->state[1], r->seen[1], form.half_states, i, n, second, random >> 16);
  if (r->master != NULL) v_store_n(r->master + i, p, n);
  return master_store(master, i, n, p);
}

__attribute__((always_inline)) static inline int64_t update_form(const zr_cpu_update_t *c,
                                                                 int64_t n,
                                                                 const zr_cpu_update_range_t *r,
                                                                 const update_form_t form) {
#if ZR_ELEM == 32
  const master_t master = {r->p};
#else
  const master_t master = {r->p, r->low};
#endif
  vi bad = {0};
  int64_t i = 0, n_bad = 0;
  if (form.half_states && (r->index & 1) && n > 0) {
    bad += update_lanes(c, r, &master, form, 0, 1) & (v_lane_index() < 1);
    i = 1;
  }
  for (; i + ZR_VEC <= n; i += ZR_VEC) bad += update_lanes(c, r, &master, form, i, ZR_VEC);
  if (i < n)
    bad += update_lanes(c, r, &master, form, i, n - i) & (v_lane_index() < (int32_t)(n - i));
  for (int l = 0; l < ZR_VEC; l++) n_bad -= bad[l];
  return n_bad;
}

/* AdamW with fp32 states, which most runs have, has a loop for each type of gradients. */
static inline int64_t update_range(const zr_cpu_update_t *c, int64_t n,
                                   const zr_cpu_update_range_t *r) {
  update_form_t form = {c->kind, r->g_type, r->half_states};
#define UPDATE(k) update_form(c, n, r, (update_form_t){k, form.g_type, form.half_states})
#define ADAMW(type) update_form(c, n, r, (update_form_t){ZR_OP_ADAMW, type, 0})
  if (form.kind == ZR_OP_SGD) return UPDATE(ZR_OP_SGD);
  if (form.kind == ZR_OP_LION) return UPDATE(ZR_OP_LION);
  if (form.kind == ZR_OP_ADAGRAD) return UPDATE(ZR_OP_ADAGRAD);
  if (form.half_states) return update_form(c, n, r, (update_form_t){ZR_OP_ADAMW, form.g_type, 1});
  if (form.g_type == ZR_CPU_F32) return ADAMW(ZR_CPU_F32);
  if (form.g_type == ZR_CPU_BF16) return ADAMW(ZR_CPU_BF16);
  return ADAMW(ZR_CPU_F16);
#undef UPDATE
#undef ADAMW
}

#endif
