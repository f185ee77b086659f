// Threshold: the largest entries of every row, compacted, and where they were.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic {

enum class ThresholdMethod : uint8_t { kLaplace = 0, kTopK = 1 };

// Entries of x (rows x cols) at or above their row's threshold, column by column, in each column by
// row. Entry i was at row places[i] % rows, column places[i] / rows; `places` ascends. Zeros are never
// kept, NaN and infinities always. `places` and `values` need room for all entries; 0 < keep <= 1.
// Returns how many were kept.
//
//   laplace   m finite entries that are not 0, of mean magnitude b: at least -b ln(keep * cols / m),
//             which is where a share keep * cols / m of a Laplace distribution of scale b lies beyond;
//             all of them where they are fewer than keep * cols
//   top-k     the max(1, floor(keep * cols + 1/2)) of largest magnitude; of equal ones those further left
//
// The sum behind b is in float64: lane j of eight sums the magnitudes of columns j, j + 8, ...; then
// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
size_t threshold_rows(const float* x, size_t rows, size_t cols, double keep, ThresholdMethod method, int64_t* places,
                      float* values);

}  // namespace laconic
