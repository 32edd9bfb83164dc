/* The scalar forms of YAML 1.2, of YAML 1.1 where DeepSpeed's users know them, and of JSON. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/options.h"

enum { NUMBER_BYTES = 64 };

bool zr_parse_bool(const char *text, int *out_value) {
  static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
  for (int i = 0; i < 3; ++i) {
    if (strcasecmp(text, yes[i]) == 0) {
      *out_value = 1;
      return true;
    }
    if (strcasecmp(text, no[i]) == 0) {
      *out_value = 0;
      return true;
    }
  }
  return false;
}

/* Copies a number without the underscores between its digits; false if it is too long for one or
 * has other characters than `allowed`. */
static bool copy_number(const char *text, const char *allowed, char out[NUMBER_BYTES]) {
  size_t used = 0;
  for (size_t i = 0; text[i]; ++i) {
    if (text[i] == '_' && i > 0 && isxdigit((unsigned char)text[i - 1]) &&
        isxdigit((unsigned char)text[i + 1])) {
      continue;
    }
    if (!strchr(allowed, text[i]) || used + 1 >= NUMBER_BYTES) return false;
    out[used++] = text[i];
  }
  out[used] = 0;
  return used > 0;
}

bool zr_parse_double(const char *text, double *out_value) {
  char number[NUMBER_BYTES], *end;
  if (!copy_number(text, "0123456789+-.eE", number)) return false;
  double value = strtod(number, &end);
  if (*end || end == number || !isfinite(value)) return false;
  *out_value = value;
  return true;
}

/* 0x1f and 0o17, with a sign. */
static bool parse_based(const char *text, int64_t *out_value) {
  char number[NUMBER_BYTES], *end;
  if (!copy_number(text, "0123456789abcdefABCDEFxo+-", number)) return false;
  const char *digits = number + (number[0] == '-' || number[0] == '+');
  if (digits[0] != '0' || (digits[1] != 'x' && digits[1] != 'o')) return false;
  if (!isxdigit((unsigned char)digits[2])) return false;
  errno = 0;
  long long value = strtoll(digits + 2, &end, digits[1] == 'x' ? 16 : 8);
  if (*end || errno) return false;
  *out_value = number[0] == '-' ? -value : value;
  return true;
}

bool zr_parse_int(const char *text, int64_t *out_value) {
  char number[NUMBER_BYTES], *end;
  if (parse_based(text, out_value)) return true;
  if (copy_number(text, "0123456789+-", number)) {
    errno = 0;
    long long value = strtoll(number, &end, 10);
    if (*end || end == number || errno) return false;
    *out_value = value;
    return true;
  }
  double value;
  if (!zr_parse_double(text, &value) || value != floor(value)) return false;
  if (fabs(value) >= 0x1p63) return false;
  *out_value = (int64_t)value;
  return true;
}

static bool parse_unit(const char *unit, double *out_factor) {
  static const char letters[] = "KMGTP";
  if (strcmp(unit, "B") == 0) {
    *out_factor = 1;
    return true;
  }
  const char *letter = *unit ? strchr(letters, toupper((unsigned char)*unit)) : NULL;
  if (!letter) return false;
  int power = (int)(letter - letters) + 1;
  if (strcmp(unit + 1, "iB") == 0) {
    *out_factor = ldexp(1.0, 10 * power);
  } else if (strcmp(unit + 1, "B") == 0) {
    *out_factor = pow(1000.0, power);
  } else {
    return false; /* "24G" could mean either */
  }
  return true;
}

bool zr_parse_bytes(const char *text, zr_option_bytes_t *out_value) {
  if (strcmp(text, "auto") == 0) {
    *out_value = (zr_option_bytes_t){.bytes = -1};
    return true;
  }
  int64_t plain;
  if (zr_parse_int(text, &plain)) {
    *out_value = (zr_option_bytes_t){.bytes = plain};
    return true;
  }
  char number[NUMBER_BYTES];
  size_t digits = strspn(text, "0123456789._");
  if (digits == 0 || digits >= NUMBER_BYTES) return false;
  memcpy(number, text, digits);
  number[digits] = 0;
  double value, factor;
  if (!zr_parse_double(number, &value)) return false;
  const char *unit = text + digits + strspn(text + digits, " ");
  if (strcmp(unit, "%") == 0) {
    if (!(value > 0 && value <= 100)) return false;
    *out_value = (zr_option_bytes_t){.bytes = -1, .share = value / 100};
    return true;
  }
  if (!parse_unit(unit, &factor) || value * factor >= 0x1p63) return false;
  *out_value = (zr_option_bytes_t){.bytes = (int64_t)(value * factor)};
  return true;
}
