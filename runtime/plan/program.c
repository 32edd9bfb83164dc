#include "runtime/plan/program.h"

#include <string.h>

zr_status_t zr_program_create(zr_alloc_t *alloc, zr_program_t **out_program) {
  if (alloc == NULL) alloc = zr_alloc_default();
  zr_program_t *program = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *program, &program));
  program->alloc = alloc;
  *out_program = program;
  return ZR_OK;
}

void zr_program_destroy(zr_program_t *program) {
  if (program == NULL) return;
  for (int i = 0; i < program->n_plans; i++) zr_plan_destroy(program->plan[i]);
  zr_alloc_free(program->alloc, program);
}

static int32_t count_persistent(const zr_plan_t *plan) {
  int32_t n = 0;
  while ((size_t)n < plan->n_buffers && plan->buffer[n].persistent) n++;
  return n;
}

static bool same_buffer(const zr_buffer_t *a, const zr_buffer_t *b) {
  return strcmp(a->name, b->name) == 0 && a->tier == b->tier && a->category == b->category &&
         a->dtype == b->dtype && a->bytes == b->bytes;
}

static zr_status_t check_joins(const zr_program_t *program, const zr_plan_t *plan) {
  if (program->n_plans == ZR_PROGRAM_MAX_PLANS)
    return zr_fail(ZR_ERR_INTERNAL, "program: more than %d plans", ZR_PROGRAM_MAX_PLANS);
  if (zr_program_find(program, plan->name) != NULL)
    return zr_fail(ZR_ERR_INTERNAL, "program: two plans are named %s", plan->name);
  if (program->n_plans == 0) return ZR_OK;
  const zr_plan_t *first = program->plan[0];
  if (plan->n_ranks != first->n_ranks)
    return zr_fail(ZR_ERR_INTERNAL, "program: plan %s is for %d ranks, plan %s for %d", plan->name,
                   plan->n_ranks, first->name, first->n_ranks);
  int32_t n = count_persistent(plan);
  if (n != program->n_persistent)
    return zr_fail(ZR_ERR_INTERNAL, "program: plan %s has %d persistent buffers, plan %s has %d",
                   plan->name, n, first->name, program->n_persistent);
  for (int32_t i = 0; i < n; i++) {
    if (!same_buffer(&plan->buffer[i], &first->buffer[i]))
      return zr_fail(ZR_ERR_INTERNAL,
                     "program: persistent buffer %d is %s in plan %s, %s in plan "
                     "%s, or differs in size or type",
                     i, plan->buffer[i].name, plan->name, first->buffer[i].name, first->name);
  }
  return ZR_OK;
}

zr_status_t zr_program_add(zr_program_t *program, zr_plan_t *plan) {
  zr_status_t status = check_joins(program, plan);
  if (status != ZR_OK) {
    zr_plan_destroy(plan);
    return status;
  }
  if (program->n_plans == 0) program->n_persistent = count_persistent(plan);
  program->plan[program->n_plans++] = plan;
  return ZR_OK;
}

zr_plan_t *zr_program_find(const zr_program_t *program, const char *name) {
  for (int i = 0; i < program->n_plans; i++) {
    if (strcmp(program->plan[i]->name, name) == 0) return program->plan[i];
  }
  return NULL;
}

void zr_place_defaults(zr_place_options_t *out_options) {
  *out_options = (zr_place_options_t){0};
  out_options->lag_phases[ZR_STREAM_COMM] = 1;
  out_options->lag_phases[ZR_STREAM_H2D] = 1;
  out_options->lag_phases[ZR_STREAM_D2H] = 1;
}
