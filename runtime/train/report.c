#include "runtime/train/report.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/plan/cost.h"
#include "runtime/plan/place.h"
#include "runtime/plan/text.h"
#include "runtime/train/events.h"
#include "runtime/train/files.h"

void zr_report_hash(const zr_zero_t *zero, char out_text[17]) {
  uint64_t hash = 0;
  for (int i = 0; i < zero->program->n_plans; ++i) {
    hash = zr_mix64(hash + zr_plan_hash(zero->program->plan[i]));
  }
  (void)snprintf(out_text, 17, "%016llx", (unsigned long long)hash);
}

static void print_size(FILE *out, const char *name, int64_t bytes) {
  char text[32];
  zr_events_bytes(bytes, text, sizeof text);
  (void)fprintf(out, "  %-28s %16lld  %10s\n", name, (long long)bytes, text);
}

static void print_tier(const zr_zero_t *zero, const zr_account_t *step, int tier, FILE *out) {
  const zr_plan_t *plan = zr_program_find(zero->program, "step");
  if (plan->arena_bytes[tier] == 0) return;
  (void)fprintf(out, "\nmemory: %s, each rank, bytes\n", zr_tier_name((zr_tier_t)tier));
  for (int c = 0; c < ZR_N_CATEGORIES; ++c) {
    int64_t persistent = step->persistent_bytes[tier][c];
    if (persistent == 0) continue;
    char name[48];
    (void)snprintf(name, sizeof name, "%s (kept)", zr_category_name((zr_category_t)c));
    print_size(out, name, persistent);
  }
  int64_t at_peak[ZR_N_CATEGORIES];
  int32_t op = -1;
  zr_place_peak(plan, (zr_tier_t)tier, &op, at_peak);
  for (int c = 0; c < ZR_N_CATEGORIES; ++c) {
    int64_t transient = at_peak[c] - step->persistent_bytes[tier][c];
    if (transient <= 0) continue;
    char name[48];
    (void)snprintf(name, sizeof name, "%s (at the peak)", zr_category_name((zr_category_t)c));
    print_size(out, name, transient);
  }
  print_size(out, "lower bound of the step", plan->lower_bound_bytes[tier]);
  print_size(out, "peak of the step", plan->peak_bytes[tier]);
  print_size(out, "allocated, once", plan->arena_bytes[tier]);
}

static void print_units(const zr_zero_t *zero, FILE *out) {
  (void)fprintf(out, "\n%-20s %8s %14s %14s  %s\n", "unit", "tensors", "elements", "shard",
                "kept here");
  for (size_t u = 0; u < zero->n_units; ++u) {
    const zr_zero_unit_t *unit = &zero->unit[u];
    (void)fprintf(out, "%-20s %8d %14lld %14lld  parameters %s, moments %s\n", unit->name,
                  unit->n_tensors, (long long)unit->flat_elems, (long long)unit->shard_elems,
                  unit->param_sharded ? "1/N" : "whole", unit->optimizer_sharded ? "1/N" : "whole");
  }
}

static bool is_any_away(const zr_homes_t *home) {
  return home->param != ZR_TIER_DEVICE || home->grad != ZR_TIER_DEVICE ||
         home->optimizer != ZR_TIER_DEVICE || home->activation != ZR_TIER_DEVICE;
}

static void print_homes(const zr_zero_options_t *o, FILE *out) {
  const zr_homes_t *home = &o->home;
  if (!is_any_away(home)) return;
  (void)fprintf(out, "homes: parameters %s, gradients %s, optimizer %s, activations %s; ",
                zr_tier_name((zr_tier_t)home->param), zr_tier_name((zr_tier_t)home->grad),
                zr_tier_name((zr_tier_t)home->optimizer),
                zr_tier_name((zr_tier_t)home->activation));
  if (home->optimizer != ZR_TIER_DEVICE && o->ratio < 1) {
    (void)fprintf(out, "%.6g of the optimizer's elements, the rest on the device; ", o->ratio);
  }
  (void)fprintf(out, "%lld slots of %lld elements\n", (long long)o->n_slots,
                (long long)o->chunk_elems);
}

static void print_links(const zr_account_t *step, FILE *out) {
  const struct {
    const char *name;
    int64_t bytes;
  } rows[] = {{"host to device", step->h2d_bytes},
              {"device to host", step->d2h_bytes},
              {"disk to host", step->disk_read_bytes},
              {"host to disk", step->disk_write_bytes}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    if (rows[i].bytes > 0) print_size(out, rows[i].name, rows[i].bytes);
  }
}

