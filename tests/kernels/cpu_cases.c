/* The cpu backend over the table of cases, in every instruction set that the machine has, with the
 * library's products and without: it meets the oracle, and its bits depend on nothing but the
 * inputs. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "tests/kernels/case_call.h"
#include "tests/kernels/check.h"

typedef struct {
  const char *isa;
  bool plain; /* products by the row kernels */
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
} backend_t;

enum { N_BACKENDS = 4, SEED = 5 };
static const struct {
  const char *isa;
  bool plain;
} variant[N_BACKENDS] = {{"avx512", false}, {"avx512", true}, {"avx2", true}, {"baseline", true}};

/* The one argument: this set alone, with the library's products. A process of its own is needed
 * because the library chooses its set once. */
static const char *first_isa;

/* False where the machine lacks the instruction set. */
static bool open_cpu(int i, backend_t *cpu) {
  *cpu = (backend_t){.isa = variant[i].isa, .plain = variant[i].plain};
  if (first_isa != NULL && strcmp(first_isa, cpu->isa) != 0) return false;
  if (first_isa != NULL) cpu->plain = false;
  zr_status_t status = zr_kern_cpu_open(NULL, cpu->isa, &cpu->ops, &cpu->kern);
  if (status == ZR_ERR_UNSUPPORTED) return false;
  assert_int_equal(status, ZR_OK);
  if (cpu->plain) {
    zr_cpu_library_close(cpu->kern->library);
    cpu->kern->library = NULL;
  }
  return true;
}

static void run_case(const backend_t *b, zr_pool_t *pool, const kern_case_t *one, zr_dtype_t real,
                     uint8_t poison, kern_call_t *call) {
  int operand = -1;
  kern_call_init(call, one, real, poison);
  kern_call_fill(call, SEED);
  if (kern_call_run(call, b->ops, b->kern, pool) != ZR_OK)
    fail_msg("%s %s: %s", b->isa, one->name, zr_detail());
  int64_t damage = kern_call_damage(call, &operand);
  if (damage != 0)
    fail_msg("%s %s: %lld bytes outside operand %d changed", b->isa, one->name, (long long)damage,
             operand);
}

static void check_equal(const backend_t *b, const char *name, const kern_call_t *x,
                        const kern_call_t *y, const char *why) {
  for (int o = 0; o < ZR_MAX_OPERANDS; o++)
    if (kern_call_is_output(x, o) && !kern_call_equal(x, y, o))
      fail_msg("%s%s %s: operand %d %s", b->isa, b->plain ? " plain" : "", name, o, why);
}

/* Bit-equal to the float oracle where the bound is 0, else within it of the double oracle. */
static void check_against_oracle(const backend_t *cpu, const backend_t *f32, const backend_t *f64,
                                 const kern_case_t *one) {
  kern_call_t a, b;
  zr_dtype_t real = one->bound > 0 ? ZR_F64 : ZR_F32;
  run_case(cpu, NULL, one, ZR_F32, KERN_POISON_NAN, &a);
  run_case(one->bound > 0 ? f64 : f32, NULL, one, real, KERN_POISON_NAN, &b);
  for (int o = 0; o < ZR_MAX_OPERANDS; o++) {
    if (!kern_call_is_output(&a, o)) continue;
    if (one->bound <= 0 && !kern_call_equal(&a, &b, o))
      fail_msg("%s %s: operand %d has other bits than the oracle", cpu->isa, one->name, o);
    double error = one->bound > 0 ? kern_call_error(&a, &b, o) : 0;
    if (!(error <= one->bound))
      fail_msg("%s%s %s: operand %d differs by %g, more than %g", cpu->isa,
               cpu->plain ? " plain" : "", one->name, o, error, one->bound);
  }
  kern_call_fini(&a);
  kern_call_fini(&b);
}

static void meets_the_oracle(void **state) {
  (void)state;
  backend_t f32 = {.isa = "ref"}, f64 = {.isa = "ref"};
  assert_int_equal(zr_kern_ref_open(NULL, ZR_F32, &f32.ops, &f32.kern), ZR_OK);
  assert_int_equal(zr_kern_ref_open(NULL, ZR_F64, &f64.ops, &f64.kern), ZR_OK);
  for (int v = 0; v < N_BACKENDS; v++) {
    backend_t cpu;
    if (!open_cpu(v, &cpu)) continue;
    for (int i = 0; i < kern_n_cases; i++) check_against_oracle(&cpu, &f32, &f64, &kern_cases[i]);
    cpu.ops->close(cpu.kern);
  }
  f32.ops->close(f32.kern);
  f64.ops->close(f64.kern);
}

enum { N_POOLS = 3 };

