#include "threshold_rows.h"

#include <vector>

namespace laconic {

size_t threshold_rows(const Kernels& kernels, const float* x, size_t rows, size_t cols, double keep,
                      ThresholdMethod method, int64_t* places, float* values) {
  if (rows == 0 || cols == 0) return 0;
  RowChoice choice(kernels, cols, keep, method);
  std::vector<uint32_t> all;
  std::vector<size_t> ends(rows), next(cols + 1);
  for (size_t r = 0; r < rows; ++r) {
    for_each_column(choice.choose(x + r * cols), choice.words(), [&](size_t c) {
      ++next[c + 1];
      all.push_back(uint32_t(c));
    });
    ends[r] = all.size();
  }
  for (size_t c = 0; c < cols; ++c) next[c + 1] += next[c];
  for (size_t r = 0, i = 0; r < rows; ++r)
    for (; i < ends[r]; ++i) {
      const size_t c = all[i], place = next[c]++;
      places[place] = int64_t(c * rows + r);
      values[place] = x[r * cols + c];
    }
  return all.size();
}

}  // namespace laconic
