#include "grid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "huffman_code.h"

namespace laconic {
namespace {

constexpr size_t kRangeAll = size_t(1) << 18, kRangeRun = 1024, kSample = 4096;
constexpr int kMaxLowBits = 8;
constexpr uint64_t kPatchBits = 64;     // what an escaped value costs, roughly
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

// Codes do not fit int8 around zero: centre them on the median and choose how many low bits
// go out raw, by the cost over a sample.
void fit_window(const float* x, size_t n, Lattice& lattice) {
  const size_t count = std::min(n, kSample), stride = n / count;
  std::vector<int32_t> codes;
  codes.reserve(count);
  for (size_t i = 0; i < count; ++i)
    if (std::isfinite(x[i * stride])) codes.push_back(nearest_code(x[i * stride], lattice.grid.inverse));
  if (codes.empty()) return;
  std::nth_element(codes.begin(), codes.begin() + std::ptrdiff_t(codes.size() / 2), codes.end());
  const int32_t base = codes[codes.size() / 2];
  uint64_t best = UINT64_MAX;
  for (int s = 0; s <= kMaxLowBits; ++s) {
    Histogram histogram{};
    uint64_t outside = 0;
    for (const int32_t code : codes) {
      const int32_t high = ((code - base) >> s) + 128;
      if (high < 0 || high > 255) ++outside;
      else ++histogram[size_t(high)];
    }
    const uint64_t cost =
        entropy_q16(histogram.data(), 256) + ((uint64_t(s) * codes.size() + kPatchBits * outside) << 16);
    if (cost < best) {
      best = cost;
      lattice.low_bits = s;
    }
    if (!outside) break;  // more low bits only make the others' code coarser
  }
  lattice.grid.base = base;
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
  const bool fits = nearest_code(low, grid.inverse) >= -127 && nearest_code(high, grid.inverse) <= 126;
  if (!fits) fit_window(x, n, lattice);
  grid.clamped = !(fits && all);
  grid.smallest = -128 * (1 << lattice.low_bits);
  grid.largest = 128 * (1 << lattice.low_bits) - 1;
  lattice.usable = true;
  return lattice;
}

}  // namespace laconic
