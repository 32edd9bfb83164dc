/* The reader: rebuilds a plan through the builder, so everything the builder checks is checked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/plan_internal.h"
#include "runtime/plan/text.h"
#include "runtime/plan/text_internal.h"

enum { LINE_BYTES = 2048 };

typedef struct {
  FILE *file;
  const char *name;
  int line;
  char text[LINE_BYTES]; /* the line being read; words are cut off in place */
  char *at;
  char *word; /* the last word read */
  bool ended;
  zr_plan_t *plan;
  zr_name_map_t names;
  zr_op_desc_t desc; /* the operation being read, and what the builder does not take */
  uint8_t stream;
  uint32_t version[ZR_MAX_OPERANDS];
  zr_wait_t wait[ZR_N_STREAMS];
  uint8_t n_waits;
} reader_t;

static zr_status_t wrong(const reader_t *r, const char *expected) {
  int column = r->word != NULL ? (int)(r->word - r->text) + 1 : 1;
  return zr_fail(ZR_ERR_DATA, "%s:%d:%d: expected %s, found \"%s\"", r->name, r->line, column,
                 expected,
                 r->ended          ? "the end"
                 : r->word != NULL ? r->word
                                   : "");
}

/* The builder's refusal, with its place in the file. */
static zr_status_t placed(const reader_t *r, zr_status_t status) {
  if (status == ZR_OK || status == ZR_ERR_OUT_OF_MEMORY) return status;
  char detail[ZR_DETAIL_BYTES];
  snprintf(detail, sizeof detail, "%s", zr_detail());
  return zr_fail(ZR_ERR_DATA, "%s:%d:1: %.400s", r->name, r->line, detail);
}

static zr_status_t next_line(reader_t *r) {
  r->line++;
  r->word = NULL;
  r->at = r->text;
  r->text[0] = 0;
  if (fgets(r->text, sizeof r->text, r->file) == NULL) {
    r->ended = true;
    if (ferror(r->file)) return zr_fail(ZR_ERR_IO, "%s:%d:1: %m", r->name, r->line);
    return ZR_OK;
  }
  size_t length = strlen(r->text);
  if (length == 0 || r->text[length - 1] != '\n')
    return zr_fail(ZR_ERR_DATA, "%s:%d:%zu: the line is cut off or longer than %d bytes", r->name,
                   r->line, length + 1, LINE_BYTES - 2);
  r->text[length - 1] = 0;
  return ZR_OK;
}

/* Cuts off the next word; "" at the end of the line. */
static const char *next_word(reader_t *r) {
  while (*r->at == ' ') r->at++;
  r->word = r->at;
  while (*r->at != 0 && *r->at != ' ') r->at++;
  if (*r->at == ' ') *r->at++ = 0;
  return r->word;
}

/* The first word of a line without cutting it off. */
static bool line_starts(const reader_t *r, const char *word) {
  const char *at = r->text;
  while (*at == ' ') at++;
  size_t length = strlen(word);
  return !r->ended && strncmp(at, word, length) == 0 && (at[length] == ' ' || at[length] == 0);
}

static bool more_words(const reader_t *r) {
  const char *at = r->at;
  while (*at == ' ') at++;
  return *at != 0;
}

static zr_status_t expect(reader_t *r, const char *word) {
  return strcmp(next_word(r), word) == 0 ? ZR_OK : wrong(r, word);
}

static zr_status_t end_of_line(reader_t *r) {
  return *next_word(r) == 0 ? ZR_OK : wrong(r, "the end of the line");
}

/* A number after `prefix`. */
static zr_status_t number(reader_t *r, const char *prefix, int64_t least, int64_t most,
                          int64_t *out_value) {
  const char *word = next_word(r);
  size_t length = strlen(prefix);
  char *end = NULL;
  errno = 0;
  if (strncmp(word, prefix, length) != 0 || word[length] == 0) return wrong(r, "a number");
  long long value = strtoll(word + length, &end, 10);
  if (*end != 0 || errno != 0 || value < least || value > most) return wrong(r, "a number");
  *out_value = value;
  return ZR_OK;
}

static zr_status_t one_of(reader_t *r, const char *what, int count, const char *(*name)(int),
                          int *out_index) {
  next_word(r);
  for (int i = 0; i < count; i++) {
    if (strcmp(r->word, name(i)) != 0) continue;
    *out_index = i;
    return ZR_OK;
  }
  return wrong(r, what);
}

