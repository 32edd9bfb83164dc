/* `zerorun bisect A B`: the logs tell the step, the checkpoints the state, and a rerun the
 * operation. Prints on standard output. */
#include "launch/bisect.h"

#include <string.h>

#include "runtime/base/log.h"

static int64_t number(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key) {
  const char *value = json_string_value(json_object_get(object, key));
  return value == NULL ? "" : value;
}

/* A string as it is, anything else as JSON. */
static void print_value(const json_t *value) {
  if (json_is_string(value)) {
    (void)printf("%s", json_string_value(value));
    return;
  }
  char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
  (void)printf("%s", dumped == NULL ? "?" : dumped);
  zr_files_release(dumped);
}

static void print_both(const char *name, const json_t *a, const json_t *b) {
  (void)printf("    %s: ", name);
  print_value(a);
  (void)printf(" in A, ");
  print_value(b);
  (void)printf(" in B\n");
}

static void print_steps(const zr_bisect_t *bisect) {
  const json_t *steps = json_object_get(bisect->report, "steps");
  (void)printf("  logs: %lld common steps compared, from %lld on%s\n",
               (long long)number(steps, "compared"), (long long)number(steps, "first"),
               json_is_true(json_object_get(steps, "digests"))
                   ? ""
                   : " (by loss and norm alone: run.digest: states would tell more)");
  if (bisect->first_step == 0) {
    (void)printf("    they are equal, to step %lld\n", (long long)number(steps, "last"));
    return;
  }
  (void)printf("  step %lld is the first that differs\n", (long long)bisect->first_step);
  const char *key;
  json_t *pair;
  json_object_foreach(json_object_get(bisect->report, "fields"), key, pair) {
    print_both(key, json_array_get(pair, 0), json_array_get(pair, 1));
  }
}

static void print_options(const zr_bisect_t *bisect) {
  const json_t *options = json_object_get(bisect->report, "options");
  if (json_array_size(options) == 0) return;
  (void)printf("  numeric options that differ\n");
  for (size_t i = 0; i < json_array_size(options); ++i) {
    const json_t *row = json_array_get(options, i);
    print_both(text(row, "key"), json_object_get(row, "a"), json_object_get(row, "b"));
  }
}

static void print_states(const zr_bisect_t *bisect) {
  const json_t *state = json_object_get(bisect->report, "state");
  (void)printf("  checkpoints: %lld common ones compared",
               (long long)number(bisect->report, "checkpoints_compared"));
  if (bisect->last_equal > 0) {
    (void)printf(", equal to step %lld", (long long)bisect->last_equal);
  }
  (void)printf("\n");
  if (state == NULL) return;
  (void)printf("  at step %lld the first state that differs is %s of %s (unit %s)\n",
               (long long)bisect->first_bad, text(state, "state"), text(state, "tensor"),
               text(state, "unit"));
  if (json_object_get(state, "text") != NULL) {
    (void)printf("    it is %s\n", text(state, "text"));
  } else {
    char name[48];
    (void)snprintf(name, sizeof name, "element %lld", (long long)number(state, "element"));
    print_both(name, json_object_get(state, "a"), json_object_get(state, "b"));
  }
  (void)printf("    in all %lld elements of %lld of %lld states\n",
               (long long)number(state, "elements"), (long long)number(state, "states"),
               (long long)number(state, "states_compared"));
}

static void print_list(const char *before, const json_t *list) {
  (void)printf("%s", before);
  for (size_t i = 0; i < json_array_size(list); ++i) {
    (void)printf("%s%s", i > 0 ? ", " : " ", json_string_value(json_array_get(list, i)));
  }
  (void)printf("\n");
}

static void print_rerun(const zr_bisect_t *bisect) {
  const json_t *rerun = json_object_get(bisect->report, "rerun");
  const json_t *found = json_object_get(rerun, "operation");
  if (rerun == NULL) return;
  (void)printf("  made again from step %lld to step %lld\n", (long long)number(rerun, "from_step"),
               (long long)number(rerun, "to_step"));
  if (found == NULL) {
    (void)printf(
        "    every operation gives the same bits: it was not the options, but what "
        "happened between steps (a changed checkpoint), a machine or another build\n");
  } else if (json_object_get(found, "text") != NULL) {
    (void)printf("    %s\n", text(found, "text"));
  } else {
    (void)printf(
        "    the first operation that differs is %s of plan %s (number %lld), in step "
        "%lld (counting skipped ones)\n",
        text(found, "operation"), text(found, "plan"), (long long)number(found, "index"),
        (long long)number(found, "step"));
    print_list("    what it wrote:", json_object_get(found, "writes"));
    const json_t *reads = json_object_get(found, "reads");
    if (json_array_size(reads) == 0) {
      (void)printf("    all that it only read is equal\n");
    } else {
      print_list("    it read what differed from the start:", reads);
    }
  }
}

static zr_status_t print_report(zr_bisect_t *bisect) {
  if (!bisect->command->json) {
    (void)printf("A is %s, B is %s\n", bisect->run[0].dir, bisect->run[1].dir);
    print_steps(bisect);
    print_options(bisect);
    print_states(bisect);
    print_rerun(bisect);
    return fflush(stdout) == 0 ? ZR_OK : zr_fail(ZR_ERR_IO, "standard output can not be written");
  }
  char *dumped = json_dumps(bisect->report, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  if (dumped == NULL) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for the report");
  (void)puts(dumped);
  zr_files_release(dumped);
  return fflush(stdout) == 0 ? ZR_OK : zr_fail(ZR_ERR_IO, "standard output can not be written");
}

static bool differs(const zr_bisect_t *bisect) {
  return bisect->first_step > 0 || bisect->first_bad > 0;
}

static zr_status_t bisect_all(zr_bisect_t *bisect) {
  const char *dirs[] = {bisect->command->path, bisect->command->other_path};
  for (int i = 0; i < 2; ++i) {
    ZR_TRY(zr_bisect_log_read(bisect->alloc, dirs[i], &bisect->run[i]));
  }
  ZR_TRY(zr_bisect_logs(bisect));
  ZR_TRY(zr_bisect_options(bisect));
  ZR_TRY(zr_bisect_states(bisect));
  if (bisect->command->rerun && differs(bisect)) ZR_TRY(zr_bisect_rerun(bisect));
  (void)json_object_set_new(bisect->report, "equal", json_boolean(!differs(bisect)));
  return print_report(bisect);
}

int zr_command_bisect(zr_alloc_t *alloc, const zr_command_t *command) {
  zr_bisect_t bisect = {.alloc = alloc, .command = command, .report = json_object()};
  for (int i = 0; i < 2; ++i) bisect.run[i].alloc = alloc;
  zr_status_t status = bisect_all(&bisect);
  if (status != ZR_OK) zr_error("%s", zr_detail());
  for (int i = 0; i < 2; ++i) zr_bisect_log_free(&bisect.run[i]);
  json_decref(bisect.report);
  return status != ZR_OK ? zr_status_exit_code(status) : differs(&bisect) ? ZR_EXIT_DIFFER : 0;
}
