// Integers' bits, and functions that CUDA has and C lacks.
#include "device.hpp"
#include "machine.hpp"

namespace pal {

template <class T> static int count_ones(T bits) {
  int count = 0;
  for (; bits; bits >>= 1) count += (int)(bits & 1);
  return count;
}

template <class T> static int count_leading_zeros(T bits) {
  int count = 8 * (int)sizeof(T);
  for (; bits; bits >>= 1) --count;
  return count;
}

int ones(u32 bits) { return count_ones(bits); }
int ones(u64 bits) { return count_ones(bits); }
int leading_zeros(u32 bits) { return count_leading_zeros(bits); }
int leading_zeros(u64 bits) { return count_leading_zeros(bits); }

}  // namespace pal

// The inverse of the error function, by bisection of erfc, which is exact in the tail: erf(y) = x, erfc(y) = 1 - x.
extern "C" double erfinv(double x) {
  double size = fabs(x);
  if (!(size <= 1)) return __builtin_nan("");
  if (size == 1) return x * __builtin_inf();
  if (size < 1e-9) return x * 0.88622692545275801;  // half the root of pi: the next term is below the last bit
  double low = 0, high = 6;  // erfc(6) is less than the distance of 1 to the number below it
  for (int step = 0; step < 100; ++step) {
    double middle = (low + high) / 2;
    (size < 0.5 ? erf(middle) < size : erfc(middle) > 1 - size) ? low = middle : high = middle;
  }
  return copysign((low + high) / 2, x);
}
extern "C" float erfinvf(float x) { return (float)erfinv(x); }
