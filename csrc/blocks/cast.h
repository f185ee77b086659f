// Fixed-rate casts: four or two bytes a value, or a row of 8- or 4-bit codes with its scale and bias.
// docs/formats/cast.md is the normative text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace laconic {

enum class CastType : uint8_t { kFloat16 = 0, kBfloat16 = 1, kInt8 = 2, kInt4 = 3, kFloat32 = 4 };

size_t cast_bytes(CastType type, size_t rows, size_t cols);
void encode_cast(const Kernels& kernels, CastType type, const float* x, size_t rows, size_t cols, uint8_t* out);
void decode_cast(const Kernels& kernels, CastType type, const uint8_t* block, size_t size, size_t rows, size_t cols,
                 float* out);

}  // namespace laconic
