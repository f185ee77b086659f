// From a bound to a grid: the step, and where on the integers the codes lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace laconic {

enum class Relative : uint8_t {
  kNo = 0,
  kToRange = 1,  // bound * (max - min) of the finite values
  kToRms = 2,    // bound * sqrt(mean of the squares of the finite values)
};

struct BoundSpec {
  double bound;
  Relative relative;
  bool dithered;
  uint64_t seed;  // of the dither
};

struct Lattice {
  Grid grid{};
  int low_bits = 0;     // 0: codes fit int8; otherwise they have 8 + low_bits bits
  bool usable = false;  // false: no step can honor the bound, store the values
};

Lattice choose_lattice(const Kernels& kernels, const float* x, size_t n, const BoundSpec& spec);

}  // namespace laconic
