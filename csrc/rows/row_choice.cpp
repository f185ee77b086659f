#include "row_choice.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace laconic {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;  // magnitudes from here on are not finite

// Magnitudes as integers: the order is that of the values, with NaN above infinity.
uint32_t magnitude(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits & 0x7fffffffu;
}

// The least magnitude that is at least `threshold` and not 0.
uint32_t at_least(double threshold) {
  float t = float(threshold);  // beyond float32: infinity
  if (double(t) < threshold) t = std::nextafter(t, std::numeric_limits<float>::infinity());
  return std::max(magnitude(t), 1u);
}

}  // namespace

RowChoice::RowChoice(const Kernels& kernels, size_t cols, double keep, ThresholdMethod method)
    : kernels_(kernels),
      cols_(cols),
      k_(std::max<size_t>(1, size_t(keep * double(cols) + 0.5))),
      keep_(keep),
      method_(method),
      bits_((cols + 63) / 64) {}

const uint64_t* RowChoice::choose(const float* row) {
  const bool laplace = method_ == ThresholdMethod::kLaplace;
  const uint32_t threshold = laplace ? laplace_threshold(row) : topk_threshold(row);
  kernels_.reach_bits(row, cols_, threshold, bits_.data());
  if (!laplace && threshold < kInfinity) drop_ties(row, threshold);
  return bits_.data();
}

uint32_t RowChoice::laplace_threshold(const float* row) const {
  size_t m = 0;
  const double sum = kernels_.finite_magnitudes(row, cols_, &m), wanted = keep_ * double(cols_);
  if (wanted >= double(m)) return 1;
  return at_least(-(sum / double(m)) * std::log(wanted / double(m)));
}

// The k-th largest magnitude; everything that is not finite reaches it.
uint32_t RowChoice::topk_threshold(const float* row) {
  scratch_.resize(cols_);
  std::transform(row, row + cols_, scratch_.begin(), magnitude);
  const auto kth = scratch_.begin() + std::ptrdiff_t(std::min(k_, cols_) - 1);
  std::nth_element(scratch_.begin(), kth, scratch_.end(), std::greater<>());
  return std::min(std::max(*kth, 1u), kInfinity);
}

// Drops those of magnitude `threshold` that are too many, from the right.
void RowChoice::drop_ties(const float* row, uint32_t threshold) {
  size_t kept = 0, above = 0;
  for_each_column(bits_.data(), words(), [&](size_t c) {
    ++kept;
    above += size_t(magnitude(row[c]) > threshold);
  });
  if (kept <= k_) return;
  size_t room = k_ > above ? k_ - above : 0;
  for_each_column(bits_.data(), words(), [&](size_t c) {
    if (magnitude(row[c]) != threshold) return;
    if (room == 0) bits_[c / 64] &= ~(uint64_t(1) << c % 64);  // its word has been read
    else --room;
  });
}

}  // namespace laconic
