#include "runtime/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char detail[ZR_DETAIL_BYTES];

zr_status_t zr_fail(zr_status_t status, const char *format, ...) {
  /* By way of a copy: the arguments may include zr_detail() itself. */
  char text[ZR_DETAIL_BYTES];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  memcpy(detail, text, sizeof detail);
  return status;
}

const char *zr_detail(void) {
  return detail;
}

void zr_detail_set(const char *text) {
  if (text == detail) return;
  (void)snprintf(detail, sizeof detail, "%s", text ? text : "");
}

typedef struct {
  zr_status_t status;
  int exit_code;
  const char *name;
} status_row_t;

static const status_row_t status_rows[] = {
    {ZR_OK, 0, "ok"},
    {ZR_PENDING, 1, "pending"},
    {ZR_ERR_INVALID_ARGUMENT, 2, "invalid argument"},
    {ZR_ERR_CONFIG, 2, "configuration"},
    {ZR_ERR_DATA, 3, "data"},
    {ZR_ERR_NOT_FOUND, 3, "not found"},
    {ZR_ERR_UNSUPPORTED, 2, "unsupported"},
    {ZR_ERR_VERIFY, 1, "verify"},
    {ZR_ERR_OUT_OF_MEMORY, 4, "out of memory"},
    {ZR_ERR_NO_SPACE, 4, "no space"},
    {ZR_ERR_IO, 5, "input/output"},
    {ZR_ERR_DEVICE, 5, "device"},
    {ZR_ERR_NETWORK, 5, "network"},
    {ZR_ERR_TIMEOUT, 5, "timeout"},
    {ZR_ERR_PEER, 6, "peer"},
    {ZR_ERR_NUMERIC, 7, "numeric"},
    {ZR_ERR_INTERNAL, 1, "internal"},
};

static const status_row_t *status_row(zr_status_t status) {
  for (size_t i = 0; i < sizeof status_rows / sizeof status_rows[0]; ++i) {
    if (status_rows[i].status == status) return &status_rows[i];
  }
  return NULL;
}

const char *zr_status_name(zr_status_t status) {
  const status_row_t *row = status_row(status);
  return row ? row->name : "unknown";
}

int zr_status_exit_code(zr_status_t status) {
  const status_row_t *row = status_row(status);
  return row ? row->exit_code : 1;
}