static const char *tier_name(int i) {
  return zr_tier_name((zr_tier_t)i);
}
static const char *category_name(int i) {
  return zr_category_name((zr_category_t)i);
}
static const char *dtype_name(int i) {
  return zr_dtype_name((zr_dtype_t)i);
}
static const char *stream_name(int i) {
  return zr_stream_name((zr_stream_id_t)i);
}

static zr_status_t read_tiers(reader_t *r, const char *what, int64_t out_bytes[ZR_N_TIERS]) {
  ZR_TRY(expect(r, what));
  for (int tier = 0; tier < ZR_N_TIERS; tier++) {
    ZR_TRY(expect(r, tier_name(tier)));
    ZR_TRY(number(r, "", 0, INT64_MAX, &out_bytes[tier]));
  }
  ZR_TRY(end_of_line(r));
  return next_line(r);
}

static zr_status_t read_head(reader_t *r, zr_alloc_t *alloc, bool *out_finished) {
  char plan_name[ZR_PLAN_NAME_BYTES] = "";
  int64_t n_ranks = 0;
  ZR_TRY(next_line(r));
  if (strcmp(r->text, ZR_TEXT_HEADER) != 0) {
    r->word = r->text;
    return wrong(r, ZR_TEXT_HEADER);
  }
  ZR_TRY(next_line(r));
  ZR_TRY(expect(r, "plan"));
  snprintf(plan_name, sizeof plan_name, "%s", next_word(r));
  ZR_TRY(expect(r, "ranks"));
  ZR_TRY(number(r, "", 1, INT32_MAX, &n_ranks));
  *out_finished = more_words(r);
  if (*out_finished) ZR_TRY(expect(r, "finished"));
  ZR_TRY(end_of_line(r));
  ZR_TRY(placed(r, zr_plan_create(alloc, plan_name, (int)n_ranks, &r->plan)));
  ZR_TRY(next_line(r));
  ZR_TRY(read_tiers(r, "arena", r->plan->arena_bytes));
  ZR_TRY(read_tiers(r, "peak", r->plan->peak_bytes));
  return read_tiers(r, "bound", r->plan->lower_bound_bytes);
}

static zr_status_t read_unit(reader_t *r) {
  int16_t unit;
  ZR_TRY(expect(r, "unit"));
  ZR_TRY(placed(r, zr_plan_add_unit(r->plan, next_word(r), &unit)));
  return end_of_line(r);
}

static zr_status_t read_buffer(reader_t *r) {
  int tier = 0, category = 0, dtype = 0;
  int32_t buffer;
  int64_t bytes, offset = -1;
  ZR_TRY(expect(r, "buffer"));
  const char *name = next_word(r);
  ZR_TRY(one_of(r, "a tier", ZR_N_TIERS, tier_name, &tier));
  ZR_TRY(one_of(r, "a category", ZR_N_CATEGORIES, category_name, &category));
  ZR_TRY(one_of(r, "a type", ZR_N_DTYPES, dtype_name, &dtype));
  ZR_TRY(number(r, "", 1, INT64_MAX, &bytes));
  bool persistent = strcmp(next_word(r), "persistent") == 0;
  if (persistent) next_word(r);
  if (strcmp(r->word, "at") != 0) return wrong(r, "at");
  if (strcmp(r->at, "-") == 0)
    next_word(r);
  else
    ZR_TRY(number(r, "", 0, INT64_MAX, &offset));
  ZR_TRY(end_of_line(r));
  ZR_TRY(placed(r, zr_plan_add_buffer(r->plan, name, (zr_tier_t)tier, (zr_category_t)category,
                                      (zr_dtype_t)dtype, bytes, persistent, &buffer)));
  r->plan->buffer[buffer].offset = offset;
  return ZR_OK;
}

static zr_status_t read_unit_of_op(reader_t *r) {
  const char *name = next_word(r);
  for (size_t i = 0; i < r->plan->n_units; i++) {
    if (strcmp(r->plan->unit_name[i], name) != 0) continue;
    r->desc.unit = (int16_t)i;
    return ZR_OK;
  }
  return wrong(r, "a unit");
}

