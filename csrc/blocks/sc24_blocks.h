// The encoders of the SC'24 paper on our quantizer: an LZ whose symbol is a row, and Huffman over codes.
// docs/formats/sc24.md is the normative text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "grid.h"
#include "kernels.h"
#include "scratch.h"

namespace laconic {

inline constexpr int kMaxWindow = 255;

// Each writes at most max_block_bytes(rows * cols); returns the size.
size_t encode_vector_lz(const Kernels& kernels, const float* x, size_t rows, size_t cols, const BoundSpec& bound,
                        int window, Scratch& scratch, uint8_t* out);
size_t encode_huffman(const Kernels& kernels, const float* x, size_t rows, size_t cols, const BoundSpec& bound,
                      int threads, Scratch& scratch, uint8_t* out);

// Whichever has the larger 1 / (1/ratio + penalty); a penalty is bandwidth * (1/encode + 1/decode speed).
size_t encode_hybrid(const Kernels& kernels, const float* x, size_t rows, size_t cols, const BoundSpec& bound,
                     int window, double lz_penalty, double huffman_penalty, int threads, Scratch& scratch,
                     uint8_t* out);

// A block of any of the three.
void decode_sc24(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end,
                 size_t rows, size_t cols, int threads, Scratch& scratch, float* out);

}  // namespace laconic
