/* The parts that options.c and options_print.c share. Private to runtime/base. */
#ifndef ZR_BASE_OPTIONS_PRIVATE_H
#define ZR_BASE_OPTIONS_PRIVATE_H

#include "runtime/base/options.h"

enum { ZR_OPTION_WHERE_BYTES = 96 };

typedef struct {
  zr_option_source_t source;
  char where[ZR_OPTION_WHERE_BYTES];
} zr_option_state_t;

struct zr_options_t {
  zr_alloc_t *alloc;
  const zr_option_t *table;
  size_t n_rows;
  void *values;
  zr_option_state_t *state; /* [n_rows] */
};

static inline void *zr_option_field(const zr_options_t *options, size_t row) {
  return (char *)options->values + options->table[row].offset;
}
static inline bool zr_option_has_field(const zr_option_t *row) {
  return row->type != ZR_OPTION_ANY && !row->no_field;
}
/* "block." of a row "block.*": its length; 0 for an ordinary key. */
size_t zr_option_pattern_chars(const char *key);

#endif
