// BoundedRows: a float32 matrix, every value within its bound, equal rows sent once.
// docs/formats/bounded_rows.md is the normative text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "code_section.h"
#include "grid.h"
#include "kernels.h"
#include "quantized_block.h"
#include "scratch.h"

namespace laconic {

// Writes at most max_block_bytes(rows * cols); returns the size.
size_t encode_rows(const Kernels& kernels, const float* x, size_t rows, size_t cols, const BoundSpec& bound,
                   int threads, Scratch& scratch, uint8_t* out);

// A block of which one stream of symbols is still to be decoded.
struct OpenBlock {
  std::optional<Reader> in;
  std::optional<CodeReader> codes;
  GridHeader header;
  bool shared;                 // rows refer to distinct ones
  std::vector<uint32_t> refs;  // if so
  size_t rows, cols;
  float* out;
  Stream stream;
  uint8_t symbols[kManyStreams + 16];
};

// Decodes a block but for its lone stream, if it has one; returns whether it has, and close_rows is to follow.
bool open_rows(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end, size_t rows,
               size_t cols, int threads, Scratch& scratch, float* out, OpenBlock& open);

// Makes values of the symbols, and checks what follows them.
void close_rows(const Kernels& kernels, OpenBlock& open);

// Throws FormatError unless the block is exactly one of this shape.
void decode_rows(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end,
                 size_t rows, size_t cols, int threads, Scratch& scratch, float* out);

}  // namespace laconic
