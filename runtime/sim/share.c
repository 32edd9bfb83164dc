#include "runtime/sim/share.h"

#include <stdbool.h>

#include "runtime/hal/hal.h"

/* How far all that still grow can go until resource r is used up. */
static double limit_of(int n, const double need[][ZR_SIM_RESOURCES], const double *speed,
                       const bool *stays, int r, double capacity) {
  double growing = 0, used = 0;
  for (int i = 0; i < n; i++) {
    if (stays[i]) {
      used += need[i][r] * speed[i];
    } else {
      growing += need[i][r];
    }
  }
  if (growing <= 0) return 1;
  double left = capacity - used;
  return left <= 0 ? 0 : left / growing;
}

void zr_sim_share(int n, const double need[][ZR_SIM_RESOURCES],
                  const double capacity[ZR_SIM_RESOURCES], double *out_speed) {
  bool stays[ZR_N_STREAMS] = {false};
  for (int i = 0; i < n; i++) out_speed[i] = 0;
  for (int round = 0; round <= ZR_SIM_RESOURCES; round++) {
    double level = 1;
    int tight = -1;
    for (int r = 0; r < ZR_SIM_RESOURCES; r++) {
      if (capacity[r] < 0) continue;
      double limit = limit_of(n, need, out_speed, stays, r, capacity[r]);
      if (limit >= level) continue;
      level = limit;
      tight = r;
    }
    for (int i = 0; i < n; i++) {
      if (!stays[i]) out_speed[i] = level;
      if (tight >= 0 && need[i][tight] > 0) stays[i] = true;
    }
    if (tight < 0) return;
  }
}
