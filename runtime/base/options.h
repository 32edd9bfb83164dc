/* The option table: one row for each configuration key, which drives parsing, `--set` overrides,
 * range checks, `--print-config` and the generated reference page. The table itself is the user's
 * (runtime/train); this file knows no key. One thread; nothing blocks.
 *
 * Values live in a plain struct of the caller's; a row names its field by offset:
 *
 *   typedef struct { int64_t steps; double lr; char *dir; int stage; } config_t;
 *   static const char *const stages[] = {"0", "1", "2", "3", "auto", NULL};
 *   static const zr_option_t table[] = {
 *     {.key = "run.steps", .type = ZR_OPTION_INT, .kind = ZR_OPTION_NUMERIC,
 *      .offset = offsetof(config_t, steps), .default_text = "100", .min = 1, .max = INFINITY,
 *      .help = "updates to make"},
 *     {.key = "flops_profiler.*", .type = ZR_OPTION_ANY, .support = ZR_OPTION_NEEDLESS,
 *      .reason = "traces are always there", .help = "DeepSpeed's profiler"}, ...};
 *
 * Every error is ZR_ERR_CONFIG (ZR_ERR_UNSUPPORTED for a refused option) with one line that begins
 * with `where` ("cfg.yaml:12:3" or "--set") and says the right form. */
#ifndef ZR_BASE_OPTIONS_H
#define ZR_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

typedef enum {                     /* the field that a row's offset points at */
               ZR_OPTION_BOOL = 0, /* int: 0, 1; ZR_OPTION_AUTO_BOOL */
               ZR_OPTION_INT,      /* int64_t; ZR_OPTION_AUTO_INT */
               ZR_OPTION_DOUBLE,   /* double; NaN is auto */
               ZR_OPTION_STRING,   /* char *: owned by the zr_options_t; NULL: not given */
               ZR_OPTION_ENUM,     /* int: index in `names` (compared without regard to case) */
               ZR_OPTION_BYTES,    /* zr_option_bytes_t: 5e8, 24GiB, 1.5 GB, 80%, auto */
               ZR_OPTION_LIST,     /* zr_option_list_t: of strings */
               ZR_OPTION_ANY /* no field: anything is accepted (needless or refused options only) */
} zr_option_type_t;

enum { ZR_OPTION_AUTO_BOOL = -1 };
#define ZR_OPTION_AUTO_INT INT64_MIN

typedef struct {
  int64_t bytes; /* -1: auto, or a share */
  double share;  /* > 0: this part of the whole */
} zr_option_bytes_t;

typedef struct {
  char **items; /* owned by the zr_options_t */
  size_t n_items;
} zr_option_list_t;

typedef enum {                     /* what changing the option can change (DESIGN.md section 5) */
               ZR_OPTION_RUN = 0,  /* neither: where and how long */
               ZR_OPTION_NUMERIC,  /* the bits of the result; recorded in checkpoints */
               ZR_OPTION_SCHEDULE, /* time and memory alone */
               ZR_OPTION_N_KINDS
} zr_option_kind_t;

typedef enum {
  ZR_OPTION_HONOURED = 0,
  ZR_OPTION_NEEDLESS, /* accepted and of no effect, for `reason`: the caller says so once */
  ZR_OPTION_REFUSED   /* any value but the default is an error that gives `reason` */
} zr_option_support_t;

typedef struct {
  const char *key;   /* "zero_optimization.stage"; "block.*" is any other key of that block */
  const char *alias; /* another full key for the same option, or NULL */
  zr_option_type_t type;
  zr_option_kind_t kind;
  zr_option_support_t support;
  bool may_be_auto;         /* "auto" is a value (not needed for enums that name it) */
  bool is_exact;            /* ENUM: names as they are written, and a null is none of them */
  bool no_field;            /* checked but stored nowhere; `offset` means nothing */
  size_t offset;            /* of the field in the values struct */
  const char *default_text; /* as a user would write it; NULL: zero bytes, "not given" */
  double min, max;          /* inclusive; both 0: no limits. For BYTES without share or auto */
  const char *const *names; /* ENUM: NULL-terminated */
  const char *reason;
  const char *help; /* one line */
} zr_option_t;

