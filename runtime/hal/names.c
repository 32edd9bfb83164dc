#include "runtime/hal/hal.h"

const char *zr_tier_name(zr_tier_t tier) {
  static const char *const names[ZR_N_TIERS] = {
      [ZR_TIER_DEVICE] = "device", [ZR_TIER_HOST] = "host", [ZR_TIER_DISK] = "disk"};
  return (unsigned)tier < ZR_N_TIERS ? names[tier] : "?";
}

const char *zr_stream_name(zr_stream_id_t stream) {
  static const char *const names[ZR_N_STREAMS] = {
      [ZR_STREAM_COMPUTE] = "compute", [ZR_STREAM_H2D] = "h2d",   [ZR_STREAM_D2H] = "d2h",
      [ZR_STREAM_COMM] = "comm",       [ZR_STREAM_READ] = "read", [ZR_STREAM_WRITE] = "write",
      [ZR_STREAM_HOST] = "host"};
  return (unsigned)stream < ZR_N_STREAMS ? names[stream] : "?";
}
