/* The log for people, on standard error: one line a message, "zerorun: ..." with the rank when
 * there are several. Any thread; lines are never torn. Machine-readable events go to log.jsonl
 * (runtime/train), not here. */
#ifndef ZR_BASE_LOG_H
#define ZR_BASE_LOG_H

typedef enum { ZR_LOG_DEBUG, ZR_LOG_INFO, ZR_LOG_WARNING, ZR_LOG_ERROR } zr_log_level_t;

void zr_log_set_level(zr_log_level_t level);
void zr_log_set_rank(int rank, int n_ranks); /* INFO is printed by rank 0 only */
void zr_log(zr_log_level_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define zr_info(...) zr_log(ZR_LOG_INFO, __VA_ARGS__)
#define zr_warn(...) zr_log(ZR_LOG_WARNING, __VA_ARGS__)
#define zr_error(...) zr_log(ZR_LOG_ERROR, __VA_ARGS__)

#endif