static void check_pools(const backend_t *cpu, zr_pool_t *const pool[N_POOLS],
                        const kern_case_t *one) {
  kern_call_t a, b;
  run_case(cpu, NULL, one, ZR_F32, KERN_POISON_NAN, &a);
  for (int n = 0; n < N_POOLS; n++) {
    run_case(cpu, pool[n], one, ZR_F32, KERN_POISON_NAN, &b);
    check_equal(cpu, one->name, &a, &b, "depends on the number of threads");
    kern_call_fini(&b);
  }
  kern_call_fini(&a);
}

static void threads_change_nothing(void **state) {
  (void)state;
  static const int n_threads[N_POOLS] = {2, 3, 8};
  zr_pool_t *pool[N_POOLS];
  for (int n = 0; n < N_POOLS; n++)
    assert_int_equal(zr_pool_create(NULL, n_threads[n], &pool[n]), ZR_OK);
  for (int v = 0; v < N_BACKENDS; v++) {
    backend_t cpu;
    if (!open_cpu(v, &cpu)) continue;
    for (int i = 0; i < kern_n_cases; i++) check_pools(&cpu, pool, &kern_cases[i]);
    cpu.ops->close(cpu.kern);
  }
  for (int n = 0; n < N_POOLS; n++) zr_pool_destroy(pool[n]);
}

/* What outputs, gaps, guards and scratch held before must not matter. */
static void old_bytes_change_nothing(void **state) {
  (void)state;
  for (int v = 0; v < N_BACKENDS; v++) {
    backend_t cpu;
    if (!open_cpu(v, &cpu)) continue;
    for (int i = 0; i < kern_n_cases; i++) {
      kern_call_t a, b;
      run_case(&cpu, NULL, &kern_cases[i], ZR_F32, KERN_POISON_NAN, &a);
      run_case(&cpu, NULL, &kern_cases[i], ZR_F32, KERN_POISON_FINITE, &b);
      check_equal(&cpu, kern_cases[i].name, &a, &b, "depends on what was there");
      kern_call_fini(&a);
      kern_call_fini(&b);
    }
    cpu.ops->close(cpu.kern);
  }
}

static void addresses_change_nothing(void **state) {
  (void)state;
  for (int v = 0; v < N_BACKENDS; v++) {
    backend_t cpu;
    if (!open_cpu(v, &cpu)) continue;
    for (int i = 0; i < kern_n_cases; i++) {
      kern_case_t moved = kern_cases[i];
      kern_call_t a, b;
      run_case(&cpu, NULL, &kern_cases[i], ZR_F32, KERN_POISON_NAN, &a);
      for (int o = 0; o < ZR_MAX_OPERANDS; o++)
        if (a.elem_bytes[o] == 4) moved.offset ^= 1u << o;
      run_case(&cpu, NULL, &moved, ZR_F32, KERN_POISON_NAN, &b);
      check_equal(&cpu, kern_cases[i].name, &a, &b, "depends on an address");
      kern_call_fini(&a);
      kern_call_fini(&b);
    }
    cpu.ops->close(cpu.kern);
  }
}

/* out = fl(out + fl(value)), the value being what the same call writes without the bit. */
static void check_adding(const backend_t *cpu, const kern_case_t *one, int *n_checked) {
  kern_case_t overwrite = *one;
  overwrite.accumulate = 0;
  kern_call_t before, added, value;
  kern_call_init(&before, one, ZR_F32, KERN_POISON_NAN);
  kern_call_fill(&before, SEED);
  run_case(cpu, NULL, one, ZR_F32, KERN_POISON_NAN, &added);
  run_case(cpu, NULL, &overwrite, ZR_F32, KERN_POISON_NAN, &value);
  for (int o = 0; o < ZR_MAX_OPERANDS; o++) {
    if (added.desc[o].role != KERN_ADD || !(one->accumulate >> o & 1u)) continue;
    for (int64_t n = 0; n < kern_call_n_elems(&added, o); n++) {
      float sum = (float)kern_call_get(&before, o, n) + (float)kern_call_get(&value, o, n);
      if ((float)kern_call_get(&added, o, n) != sum)
        fail_msg("%s %s: operand %d is not the sum at %lld", cpu->isa, one->name, o, (long long)n);
    }
    ++*n_checked;
  }
  kern_call_fini(&before);
  kern_call_fini(&added);
  kern_call_fini(&value);
}

static void accumulating_is_adding(void **state) {
  (void)state;
  for (int v = 0; v < N_BACKENDS; v++) {
    backend_t cpu;
    int n_checked = 0;
    if (!open_cpu(v, &cpu)) continue;
    for (int i = 0; i < kern_n_cases; i++) check_adding(&cpu, &kern_cases[i], &n_checked);
    assert_true(n_checked >= 10);
    cpu.ops->close(cpu.kern);
  }
}