static zr_status_t read_op_line(reader_t *r) {
  int stream = 0;
  int64_t value;
  ZR_TRY(expect(r, "op"));
  ZR_TRY(number(r, "", (int64_t)r->plan->n_ops, (int64_t)r->plan->n_ops, &value));
  r->desc = (zr_op_desc_t){.kind = zr_op_find(next_word(r)), .unit = -1, .micro = -1};
  const zr_op_row_t *row = zr_op_row(r->desc.kind);
  if (row == NULL) return wrong(r, "a kind of operation");
  ZR_TRY(one_of(r, "a stream", ZR_N_STREAMS, stream_name, &stream));
  r->stream = (uint8_t)stream;
  if (stream != row->stream && (row->also >> stream & 1) != 0) r->desc.on = ZR_ON(stream);
  if (strcmp(next_word(r), "unit") == 0) {
    ZR_TRY(read_unit_of_op(r));
    next_word(r);
  }
  if (strcmp(r->word, "micro") == 0) {
    ZR_TRY(number(r, "", 0, INT32_MAX, &value));
    r->desc.micro = (int32_t)value;
    next_word(r);
  }
  if (strcmp(r->word, "phase") != 0) return wrong(r, "phase");
  ZR_TRY(number(r, "", INT32_MIN, INT32_MAX, &value));
  r->desc.phase = (int32_t)value;
  for (int i = 0; i < row->n_attrs; i++) {
    ZR_TRY(expect(r, row->attr[i]));
    ZR_TRY(number(r, "", INT64_MIN, INT64_MAX, &r->desc.attr[i]));
  }
  if (row->has_real) {
    ZR_TRY(expect(r, row->real_name));
    char *end = NULL;
    r->desc.real = strtod(next_word(r), &end);
    if (end == r->word || *end != 0) return wrong(r, "a real number");
  }
  return end_of_line(r);
}

static zr_status_t read_access(reader_t *r, uint8_t *out_access) {
  static const uint8_t access[] = {ZR_READ, ZR_WRITE, ZR_ACCUMULATE, ZR_SCRATCH};
  const char *word = next_word(r);
  for (size_t i = 0; i < sizeof access; i++) {
    if (word[0] != zr_text_access_letter(access[i]) || word[1] != 0) continue;
    *out_access = access[i];
    return ZR_OK;
  }
  return wrong(r, "R, W, A or S");
}

static zr_status_t read_operand(reader_t *r) {
  const zr_op_row_t *row = zr_op_row(r->desc.kind);
  zr_operand_t operand = zr_operand_none();
  int64_t version = 0;
  int at = r->desc.n_operands;
  const char *name = next_word(r);
  /* Absent operands have no line. */
  for (; at < row->n_operands && strcmp(row->operand[at].name, name) != 0; at++)
    r->desc.operand[at] = zr_operand_none();
  if (at == row->n_operands) return wrong(r, "an operand of this kind, or wait");
  ZR_TRY(read_access(r, &operand.access));
  operand.buffer = zr_name_map_find(&r->names, r->plan, next_word(r));
  if (operand.buffer < 0) return wrong(r, "a buffer");
  ZR_TRY(number(r, "v", 0, UINT32_MAX, &version));
  ZR_TRY(number(r, "", 0, INT64_MAX, &operand.offset));
  ZR_TRY(number(r, "+", 1, INT64_MAX, &operand.bytes));
  next_word(r);
  if (strcmp(r->word, "as") == 0) {
    int dtype = 0;
    ZR_TRY(one_of(r, "a type", ZR_N_DTYPES, dtype_name, &dtype));
    operand.dtype = (uint8_t)dtype;
    next_word(r);
  }
  if (strcmp(r->word, "rank") == 0) {
    ZR_TRY(number(r, "", INT64_MIN, INT64_MAX, &operand.rank_stride));
    next_word(r);
  }
  if (*r->word != 0) return wrong(r, "as, rank or the end of the line");
  r->desc.operand[at] = operand;
  r->version[at] = (uint32_t)version;
  r->desc.n_operands = at + 1;
  return ZR_OK;
}

static zr_status_t read_wait(reader_t *r) {
  int64_t op;
  zr_wait_t wait = {0};
  ZR_TRY(expect(r, "wait"));
  ZR_TRY(number(r, "", 0, INT32_MAX, &op));
  wait.op = (int32_t)op;
  next_word(r);
  if (strcmp(r->word, "back") == 0) {
    wait.back = 1;
    next_word(r);
  }
  if (strcmp(r->word, "placement") == 0) {
    wait.placement_only = true;
    next_word(r);
  }
  if (*r->word != 0) return wrong(r, "back or placement");
  if (r->n_waits == ZR_N_STREAMS) return wrong(r, "at most one wait a stream");
  r->wait[r->n_waits++] = wait;
  r->plan->n_waits++;
  r->plan->n_placement_waits += wait.placement_only;
  return ZR_OK;
}

