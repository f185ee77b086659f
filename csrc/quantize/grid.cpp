#include "grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "code_window.h"

namespace laconic {
namespace {

constexpr size_t kRangeAll = size_t(1) << 18, kRangeRun = 1024;
constexpr double kShrink = 1.0 - 0x1p-12;  // of the step, so that float32 rounding rarely misses the bound
constexpr float kLimit = 4194304.0f;

float round_down(double x) {
  if (x >= double(std::numeric_limits<float>::max())) return std::numeric_limits<float>::max();
  const float f = float(x);
  return double(f) > x ? std::nextafter(f, -std::numeric_limits<float>::infinity()) : f;
}

int32_t nearest_code(float x, float inverse) {
  const float v = std::min(std::max(x * inverse, -kLimit), kLimit);
  return int32_t((v + 12582912.0f) - 12582912.0f);
}

uint64_t splitmix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Large blocks with an absolute bound are looked at here and there; what lies outside is escaped.
size_t sampled_range(const Kernels& kernels, const float* x, size_t n, float* low, float* high) {
  const size_t stride = kRangeRun * ((n + kRangeAll - 1) / kRangeAll);
  *low = std::numeric_limits<float>::infinity();
  *high = -*low;
  size_t finite = 0;
  for (size_t start = 0; start < n; start += stride) {
    float lo, hi;
    finite += kernels.range(x + start, std::min(kRangeRun, n - start), &lo, &hi);
    *low = std::min(*low, lo);
    *high = std::max(*high, hi);
  }
  return finite;
}

// What a relative bound is a share of, in float64; every value was looked at.
double scale_of(const Kernels& kernels, const float* x, size_t n, Relative relative, float low, float high,
                size_t finite) {
  if (!finite) return 0.0;
  if (relative == Relative::kToRange) return double(high) - double(low);
  return std::sqrt(kernels.finite_squares(x, n) / double(finite));
}

}  // namespace

Lattice choose_lattice(const Kernels& kernels, const float* x, size_t n, const BoundSpec& spec) {
  Lattice lattice;
  float low, high;
  const bool relative = spec.relative != Relative::kNo, all = relative || n <= kRangeAll;
  const size_t finite = all ? kernels.range(x, n, &low, &high) : sampled_range(kernels, x, n, &low, &high);
  double bound = spec.bound;
  if (relative) bound *= scale_of(kernels, x, n, spec.relative, low, high, finite);
  Grid& grid = lattice.grid;
  grid.bound = round_down(bound);
  grid.step = round_down((spec.dithered ? 1.0 : 2.0) * bound * kShrink);
  if (!(grid.bound > 0) || !(grid.step > 0) || !finite) return lattice;
  grid.inverse = 1.0f / grid.step;
  if (!std::isfinite(grid.inverse)) return lattice;
  grid.dithered = spec.dithered;
  const uint64_t key = splitmix(spec.seed);
  grid.key[0] = uint32_t(key);
  grid.key[1] = uint32_t(key >> 32);
  int32_t lowest = nearest_code(low, grid.inverse), highest = nearest_code(high, grid.inverse);
  const bool fits = lowest >= -127 && highest <= 126;
  if (!all) {  // what was not looked at may lie anywhere
    lowest = -int32_t(kLimit);
    highest = int32_t(kLimit);
  }
  if (!fits) {
    const CodeWindow window = fit_window(kernels, x, n, finite == n, grid.inverse, lowest, highest);
    grid.base = window.base;
    lattice.low_bits = window.low_bits;
  }
  grid.clamped = !(fits && all);
  grid.smallest = -128 * (1 << lattice.low_bits);
  grid.largest = 128 * (1 << lattice.low_bits) - 1;
  lattice.usable = true;
  return lattice;
}

}  // namespace laconic