/* A step is skipped because a loss or a norm is not finite, so no kernel may lose a NaN. */
static void non_finite_numbers_show(void **state) {
  (void)state;
  static const struct {
    int32_t kind;
    int output;
    double value;
  } probe[] = {{ZR_OP_LINEAR, 3, NAN},         {ZR_OP_LAYERNORM, 3, NAN},
               {ZR_OP_RMSNORM, 2, NAN},        {ZR_OP_ATTENTION, 1, NAN},
               {ZR_OP_GELU, 1, NAN},           {ZR_OP_SWIGLU, 2, NAN},
               {ZR_OP_HEAD_EVAL, 3, NAN},      {ZR_OP_HEAD_LOSS, 4, NAN},
               {ZR_OP_HEAD_LOSS, 4, INFINITY}, {ZR_OP_HEAD_EVAL, 3, -INFINITY},
               {ZR_OP_ATTENTION, 1, INFINITY}};
  for (int v = 0; v < N_BACKENDS; v++) {
    backend_t cpu;
    if (!open_cpu(v, &cpu)) continue;
    for (int p = 0; p < (int)(sizeof probe / sizeof probe[0]); p++) {
      for (int i = 0; i < kern_n_cases; i++) {
        const kern_case_t *one = &kern_cases[i];
        if (one->kind != probe[p].kind || one->attr[0] == 0) continue;
        kern_call_t call;
        kern_call_init(&call, one, ZR_F32, KERN_POISON_NAN);
        kern_call_fill(&call, SEED);
        kern_call_set(&call, 0, 0, probe[p].value); /* the first query, row or element */
        if (call.desc[2].type == KERN_I32) kern_call_set(&call, 2, 0, 0); /* a counted target */
        assert_int_equal(kern_call_run(&call, cpu.ops, cpu.kern, NULL), ZR_OK);
        if (isfinite(kern_call_get(&call, probe[p].output, 0)))
          fail_msg("%s %s: %g becomes finite", cpu.isa, one->name, probe[p].value);
        kern_call_fini(&call);
      }
    }
    cpu.ops->close(cpu.kern);
  }
}

static void refuses_a_late_start(const kern_case_t *one, int starts, const zr_kern_ops_t *ops,
                                 zr_kern_t *kern) {
  kern_call_t call;
  kern_call_init(&call, one, ZR_F32, KERN_POISON_NAN);
  kern_call_fill(&call, SEED);
  assert_int_equal(kern_call_run(&call, ops, kern, NULL), ZR_OK);
  for (int late = -1; late <= 2; late += 3) {
    kern_call_set(&call, starts, 4, late); /* row 1 of its sample */
    assert_int_equal(kern_call_run(&call, ops, kern, NULL), ZR_ERR_DATA);
  }
  kern_call_fini(&call);
}

/* A document begins in its sample, and not behind the row itself. */
static void late_starts_are_errors(void **state) {
  (void)state;
  static const kern_case_t cases[] = {
      {"attention", ZR_OP_ATTENTION, 0, .attr = {2, 3, 1, 1, 2}, .real = 1, .documents = true},
      {"attention_grad", ZR_OP_ATTENTION_GRAD, 0, .attr = {2, 3, 1, 1, 2}, .documents = true},
      {"embedding", ZR_OP_EMBEDDING, 0, .attr = {6, 1, 3, 3, 3}, .documents = true},
      {"embedding_grad", ZR_OP_EMBEDDING_GRAD, 0, .attr = {6, 1, 3, 3, 3}, .documents = true}};
  static const int starts[] = {3, 5, 4, 4};
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  for (int i = 0; i < 4; i++) {
    assert_int_equal(zr_kern_ref_open(NULL, ZR_F32, &ops, &kern), ZR_OK);
    refuses_a_late_start(&cases[i], starts[i], ops, kern);
    ops->close(kern);
    assert_int_equal(zr_kern_cpu_open(NULL, "baseline", &ops, &kern), ZR_OK);
    refuses_a_late_start(&cases[i], starts[i], ops, kern);
    ops->close(kern);
  }
}

int main(int argc, char **argv) {
  if (argc > 1) first_isa = argv[1];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(meets_the_oracle),         cmocka_unit_test(threads_change_nothing),
      cmocka_unit_test(old_bytes_change_nothing), cmocka_unit_test(addresses_change_nothing),
      cmocka_unit_test(accumulating_is_adding),   cmocka_unit_test(non_finite_numbers_show),
      cmocka_unit_test(late_starts_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
