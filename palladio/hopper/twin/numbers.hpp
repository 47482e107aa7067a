// Narrow number formats, by their bit patterns: IEEE 754 binary16, bfloat16, tf32, and the two of OCP's FP8.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "types.hpp"

namespace twin {

inline float float_from_bits(u32 bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline u32 bits_from_float(float value) {
  u32 bits;
  memcpy(&bits, &value, 4);
  return bits;
}

// A number of the given widths of exponent and fraction, IEEE 754 in all else.
inline float decode_ieee(u32 bits, int exponent_bits, int fraction_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1, most = (1 << exponent_bits) - 1;
  int exponent = bits >> fraction_bits & most;
  u32 fraction = bits & ((1u << fraction_bits) - 1);
  bool negative = bits >> (exponent_bits + fraction_bits) & 1;
  float value;
  if (exponent == most)
    value = fraction ? NAN : INFINITY;
  else if (exponent == 0)
    value = std::ldexp((float)fraction, 1 - bias - fraction_bits);
  else
    value = std::ldexp((float)(fraction | 1u << fraction_bits), exponent - bias - fraction_bits);
  return negative ? -value : value;
}

inline float decode_f16(u16 bits) { return decode_ieee(bits, 5, 10); }
inline float decode_bf16(u16 bits) { return float_from_bits((u32)bits << 16); }
inline float decode_e5m2(u8 bits) { return decode_ieee(bits, 5, 2); }
// e4m3 has no infinity: the greatest exponent holds numbers, and only the greatest fraction there is NaN.
inline float decode_e4m3(u8 bits) {
  if ((bits & 0x7f) == 0x7f) return NAN;
  if ((bits >> 3 & 15) != 15) return decode_ieee(bits, 4, 3);
  float value = std::ldexp((float)(8 + (bits & 7)), 15 - 7 - 3);
  return bits >> 7 ? -value : value;
}
// The tensor cores ignore the low 13 bits of a float32 that stands for a tf32.
inline float decode_tf32(u32 bits) { return float_from_bits(bits & ~0x1fffu); }

// Rounds to nearest, ties to even, as cvt.rn does.
inline u16 encode_bf16(float value) {
  u32 bits = bits_from_float(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // cvt gives the canonical NaN
  return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline u16 encode_f16(float value) {
  u32 bits = bits_from_float(value), sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return 0x7fff;
  if (bits >= 0x47800000) return sign | 0x7c00;  // 65536 and above
  if (bits < 0x38800000)                          // below the least normal number: units of 2^-24
    return sign | (u16)std::nearbyint(std::ldexp(float_from_bits(bits), 24));
  u32 rounded = bits + 0xfff + (bits >> 13 & 1);
  return sign | (u16)((rounded - 0x38000000) >> 13);
}

// The magnitude of a finite number, to nearest even, as if the greatest exponent held numbers like the others.
inline u32 encode_magnitude(float value, int exponent_bits, int fraction_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1;
  float magnitude = std::fabs(value);
  int exponent = magnitude == 0 ? 1 - bias : std::max(std::ilogb(magnitude), 1 - bias);
  float units = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
  return ((exponent + bias) << fraction_bits) + (int)units - (1 << fraction_bits);
}

inline u8 encode_e4m3(float value) {
  if (!(std::fabs(value) < INFINITY)) return 0x7f;
  u32 magnitude = encode_magnitude(value, 4, 3);
  return magnitude > 0x7e ? 0x7f : magnitude | (std::signbit(value) ? 0x80 : 0);
}

inline u8 encode_e5m2(float value) {
  if (value != value) return 0x7f;
  u32 magnitude = std::isinf(value) ? 0x7c : std::min(encode_magnitude(value, 5, 2), 0x7cu);
  return magnitude | (std::signbit(value) ? 0x80 : 0);
}

}  // namespace twin
