#include "code_window.h"

#include <algorithm>
#include <cmath>

#include "coding.h"
#include "huffman_code.h"

namespace laconic {
namespace {

constexpr size_t kSample = 4096;
constexpr int kMaxLowBits = 8;
constexpr uint64_t kPatchBits = 64;  // what an escaped value costs, roughly

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
    Histogram histogram{};
    int32_t far[kSample];  // distances of codes outside
    size_t far_size = count(first_, histogram, far);
    int best = first_;
    uint64_t terms = 0, least = UINT64_MAX;  // terms: of the histogram's entropy
    for (const uint32_t c : histogram) terms += entropy_term(c);
    for (int s = first_;; ++s) {
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
  // Known without the entropies E, in bits. Between the windows s and last lie d of the N codes in the latter. E(s) is
  // not below the entropy of the same codes in the coarser steps of the last window, and that is at least
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

}  // namespace

CodeWindow fit_window(const Kernels& kernels, const float* x, size_t n, bool finite, float inverse, int32_t low,
                      int32_t high) {
  const Sample sample(kernels, x, n, finite, inverse);
  if (!sample.size) return {};
  const int32_t base = ranked_code(kernels, sample, sample.size / 2, low, high);
  return {base, Windows(kernels, sample, base, low, high).cheapest()};
}

}  // namespace laconic
