/* Flats: where each tensor of a unit lies, and how the flat is cut into shards. */
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/base/rng.h"
#include "runtime/zero/build.h"

static int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

static void layout_unit(zr_zero_t *zero, int32_t index, int32_t *next_tensor) {
  zr_zero_unit_t *unit = &zero->unit[index];
  memcpy(unit->name, zero->tape->unit_name[index], sizeof unit->name);
  unit->first_tensor = *next_tensor;
  int64_t end = 0;
  for (size_t t = 0; t < zero->tape->n_tensors; t++) {
    const zr_tape_tensor_t *tensor = &zero->tape->tensor[t];
    if (tensor->unit != index) continue;
    zero->flat_tensor[(*next_tensor)++] = (zr_flat_tensor_t){
        .tensor = (int32_t)t, .begin = end, .elems = tensor->rows * tensor->cols};
    end = round_up(end + tensor->padded_rows * tensor->cols, ZR_FLAT_ALIGN_ELEMS);
    zero->n_params += tensor->rows * tensor->cols;
  }
  unit->n_tensors = *next_tensor - unit->first_tensor;
  unit->shard_elems =
      round_up((end + zero->options.n_ranks - 1) / zero->options.n_ranks, ZR_BLOCK_ELEMS);
  unit->flat_elems = unit->shard_elems * zero->options.n_ranks;
  zero->n_params_padded += unit->flat_elems;
}

zr_status_t zr_flat_layout(zr_zero_t *zero) {
  zero->n_units = zero->tape->n_units;
  ZR_TRY(zr_alloc_get(zero->alloc, zero->n_units, sizeof *zero->unit, &zero->unit));
  ZR_TRY(zr_alloc_get(zero->alloc, zero->tape->n_tensors, sizeof *zero->flat_tensor,
                      &zero->flat_tensor));
  int32_t next_tensor = 0;
  for (size_t u = 0; u < zero->n_units; u++) layout_unit(zero, (int32_t)u, &next_tensor);
  return ZR_OK;
}

zr_status_t zr_zero_layout(const zr_zero_t *zero, size_t index, zr_kern_layout_t **out_layout,
                           int64_t *out_bytes) {
  const zr_zero_unit_t *unit = &zero->unit[index];
  size_t bytes = sizeof(zr_kern_layout_t) + (size_t)unit->n_tensors * sizeof(zr_kern_tensor_t);
  zr_kern_layout_t *layout = NULL;
  ZR_TRY(zr_alloc_get(zero->alloc, 1, bytes, &layout));
  layout->n_tensors = unit->n_tensors;
  for (int32_t t = 0; t < unit->n_tensors; t++) {
    const zr_flat_tensor_t *flat = &zero->flat_tensor[unit->first_tensor + t];
    const zr_tape_tensor_t *tensor = &zero->tape->tensor[flat->tensor];
    zr_kern_tensor_t *out = &layout->tensor[t];
    out->begin = flat->begin;
    out->end = flat->begin + flat->elems;
    out->decays = !zero->options.decay_matrices || tensor->n_dims > 1;
    for (uint64_t k = 0; k < 3; k++)
      out->digest_key[k] = zr_rng_key(ZR_DIGEST_PARAM + k, tensor->name);
  }
  *out_layout = layout;
  *out_bytes = (int64_t)bytes;
  return ZR_OK;
}
