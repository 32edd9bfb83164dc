/* Shorthand for the rows of the option table. Private to config_table.c, where what they name is.
 */
#ifndef ZR_TRAIN_CONFIG_ROWS_H
#define ZR_TRAIN_CONFIG_ROWS_H

#include <math.h>
#include <stddef.h>

#include "runtime/train/config.h"

#define FIELD(name) .offset = offsetof(zr_config_t, name)
#define SHAPE(name) .offset = offsetof(zr_config_t, shape.name)
#define MOST_SCALE 0x1p64
#define NUMERIC .kind = ZR_OPTION_NUMERIC
#define SCHEDULE .kind = ZR_OPTION_SCHEDULE
#define AT_LEAST(low) .min = (low), .max = (double)INFINITY
#define BETWEEN(low, high) .min = (low), .max = (high)
/* A value of that type is accepted and of no effect. */
#define NEEDLESS(name, value_type, why, text)                                         \
  {                                                                                   \
    .key = name, .type = value_type, .support = ZR_OPTION_NEEDLESS, .no_field = true, \
    .may_be_auto = (value_type) != ZR_OPTION_ANY, .reason = why, .help = text         \
  }
#define NEEDLESS_ANY(name, why, text) NEEDLESS(name, ZR_OPTION_ANY, why, text)
/* Anything but the default is an error. */
#define REFUSED(name, value_type, value, why, text)                                  \
  {                                                                                  \
    .key = name, .type = value_type, .support = ZR_OPTION_REFUSED, .no_field = true, \
    .default_text = value, .reason = why, .help = text                               \
  }

/* clang-format off */
/* Homes, and DeepSpeed's blocks of the same. */
#define HOME(state, field, text)                                                  \
  {.key = "plan.homes." state, .type = ZR_OPTION_ENUM, SCHEDULE, FIELD(field), .names = homes, \
   .default_text = "auto", .help = text}
#define OFFLOAD(block, field, what)                                                            \
  {.key = "zero_optimization." block ".device", .type = ZR_OPTION_ENUM, SCHEDULE,              \
   FIELD(field.device), .names = offloads, .is_exact = true, .default_text = "none",           \
   .help = "where " what " live: none (the device), cpu (host memory), nvme (disk)"},          \
  {.key = "zero_optimization." block ".nvme_path", .type = ZR_OPTION_LIST, SCHEDULE,           \
   FIELD(field.nvme_path), .help = "for nvme: a directory, or several to stripe over"},        \
  {.key = "zero_optimization." block ".pin_memory", .type = ZR_OPTION_BOOL, SCHEDULE,          \
   FIELD(field.pin_memory), .may_be_auto = true, .help = "memory.pin"},                        \
  {.key = "zero_optimization." block ".buffer_count", .type = ZR_OPTION_INT, SCHEDULE,         \
   FIELD(field.buffer_count), AT_LEAST(1), .may_be_auto = true, .help = "plan.slots"},         \
  {.key = "zero_optimization." block ".buffer_size", .type = ZR_OPTION_INT, SCHEDULE,          \
   FIELD(field.buffer_size), AT_LEAST(1), .may_be_auto = true, .help = "plan.chunk"}
#define PASSED(name, value_type, why) \
  NEEDLESS("zero_optimization." name, value_type, why, "DeepSpeed's")
#define OLD(name, field, text)                                                   \
  {.key = "zero_optimization." name, .type = ZR_OPTION_BOOL, SCHEDULE, FIELD(field), .help = text}

#define LIMIT(name, text) NEEDLESS("zero_optimization." name, ZR_OPTION_INT, no_limit, text)
#define SETTLED(name) NEEDLESS("zero_optimization." name, ZR_OPTION_BOOL, always_so, "DeepSpeed's")
/* clang-format on */

#endif