static const char *recompute_name(const zr_zero_options_t *options) {
  static const char *const name[] = {"none", "attention", "full"};
  return name[options->recompute];
}

void zr_report_print(const zr_zero_t *zero, FILE *out) {
  const zr_zero_options_t *o = &zero->options;
  const zr_plan_t *plan = zr_program_find(zero->program, "step");
  zr_account_t step;
  char hash[17];
  zr_cost_account(plan, &step);
  zr_report_hash(zero, hash);
  (void)fprintf(out,
                "plan %s: stage %d, %d rank%s, %lld micro-batch%s of %lld x %lld tokens each, "
                "order %s, group 2^%lld, prefetch %lld, recompute %s\n",
                hash, o->stage, o->n_ranks, o->n_ranks == 1 ? "" : "s", (long long)o->n_micro,
                o->n_micro == 1 ? "" : "es", (long long)o->run.micro_batch,
                (long long)o->run.seq_len, o->order == ZR_ORDER_DEPTH ? "depth" : "breadth",
                (long long)o->group, (long long)o->prefetch, recompute_name(o));
  (void)fprintf(out, "parameters: %lld, padded %lld, in %s; sums of gradients in %s\n",
                (long long)zero->n_params, (long long)zero->n_params_padded,
                zr_dtype_name(o->run.dtype), zr_dtype_name(o->grad_dtype));
  if (!zr_zero_split_is_exact(o)) {
    (void)fprintf(out, "sums: this split's bits are its own (other rank counts differ)\n");
  }
  print_homes(o, out);
  for (int tier = 0; tier < ZR_N_TIERS; ++tier) print_tier(zero, &step, tier, out);
  print_units(zero, out);
  (void)fprintf(out, "\na step, each rank\n");
  print_size(out, "sent to other ranks", step.sent_bytes);
  print_links(&step, out);
  print_size(out, "read and written", step.touched_bytes);
  (void)fprintf(out, "  %-28s %16.4g\n", "floating-point operations", (double)step.flops);
  (void)fprintf(out, "  %-28s %16zu\n", "operations", plan->n_ops);
  (void)fprintf(out, "  %-28s %16d\n", "waits between streams", plan->n_waits);
  (void)fprintf(out, "  %-28s %16d\n", "waits for space alone", plan->n_placement_waits);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static json_t *categories(const int64_t bytes[ZR_N_CATEGORIES]) {
  json_t *object = json_object();
  for (int c = 0; c < ZR_N_CATEGORIES; ++c) {
    if (bytes[c] == 0) continue;
    (void)json_object_set_new(object, zr_category_name((zr_category_t)c), json_integer(bytes[c]));
  }
  return object;
}

static json_t *tiers(const zr_plan_t *plan, const zr_account_t *account) {
  json_t *object = json_object();
  for (int t = 0; t < ZR_N_TIERS; ++t) {
    json_t *tier =
        json_pack("{s:I, s:I, s:I, s:o, s:o}", "arena_bytes", (json_int_t)plan->arena_bytes[t],
                  "peak_bytes", (json_int_t)plan->peak_bytes[t], "lower_bound_bytes",
                  (json_int_t)plan->lower_bound_bytes[t], "persistent",
                  categories(account->persistent_bytes[t]), "buffers",
                  categories(account->category_bytes[t]));
    (void)json_object_set_new(object, zr_tier_name((zr_tier_t)t), tier);
  }
  return object;
}

static json_t *plan_json(const zr_plan_t *plan) {
  zr_account_t account;
  zr_cost_account(plan, &account);
  json_t *moved =
      json_pack("{s:I, s:I, s:I, s:I}", "h2d", (json_int_t)account.h2d_bytes, "d2h",
                (json_int_t)account.d2h_bytes, "disk_read", (json_int_t)account.disk_read_bytes,
                "disk_write", (json_int_t)account.disk_write_bytes);
  return json_pack("{s:o, s:I, s:I, s:I, s:o, s:I, s:i, s:i, s:o}", "hash",
                   json_sprintf("%016llx", (unsigned long long)zr_plan_hash(plan)), "ops",
                   (json_int_t)plan->n_ops, "flops", (json_int_t)account.flops, "sent_bytes",
                   (json_int_t)account.sent_bytes, "moved_bytes", moved, "touched_bytes",
                   (json_int_t)account.touched_bytes, "waits", plan->n_waits, "placement_waits",
                   plan->n_placement_waits, "tiers", tiers(plan, &account));
}

static json_t *units_json(const zr_zero_t *zero) {
  json_t *array = json_array();
  for (size_t u = 0; u < zero->n_units; ++u) {
    const zr_zero_unit_t *unit = &zero->unit[u];
    (void)json_array_append_new(
        array,
        json_pack("{s:s, s:i, s:I, s:I, s:b, s:b}", "name", unit->name, "tensors",
                  (int)unit->n_tensors, "flat_elems", (json_int_t)unit->flat_elems, "shard_elems",
                  (json_int_t)unit->shard_elems, "param_sharded", (int)unit->param_sharded,
                  "optimizer_sharded", (int)unit->optimizer_sharded));
  }
  return array;
}

static json_t *homes_json(const zr_zero_options_t *o) {
  const zr_homes_t *home = &o->home;
  return json_pack(
      "{s:s, s:s, s:s, s:s, s:f, s:I, s:I}", "param", zr_tier_name((zr_tier_t)home->param), "grad",
      zr_tier_name((zr_tier_t)home->grad), "optimizer", zr_tier_name((zr_tier_t)home->optimizer),
      "activation", zr_tier_name((zr_tier_t)home->activation), "ratio", o->ratio, "chunk",
      (json_int_t)o->chunk_elems, "slots", (json_int_t)o->n_slots);
}

json_t *zr_report_json(const zr_zero_t *zero) {
  const zr_zero_options_t *o = &zero->options;
  json_t *plans = json_object();
  for (int i = 0; i < zero->program->n_plans; ++i) {
    const zr_plan_t *plan = zero->program->plan[i];
    (void)json_object_set_new(plans, plan->name, plan_json(plan));
  }
  char hash[17];
  zr_report_hash(zero, hash);
  return json_pack(
      "{s:s, s:s, s:s, s:i, s:i, s:I, s:s, s:I, s:I, s:s, s:o, s:I, s:I, s:b, s:o, s:o}", "hash",
      hash, "dtype", zr_dtype_name(o->run.dtype), "grad_dtype", zr_dtype_name(o->grad_dtype),
      "stage", o->stage, "ranks", o->n_ranks, "micro_batches", (json_int_t)o->n_micro, "order",
      o->order == ZR_ORDER_DEPTH ? "depth" : "breadth", "group", (json_int_t)o->group, "prefetch",
      (json_int_t)o->prefetch, "recompute", recompute_name(o), "homes", homes_json(o), "params",
      (json_int_t)zero->n_params, "params_padded", (json_int_t)zero->n_params_padded,
      "split_is_exact", (int)zr_zero_split_is_exact(o), "units", units_json(zero), "plans", plans);
}

static zr_status_t write_text(const zr_zero_t *zero, FILE *out) {
  zr_report_print(zero, out);
  for (int i = 0; i < zero->program->n_plans; ++i) {
    (void)fputc('\n', out);
    ZR_TRY(zr_text_write(zero->program->plan[i], out));
  }
  return ZR_OK;
}

static zr_status_t write_plan_txt(const zr_zero_t *zero, const char *dir) {
  char path[ZR_PATH_BYTES], *text = NULL;
  size_t bytes = 0;
  ZR_TRY(zr_files_join(path, dir, "plan.txt"));
  FILE *out = open_memstream(&text, &bytes);
  if (out == NULL) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for %s", path);
  zr_status_t status = write_text(zero, out);
  if (fclose(out) != 0 && status == ZR_OK) {
    status = zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for %s", path);
  }
  if (status == ZR_OK) status = zr_files_replace(path, text, bytes);
  zr_files_release(text);
  return status;
}

zr_status_t zr_report_write(const zr_zero_t *zero, const char *dir) {
  char path[ZR_PATH_BYTES];
  ZR_TRY(write_plan_txt(zero, dir));
  ZR_TRY(zr_files_join(path, dir, "plan.json"));
  json_t *report = zr_report_json(zero);
  char *text = report == NULL ? NULL : json_dumps(report, JSON_INDENT(1));
  json_decref(report);
  if (text == NULL) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for %s", path);
  zr_status_t status = zr_files_replace(path, text, strlen(text));
  zr_files_release(text);
  return status;
}
