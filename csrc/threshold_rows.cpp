#include "threshold_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

namespace laconic {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;  // magnitudes from here on are not finite

// Magnitudes as integers: the order is that of the values, with NaN above infinity.
uint32_t magnitude(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits & 0x7fffffffu;
}

float from_magnitude(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// The least magnitude that is at least `threshold` and not 0.
uint32_t at_least(double threshold) {
  float t = float(threshold);  // beyond float32: infinity
  if (double(t) < threshold) t = std::nextafter(t, std::numeric_limits<float>::infinity());
  return std::max(magnitude(t), 1u);
}

uint32_t laplace_threshold(const uint32_t* size, size_t cols, double keep) {
  double lane[8] = {};
  uint32_t some[8] = {};  // finite ones that are not 0; cols has 32 bits
  const auto add = [&](size_t c, size_t j) {
    const uint32_t v = size[c] < kInfinity ? size[c] : 0;
    lane[j] += double(from_magnitude(v));
    some[j] += uint32_t(v != 0);
  };
  size_t c = 0;
  for (; c + 8 <= cols; c += 8)
    for (size_t j = 0; j < 8; ++j) add(c + j, j);
  for (size_t j = 0; c + j < cols; ++j) add(c + j, j);
  size_t m = 0;
  for (const uint32_t n : some) m += n;
  const double wanted = keep * double(cols);
  if (wanted >= double(m)) return 1;
  const double sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  return at_least(-(sum / double(m)) * std::log(wanted / double(m)));
}

// The k-th largest magnitude; everything that is not finite reaches it.
uint32_t topk_threshold(const uint32_t* size, size_t cols, size_t k, std::vector<uint32_t>& scratch) {
  scratch.assign(size, size + cols);
  const auto kth = scratch.begin() + std::ptrdiff_t(k - 1);
  std::nth_element(scratch.begin(), kth, scratch.end(), std::greater<>());
  return std::min(std::max(*kth, 1u), kInfinity);
}

// Of a row's kept columns, drops those of magnitude `threshold` that are one too many, from the right.
size_t drop_ties(const uint32_t* size, uint32_t threshold, size_t k, uint32_t* columns, size_t kept) {
  size_t above = 0;
  for (size_t i = 0; i < kept; ++i) above += size_t(size[columns[i]] > threshold);
  size_t room = k > above ? k - above : 0, n = 0;
  for (size_t i = 0; i < kept; ++i) {
    const bool tie = size[columns[i]] == threshold;
    if (tie && room == 0) continue;
    room -= size_t(tie);
    columns[n++] = columns[i];
  }
  return n;
}

}  // namespace

size_t threshold_rows(const float* x, size_t rows, size_t cols, double keep, ThresholdMethod method, int64_t* places,
                      float* values) {
  if (rows == 0 || cols == 0) return 0;
  const size_t k = std::max<size_t>(1, size_t(keep * double(cols) + 0.5));
  std::vector<uint32_t> size(cols), scratch, columns(cols), all;
  std::vector<size_t> ends(rows), next(cols + 1);
  for (size_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    for (size_t c = 0; c < cols; ++c) size[c] = magnitude(row[c]);
    const bool laplace = method == ThresholdMethod::kLaplace;
    const uint32_t threshold = laplace ? laplace_threshold(size.data(), cols, keep)
                                       : topk_threshold(size.data(), cols, std::min(k, cols), scratch);
    size_t kept = 0;
    for (size_t c = 0; c < cols; ++c) {  // without a branch: which ones are kept is hard to predict
      columns[kept] = uint32_t(c);
      kept += size_t(size[c] >= threshold);
    }
    if (!laplace && kept > k && threshold < kInfinity)
      kept = drop_ties(size.data(), threshold, k, columns.data(), kept);
    for (size_t i = 0; i < kept; ++i) ++next[columns[i] + 1];
    all.insert(all.end(), columns.begin(), columns.begin() + std::ptrdiff_t(kept));
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
