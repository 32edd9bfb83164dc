#include "offload/host/pages.h"

#include <inttypes.h>
#include <stdio.h>

int64_t zr_host_available_bytes(void) {
  FILE *file = fopen("/proc/meminfo", "r");
  if (!file) return -1;
  char line[256];
  int64_t kib = -1;
  while (kib < 0 && fgets(line, sizeof line, file)) {
    if (sscanf(line, "MemAvailable: %" SCNd64 " kB", &kib) != 1) kib = -1;
  }
  (void)fclose(file);
  return kib < 0 ? -1 : kib * 1024;
}

/* A mapping's first line has its addresses, later ones a name and a number of KiB each. */
int64_t zr_host_huge_bytes(const void *memory, int64_t bytes) {
  FILE *file = fopen("/proc/self/smaps", "r");
  if (!file) return 0;
  const uintptr_t begin = (uintptr_t)memory, end = begin + (uintptr_t)bytes;
  uintptr_t from = 0, to = 0;
  int64_t huge_bytes = 0, kib = 0;
  char line[512];
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) continue;
    if (to <= begin || from >= end) continue;
    if (sscanf(line, "AnonHugePages: %" SCNd64 " kB", &kib) == 1) huge_bytes += kib * 1024;
  }
  (void)fclose(file);
  return huge_bytes;
}
