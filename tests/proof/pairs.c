#include "tests/proof/pairs.h"

#include <stdbool.h>
#include <string.h>

#include "tests/support/cmocka_all.h"

typedef struct {
  bool seen[PAIRS_MAX_SETTINGS][PAIRS_MAX_SETTINGS][PAIRS_MAX_VALUES][PAIRS_MAX_VALUES];
} seen_t;

void pairs_set(pairs_t *table, int setting, int n, const int64_t *value) {
  table->n_values[setting] = n;
  memcpy(table->value[setting], value, (size_t)n * sizeof *value);
}

static int n_new(const seen_t *pairs, const int *row, int n_set, int setting, int value) {
  int n = 0;
  for (int s = 0; s < n_set; s++) n += !pairs->seen[s][setting][row[s]][value];
  return n;
}

typedef struct {
  int a, b, x, y; /* setting a has value x, b has y */
} pair_t;

static bool first_missing(const pairs_t *table, const seen_t *pairs, pair_t *out) {
  for (int a = 0; a < table->n_settings; a++)
    for (int b = a + 1; b < table->n_settings; b++)
      for (int x = 0; x < table->n_values[a]; x++)
        for (int y = 0; y < table->n_values[b]; y++) {
          if (pairs->seen[a][b][x][y]) continue;
          *out = (pair_t){a, b, x, y};
          return true;
        }
  return false;
}

/* The first uncovered pair, then for each other setting the value that covers most; false when
 * every pair is there. */
static bool next_row(const pairs_t *table, const seen_t *pairs, int *row) {
  pair_t first;
  if (!first_missing(table, pairs, &first)) return false;
  for (int s = 0; s < table->n_settings; s++) {
    int best = 0, most = -1;
    for (int k = 0; k < table->n_values[s]; k++) {
      const int value = (k + table->n_rows) % table->n_values[s]; /* ties take turns */
      const int n = n_new(pairs, row, s, s, value);
      if (n > most) most = n, best = value;
    }
    if (s == first.a) best = first.x;
    if (s == first.b) best = first.y;
    row[s] = best;
  }
  return true;
}

void pairs_cover(pairs_t *table, int n_settings) {
  static seen_t pairs;
  memset(&pairs, 0, sizeof pairs);
  table->n_rows = 0;
  table->n_settings = n_settings;
  int row[PAIRS_MAX_SETTINGS] = {0};
  while (next_row(table, &pairs, row)) {
    assert_true(table->n_rows < PAIRS_MAX_ROWS);
    memcpy(table->row[table->n_rows++], row, sizeof row);
    for (int a = 0; a < n_settings; a++)
      for (int b = a + 1; b < n_settings; b++) pairs.seen[a][b][row[a]][row[b]] = true;
  }
}
