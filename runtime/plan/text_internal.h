/* Private to the text form: words that writer and reader share. */
#ifndef ZR_PLAN_TEXT_INTERNAL_H
#define ZR_PLAN_TEXT_INTERNAL_H

#include "runtime/plan/plan.h"

#define ZR_TEXT_HEADER "zerorun plan 1"

static inline char zr_text_access_letter(uint8_t access) {
  switch (access) {
    case ZR_READ:
      return 'R';
    case ZR_WRITE:
      return 'W';
    case ZR_ACCUMULATE:
      return 'A';
    case ZR_SCRATCH:
      return 'S';
    default:
      return '?';
  }
}

#endif