static zr_status_t read_op(reader_t *r) {
  int32_t op;
  int op_line = r->line;
  memset(r->version, 0, sizeof r->version);
  memset(r->wait, 0, sizeof r->wait);
  r->n_waits = 0;
  ZR_TRY(read_op_line(r));
  ZR_TRY(next_line(r));
  for (; !r->ended && !line_starts(r, "op");) {
    ZR_TRY(line_starts(r, "wait") ? read_wait(r) : read_operand(r));
    ZR_TRY(next_line(r));
  }
  int line = r->line;
  r->line = op_line;
  ZR_TRY(placed(r, zr_plan_add_op(r->plan, &r->desc, &op)));
  r->line = line;
  zr_op_t *added = &r->plan->op[op];
  added->stream = r->stream;
  added->n_waits = r->n_waits;
  memcpy(added->wait, r->wait, sizeof added->wait);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) added->operand[i].version = r->version[i];
  return ZR_OK;
}

/* Versions follow from the list; a text that says others was changed by hand and means something
 * else. */
static zr_status_t check_versions(const reader_t *r, const uint32_t *said) {
  for (size_t i = 0; i < r->plan->n_ops; i++) {
    for (int j = 0; j < ZR_MAX_OPERANDS; j++) {
      const zr_operand_t *operand = &r->plan->op[i].operand[j];
      if (operand->buffer < 0 || operand->version == said[i * ZR_MAX_OPERANDS + (size_t)j])
        continue;
      return zr_fail(ZR_ERR_DATA,
                     "%s: operation %zu: the version of %s is %u in the list, %u in the "
                     "text",
                     r->name, i, r->plan->buffer[operand->buffer].name, operand->version,
                     said[i * ZR_MAX_OPERANDS + (size_t)j]);
    }
  }
  return ZR_OK;
}

static zr_status_t check_waits(const reader_t *r) {
  for (size_t i = 0; i < r->plan->n_ops; i++) {
    for (int j = 0; j < r->plan->op[i].n_waits; j++) {
      if ((size_t)r->plan->op[i].wait[j].op >= r->plan->n_ops)
        return zr_fail(ZR_ERR_DATA, "%s: operation %zu waits for operation %d, which is not there",
                       r->name, i, r->plan->op[i].wait[j].op);
    }
  }
  return ZR_OK;
}

static zr_status_t finish(reader_t *r) {
  uint32_t *said = NULL;
  zr_plan_t *plan = r->plan;
  ZR_TRY(zr_alloc_get(plan->alloc, plan->n_ops * ZR_MAX_OPERANDS, sizeof *said, &said));
  for (size_t i = 0; i < plan->n_ops; i++) {
    for (size_t j = 0; j < ZR_MAX_OPERANDS; j++)
      said[i * ZR_MAX_OPERANDS + j] = plan->op[i].operand[j].version;
  }
  zr_status_t status = placed(r, zr_plan_finish(plan));
  if (status == ZR_OK) status = check_versions(r, said);
  zr_alloc_free(plan->alloc, said);
  return status;
}

static zr_status_t read_all(reader_t *r, zr_alloc_t *alloc) {
  bool finished = false;
  ZR_TRY(read_head(r, alloc, &finished));
  for (; line_starts(r, "unit");) {
    ZR_TRY(read_unit(r));
    ZR_TRY(next_line(r));
  }
  for (; line_starts(r, "buffer");) {
    ZR_TRY(read_buffer(r));
    ZR_TRY(next_line(r));
  }
  ZR_TRY(placed(r, zr_name_map_init(&r->names, r->plan)));
  while (!r->ended) ZR_TRY(read_op(r));
  ZR_TRY(check_waits(r));
  return finished ? finish(r) : ZR_OK;
}

zr_status_t zr_text_read(zr_alloc_t *alloc, FILE *file, const char *name, zr_plan_t **out_plan) {
  if (alloc == NULL) alloc = zr_alloc_default();
  reader_t *r = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *r, &r));
  r->file = file;
  r->name = name;
  zr_status_t status = read_all(r, alloc);
  if (r->names.slot != NULL) zr_name_map_fini(&r->names);
  if (status == ZR_OK)
    *out_plan = r->plan;
  else
    zr_plan_destroy(r->plan);
  zr_alloc_free(alloc, r);
  return status;
}
