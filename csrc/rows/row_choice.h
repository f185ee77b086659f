// Which entries of a row are large enough to travel: one bit for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace laconic {

enum class ThresholdMethod : uint8_t { kLaplace = 0, kTopK = 1 };

// Zeros are never chosen, NaN and infinities always.
//
//   laplace   m finite entries that are not 0, of mean magnitude b: at least -b ln(keep * cols / m),
//             which is where a share keep * cols / m of a Laplace distribution of scale b lies beyond;
//             all of them where they are fewer than keep * cols
//   top-k     the max(1, floor(keep * cols + 1/2)) of largest magnitude; of equal ones those further left
//
// The sum behind b is in float64: lane j of eight sums the magnitudes of columns j, j + 8, ...; then
// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
class RowChoice {
 public:
  RowChoice(const Kernels& kernels, size_t cols, double keep, ThresholdMethod method);

  // The chosen entries of `row`: words() words, bits past the last column 0; they are there until the next call.
  const uint64_t* choose(const float* row);

  size_t words() const { return bits_.size(); }

 private:
  uint32_t laplace_threshold(const float* row) const;
  uint32_t topk_threshold(const float* row);
  void drop_ties(const float* row, uint32_t threshold);

  const Kernels& kernels_;
  size_t cols_, k_;
  double keep_;
  ThresholdMethod method_;
  std::vector<uint64_t> bits_;
  std::vector<uint32_t> scratch_;
};

// visit(i) for every bit i that is set, in ascending order.
template <typename Visit>
inline void for_each_column(const uint64_t* bits, size_t words, const Visit& visit) {
  for (size_t w = 0; w < words; ++w)
    for (uint64_t rest = bits[w]; rest; rest &= rest - 1) visit(w * 64 + size_t(__builtin_ctzll(rest)));
}

}  // namespace laconic
