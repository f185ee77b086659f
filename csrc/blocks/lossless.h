// Lossless: float32 values bit by bit, their exponents entropy-coded, zeros only marked.
// docs/formats/lossless.md is the normative text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"
#include "scratch.h"

namespace laconic {

// Returns the size of the block, at most max_block_bytes(n).
size_t encode_lossless(const Kernels& kernels, const float* x, size_t n, int threads, Scratch& scratch, uint8_t* out);

// FormatError unless the block is exactly one of n values.
void decode_lossless(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end, size_t n,
                     int threads, Scratch& scratch, float* out);

}  // namespace laconic
