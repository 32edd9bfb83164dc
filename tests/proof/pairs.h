/* A table of settings in which every pair of values of two settings occurs. */
#ifndef ZR_TESTS_PROOF_PAIRS_H
#define ZR_TESTS_PROOF_PAIRS_H

#include <stdint.h>

enum { PAIRS_MAX_SETTINGS = 20, PAIRS_MAX_VALUES = 4, PAIRS_MAX_ROWS = 64 };

typedef struct {
  int n_settings;
  int n_values[PAIRS_MAX_SETTINGS];
  int64_t value[PAIRS_MAX_SETTINGS][PAIRS_MAX_VALUES];
  int row[PAIRS_MAX_ROWS][PAIRS_MAX_SETTINGS]; /* positions in value */
  int n_rows;
} pairs_t;

void pairs_set(pairs_t *table, int setting, int n, const int64_t *value);
/* Fills the rows; the settings 0 .. n_settings - 1 have their values. */
void pairs_cover(pairs_t *table, int n_settings);
static inline int64_t pairs_value(const pairs_t *table, int row, int setting) {
  return table->value[setting][table->row[row][setting]];
}

#endif
