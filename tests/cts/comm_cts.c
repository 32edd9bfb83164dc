typedef int zr_cts_comm_is_empty_t;