typedef struct zr_options_t zr_options_t;

typedef enum { /* a later source overrides an earlier one; the same one twice is an error */
               ZR_OPTION_FROM_DEFAULT = 0,
               ZR_OPTION_FROM_FILE,
               ZR_OPTION_FROM_COMMAND_LINE, /* may repeat: the last one counts */
               ZR_OPTION_FROM_PROGRAM /* a value resolved from "auto" or derived from others */
} zr_option_source_t;

/* `table` and `values` outlive the result. Zeroes nothing but the fields it writes: pass a zeroed
 * struct. Defaults are parsed here; a default that its own row refuses is ZR_ERR_INTERNAL. */
zr_status_t zr_options_create(zr_alloc_t *alloc, const zr_option_t *table, size_t n_rows,
                              void *values, zr_options_t **out_options) ZR_MUST_CHECK;
void zr_options_destroy(zr_options_t *options); /* frees the strings in `values` and NULLs them */

/* Row of an exact key, alias or "block.*" pattern; -1: unknown. */
int64_t zr_options_find(const zr_options_t *options, const char *key);
/* The known key that `key` was probably meant to be, or NULL: the same last component in another
 * block, else the least edit distance of at most a third of its length. */
const char *zr_options_nearest(const zr_options_t *options, const char *key);
/* Some key begins with "key.": a mapping is right here and a scalar is wrong. */
bool zr_options_is_block(const zr_options_t *options, const char *key);

/* One scalar as it stands in the document, without quotes; NULL (a YAML null) is the default. A
 * LIST takes it as its only item, or as its items when it is written "[a, b]". */
zr_status_t zr_options_set(zr_options_t *options, const char *key, const char *text,
                           zr_option_source_t source, const char *where) ZR_MUST_CHECK;
zr_status_t zr_options_set_list(zr_options_t *options, const char *key, const char *const *items,
                                size_t n_items, zr_option_source_t source,
                                const char *where) ZR_MUST_CHECK;
/* "key=value", for --set. */
zr_status_t zr_options_set_pair(zr_options_t *options, const char *pair,
                                const char *where) ZR_MUST_CHECK;

/* Where row's value came from; a "block.*" row: where any key of it came from. */
zr_option_source_t zr_options_source(const zr_options_t *options, size_t row);
/* The `where` of the row's last setting, cut to 95 characters; "" for a default. For later checks.
 */
const char *zr_options_where(const zr_options_t *options, size_t row);
/* zr_fail(ZR_ERR_CONFIG) with the place and key of `key`, for checks between options. */
zr_status_t zr_options_complain(const zr_options_t *options, const char *key, const char *format,
                                ...) __attribute__((format(printf, 3, 4)));

/* All rows with a field as a YAML document that reads back to the same values; kinds: bit mask of
 * 1 << zr_option_kind_t, 0 means all; comments: marks defaults with "# default". Look at ferror. */
void zr_options_print_yaml(const zr_options_t *options, unsigned kinds, bool comments, FILE *out);
/* The reference page: one markdown table for each block. */
void zr_options_print_reference(const zr_option_t *table, size_t n_rows, FILE *out);

/* The scalar parsers, also for other input: true when `text` is wholly one such value. */
bool zr_parse_bool(const char *text, int *out_value);
bool zr_parse_int(const char *text, int64_t *out_value);   /* 5e8, 1_000, 0x1f, 0o17, 3.0 too */
bool zr_parse_double(const char *text, double *out_value); /* finite only */
bool zr_parse_bytes(const char *text, zr_option_bytes_t *out_value);

#endif
