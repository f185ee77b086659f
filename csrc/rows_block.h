// BoundedRows: a float32 matrix, every value within its bound, equal rows sent once.
// docs/formats/bounded_rows.md is the normative text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "grid.h"
#include "kernels.h"
#include "scratch.h"

namespace laconic {

// Writes at most max_block_bytes(rows * cols); returns the size.
size_t encode_rows(const Kernels& kernels, const float* x, size_t rows, size_t cols, const BoundSpec& bound,
                   int threads, Scratch& scratch, uint8_t* out);

// Throws FormatError unless the block is exactly one of this shape.
void decode_rows(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end,
                 size_t rows, size_t cols, int threads, Scratch& scratch, float* out);

}  // namespace laconic
