/* How operations that run at once share what they need. Private to runtime/sim.
 *
 * Each running operation goes at a speed from 0 to 1, a share of its speed alone. All speeds grow
 * together from 0; where a resource is used up, those that need it stay, the others grow on:
 *
 *   two workers (2 cores) and a copy (1 core) on 2 cores: 2/3 and 2/3 of their speed alone
 *   a read and a write on one drive that takes turns: 1/2 and 1/2
 */
#ifndef ZR_SIM_SHARE_H
#define ZR_SIM_SHARE_H

enum { ZR_SIM_CORES, ZR_SIM_MEMORY, ZR_SIM_DRIVE, ZR_SIM_RESOURCES };

/* need[i][r]: what operation i takes of resource r at full speed; capacity[r] < 0: no limit.
 * Fills speed[n]. n is at most the number of streams. */
void zr_sim_share(int n, const double need[][ZR_SIM_RESOURCES],
                  const double capacity[ZR_SIM_RESOURCES], double *out_speed);

#endif
