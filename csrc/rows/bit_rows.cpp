#include "bit_rows.h"

#include <algorithm>
#include <cstring>

#include "bytes.h"

namespace laconic {
namespace {

// visit(row, column) for every bit that is set.
template <typename Begin, typename Visit>
void for_each_entry(const uint8_t* bits, size_t rows, size_t cols, const Begin& begin, const Visit& visit) {
  const size_t bytes = bit_row_bytes(cols);
  for (size_t r = 0; r < rows; ++r, bits += bytes) {
    begin(r);
    for (size_t at = 0; at < bytes; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bits + at, std::min<size_t>(8, bytes - at));
      for (; word; word &= word - 1) visit(r, at * 8 + size_t(__builtin_ctzll(word)));
    }
  }
}

void nothing(size_t) {}

}  // namespace

size_t choose_bits(const Kernels& kernels, const BitMatrix<const float>& from, double keep, ThresholdMethod method,
                   uint8_t* bits, float* values) {
  if (from.rows == 0 || from.cols == 0) return 0;
  RowChoice choice(kernels, from.cols, keep, method);
  const size_t bytes = bit_row_bytes(from.cols);
  float* at = values;
  for (size_t r = 0; r < from.rows; ++r) {
    const float* const row = from.x + r * from.stride;
    const uint64_t* const chosen = choice.choose(row);
    std::memcpy(bits + r * bytes, chosen, bytes);
    for_each_column(chosen, choice.words(), [&](size_t c) { *at++ = row[c]; });
  }
  return size_t(at - values);
}

size_t count_row_bits(const uint8_t* bits, size_t rows, size_t cols) {
  const size_t bytes = bit_row_bytes(cols), size = rows * bytes;
  if (cols % 8)
    for (size_t r = 0; r < rows; ++r)
      expect(bits[r * bytes + bytes - 1] >> cols % 8 == 0, "bits: set past the last column");
  size_t count = 0;
  for (size_t at = 0; at < size; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bits + at, std::min<size_t>(8, size - at));
    count += size_t(__builtin_popcountll(word));
  }
  return count;
}

void take_bits(const uint8_t* bits, const BitMatrix<const float>& from, float* values) {
  for_each_entry(bits, from.rows, from.cols, nothing,
                 [&](size_t r, size_t c) { *values++ = from.x[r * from.stride + c]; });
}

void put_bits(const uint8_t* bits, const float* values, const BitMatrix<float>& to) {
  for_each_entry(
      bits, to.rows, to.cols, [&](size_t r) { std::fill_n(to.x + r * to.stride, to.cols, 0.0f); },
      [&](size_t r, size_t c) { to.x[r * to.stride + c] = *values++; });
}

void add_bits(const uint8_t* bits, const float* values, const BitMatrix<float>& to) {
  for_each_entry(bits, to.rows, to.cols, nothing, [&](size_t r, size_t c) { to.x[r * to.stride + c] += *values++; });
}

}  // namespace laconic
