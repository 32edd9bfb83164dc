/* The first cause of a job's failure as one rank knows it. Shared by the backends.
 *
 * Any thread may set and read it; the first setter wins, later ones change nothing. */
#ifndef ZR_COMM_CAUSE_H
#define ZR_COMM_CAUSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"

typedef struct {
  _Atomic uint32_t state; /* 0: none, 1: being written, 2: there */
  int rank;
  zr_status_t status;
  char text[ZR_DETAIL_BYTES];
} zr_comm_cause_t;

/* true if this call set it. A status that is no error becomes ZR_ERR_INTERNAL. */
bool zr_comm_cause_set(zr_comm_cause_t *cause, int rank, zr_status_t status, const char *text);
bool zr_comm_cause_known(const zr_comm_cause_t *cause);
/* The slot `cause` of zr_comm_ops_t. */
zr_status_t zr_comm_cause_get(const zr_comm_cause_t *cause, int *out_rank, char *out_detail,
                              int64_t detail_bytes);
/* What a collective returns once the cause is known, with the detail "rank R: TEXT": ZR_ERR_PEER,
 * or on the rank that failed its own status. ZR_OK while nobody has failed. */
zr_status_t zr_comm_cause_check(const zr_comm_cause_t *cause, int own_rank);

#endif
