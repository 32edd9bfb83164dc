#include "offload/disk/disk_internal.h"

static zr_status_t nouring_start(zr_disk_t *disk) {
  (void)disk;
  return zr_fail(ZR_ERR_UNSUPPORTED,
                 "this zerorun was built without io_uring: install liburing-dev and build again");
}

static void nouring_attach(zr_disk_t *disk) {
  (void)disk;
}

static void nouring_move(zr_disk_lane_t *lane) {
  (void)lane;
}

const zr_disk_engine_t zr_disk_engine_uring = {
    .name = "uring",
    .start = nouring_start,
    .attach = nouring_attach,
    .move = nouring_move,
    .stop = nouring_attach,
};
