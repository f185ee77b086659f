// Threshold: the largest entries of every row, compacted, and where they were.
#pragma once

#include "row_choice.h"

namespace laconic {

// Entries of x (rows x cols) that are chosen in their row, column by column, in each column by row. Entry i was at
// row places[i] % rows, column places[i] / rows; `places` ascends. `places` and `values` need room for all entries;
// 0 < keep <= 1. Returns how many there are.
size_t threshold_rows(const Kernels& kernels, const float* x, size_t rows, size_t cols, double keep,
                      ThresholdMethod method, int64_t* places, float* values);

}  // namespace laconic
