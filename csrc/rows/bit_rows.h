// BitRows: some entries of a matrix, a bit for each, rows of whole bytes; docs/formats/selection.md is the normative text.
#pragma once

#include "row_choice.h"

namespace laconic {

// A matrix of rows x cols whose rows begin `stride` values apart, and its bits.
template <typename T>
struct BitMatrix {
  T* x;
  size_t rows, cols, stride;
};

inline size_t bit_row_bytes(size_t cols) { return (cols + 7) / 8; }

// Entries that are chosen in their row; `bits` needs rows * bit_row_bytes(cols) bytes, and `values` room for all
// entries. Returns how many there are.
size_t choose_bits(const Kernels& kernels, const BitMatrix<const float>& from, double keep, ThresholdMethod method,
                   uint8_t* bits, float* values);

// How many entries there are; throws FormatError where a bit past the last column is set.
size_t count_row_bits(const uint8_t* bits, size_t rows, size_t cols);

// Values of the entries, row by row; from a matrix, into one that is 0 elsewhere, and added to one.
void take_bits(const uint8_t* bits, const BitMatrix<const float>& from, float* values);
void put_bits(const uint8_t* bits, const float* values, const BitMatrix<float>& to);
void add_bits(const uint8_t* bits, const float* values, const BitMatrix<float>& to);

}  // namespace laconic
