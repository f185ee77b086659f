#include "grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "coding.h"
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

// The finite ones of evenly spread values, as codes.
struct Sample {
  Sample(const Kernels& kernels, const float* x, size_t n, bool finite, float inverse) {
    const size_t count = std::min(n, kSample), stride = n / count;
    float spread[kSample];
    if (stride > 1 || !finite) {
      for (size_t i = 0; i < count; ++i)
        if (std::isfinite(x[i * stride])) spread[size++] = x[i * stride];
      x = spread;
    } else {
      size = count;
    }
    kernels.nearest_codes(x, size, inverse, codes);
  }

  size_t size = 0;
  int32_t codes[kSample];
};

// The element at `rank` of the sorted codes, which are low..high: by halves, because mere counting is fast.
int32_t ranked_code(const Kernels& kernels, const Sample& sample, size_t rank, int32_t low, int32_t high) {
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (kernels.count_below(sample.codes, sample.size, middle + 1) > rank) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Windows of 256 << s codes around a base, and what s low bits for each code and the codes outside cost.
class Windows {
 public:
  // All codes lie in low..high.
  Windows(const Kernels& kernels, const Sample& sample, int32_t base, int32_t low, int32_t high)
      : sample_(sample), base_(base) {
    const auto outside = [&](int s) {
      const int32_t begin = base - (128 << s), end = base + (128 << s);
      if (begin <= low && high < end) return size_t(0);
      return sample.size - kernels.count_below(sample.codes, sample.size, end) +
             kernels.count_below(sample.codes, sample.size, begin);
    };
    // The last one to consider is the first that holds all codes: more low bits only make the others' code coarser.
    last_ = kMaxLowBits;
    outside_[last_] = outside(last_);
    for (first_ = last_; first_ > 0; --first_) {
      const size_t more = outside_[first_ - 1] = outside(first_ - 1);
      if (!more) last_ = first_ - 1;
      else if (all_dearer(more)) break;
    }
    while (first_ < last_ && dearer_than_last(first_)) ++first_;
  }

  // The first of those that cost least.
  int cheapest() const {
    if (first_ == last_) return last_;
    const int first = first_;
    Histogram histogram{};
    int32_t far[kSample];  // distances of codes outside
    size_t far_size = count(first, histogram, far);
    int best = first;
    uint64_t terms = 0, least = UINT64_MAX;  // terms: of the histogram's entropy
    for (const uint32_t c : histogram) terms += entropy_term(c);
    for (int s = first;; ++s) {
      const uint64_t all = entropy_term(uint32_t(sample_.size - outside_[s]));
      const uint64_t cost = all - terms + ((uint64_t(s) * sample_.size + kPatchBits * outside_[s]) << 16);
      if (cost < least) {
        least = cost;
        best = s;
      }
      if (s == last_) return best;
      terms = widen(histogram, far, far_size, s + 1);
    }
  }

 private:
  // Known without the entropies E, in bits. Between the windows s and last lie d of the N codes in the latter. E(s) is not below
  // the entropy of the same codes in the coarser steps of the last window, and that is at least
  // E(last) - 8 d - N h(d / N): d codes of 256 values, and which ones they are. The rest is for rounded logarithms.
  bool dearer_than_last(int s) const {
    const uint64_t d = outside_[s] - outside_[last_], n = sample_.size;
    const uint32_t split[2] = {uint32_t(d), uint32_t(n - outside_[s])};
    return (kPatchBits - 8) * d << 16 > (uint64_t(last_ - s) * n << 16) + entropy_q16(split, 2) + (n << 11);
  }

  // The same for all windows that leave at least so many outside: a split costs less than a bit for each.
  bool all_dearer(size_t outside) const {
    return (kPatchBits - 8) * (outside - outside_[last_]) > uint64_t(kMaxLowBits + 2) * sample_.size;
  }

  size_t count(int s, Histogram& histogram, int32_t* far) const {
    uint8_t parts[kSample];
    for (size_t i = 0; i < sample_.size; ++i) parts[i] = uint8_t(((sample_.codes[i] - base_) >> s) + 128);
    count_symbols(parts, sample_.size, histogram);
    size_t far_size = 0;
    for (size_t i = 0; i < sample_.size; ++i) {  // without a branch: nobody can foresee which ones are outside
      far[far_size] = sample_.codes[i] - base_;
      far_size += uint32_t((far[far_size] >> s) + 128) > 255;
    }
    for (size_t i = 0; i < far_size; ++i) --histogram[uint8_t((far[i] >> s) + 128)];
    return far_size;
  }

  // To s low bits from one less; those that are still outside stay in `far`. Returns the terms of the entropy.
  static uint64_t widen(Histogram& histogram, int32_t* far, size_t& far_size, int s) {
    Histogram wider{};
    uint64_t terms = 0;
    for (size_t k = 0; k < 128; ++k) {
      wider[64 + k] = histogram[2 * k] + histogram[2 * k + 1];
      terms += entropy_term(wider[64 + k]);
    }
    size_t kept = 0;
    for (size_t i = 0; i < far_size; ++i) {
      const int32_t distance = far[i];
      const uint32_t high = uint32_t((distance >> s) + 128);
      far[kept] = distance;
      if (high > 255) {
        ++kept;
      } else {
        terms -= entropy_term(wider[high]);
        terms += entropy_term(++wider[high]);
      }
    }
    far_size = kept;
    histogram = wider;
    return terms;
  }

  const Sample& sample_;
  int32_t base_;
  int first_, last_;
  size_t outside_[kMaxLowBits + 1];
};

// Codes do not fit int8 around zero: centre them on the median and choose how many low bits go out raw, by the cost
// over a sample. All codes lie in low..high.
void fit_window(const Kernels& kernels, const float* x, size_t n, bool finite, int32_t low, int32_t high,
                Lattice& lattice) {
  const Sample sample(kernels, x, n, finite, lattice.grid.inverse);
  if (!sample.size) return;
  lattice.grid.base = ranked_code(kernels, sample, sample.size / 2, low, high);
  lattice.low_bits = Windows(kernels, sample, lattice.grid.base, low, high).cheapest();
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
  if (!fits) fit_window(kernels, x, n, finite == n, lowest, highest, lattice);
  grid.clamped = !(fits && all);
  grid.smallest = -128 * (1 << lattice.low_bits);
  grid.largest = 128 * (1 << lattice.low_bits) - 1;
  lattice.usable = true;
  return lattice;
}

}  // namespace laconic
