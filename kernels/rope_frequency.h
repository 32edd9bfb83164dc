/* The angle by which one position turns pair i of a head, as every backend's rope_table computes
 * it: in double. Stretched tables are transformers' rope_scaling of type linear and llama3. */
#ifndef ZR_KERNELS_ROPE_FREQUENCY_H
#define ZR_KERNELS_ROPE_FREQUENCY_H

#include <math.h>
#include <string.h>

#include "kernels/kern.h"

/* Attributes are integers: a real one travels as the bits of its double. */
static inline int64_t zr_attr_of_double(double value) {
  int64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline double zr_attr_double(int64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Waves that the original context holds more than `high_freq` times stay, those that it holds less
 * than `low_freq` times are stretched by `factor`, and between them it goes over evenly. */
static inline double zr_rope_stretched(const zr_kern_shape_t *shape, double frequency) {
  const double factor = zr_attr_double(shape->attr[ZR_ROPE_TABLE_FACTOR]);
  const double low = zr_attr_double(shape->attr[ZR_ROPE_TABLE_LOW_FREQ]);
  const double high = zr_attr_double(shape->attr[ZR_ROPE_TABLE_HIGH_FREQ]);
  const double original = (double)shape->attr[ZR_ROPE_TABLE_ORIGINAL];
  if (original <= 0) return frequency / factor; /* linear */
  const double length = 2 * 3.14159265358979323846 / frequency, waves = original / length;
  if (length < original / high) return frequency;
  if (length > original / low) return frequency / factor;
  const double smooth = (waves - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

static inline double zr_rope_frequency(const zr_kern_shape_t *shape, int64_t i) {
  const double exponent = -2.0 * (double)i / (double)shape->attr[ZR_ROPE_HEAD_DIM];
  const double frequency = pow(shape->real, exponent);
  return shape->attr[ZR_ROPE_TABLE_FACTOR] == 0 ? frequency : zr_rope_stretched(shape, frequency);
}

#endif
