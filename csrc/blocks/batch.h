// Many blocks in one call: each its own codec, shape and bound, all in one buffer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "grid.h"
#include "kernels.h"

namespace laconic {

enum class Kind : uint8_t {
  kRows = 0,
  kVectorLz = 1,
  kHuffman = 2,
  kHybrid = 3,
  kFloat16 = 4,
  kBfloat16 = 5,
  kInt8 = 6,
  kInt4 = 7,
  kFloat32 = 8,
  kLossless = 9,
};

struct Block {
  Kind kind;
  size_t rows, cols;
  BoundSpec bound;
  int window;                          // vector LZ and hybrid
  double lz_penalty, huffman_penalty;  // hybrid
};

size_t block_max_bytes(const Block& block);

// Blocks of x, back to back, to `out`, back to back; offsets[i] is where block i starts and
// offsets[count] where the last ends. `out` has room for the sum of block_max_bytes. The
// bytes do not depend on `threads`.
void encode_blocks(const Kernels& kernels, const Block* blocks, size_t count, const float* x, uint8_t* out,
                   int64_t* offsets, int threads);

// FormatError names the block. `size` bounds every offset.
void decode_blocks(const Kernels& kernels, const Block* blocks, size_t count, const uint8_t* in, size_t size,
                   const int64_t* offsets, float* out, int threads);

// The same for lists of ids; `counts` are their lengths.
void encode_id_lists(const Kernels& kernels, const int64_t* counts, size_t lists, const int64_t* ids, uint8_t* out,
                     int64_t* offsets, int threads);
void decode_id_lists(const Kernels& kernels, const int64_t* counts, size_t lists, const uint8_t* in, size_t size,
                     const int64_t* offsets, int64_t* ids, int threads);

}  // namespace laconic
