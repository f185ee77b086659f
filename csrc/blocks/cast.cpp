#include "cast.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "bytes.h"

namespace laconic {
namespace {

constexpr size_t kPiece = 1024;  // 4-bit codes that are widened at a time; even

uint16_t bfloat_from_float(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16 & 0x8000u) | 0x7fc0u);
  return uint16_t((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// Smallest value and extent of a row; both NaN if the row is not finite or its extent is not.
struct RowRange {
  float low, extent;
};

RowRange row_range(const Kernels& kernels, const float* x, size_t cols) {
  float low, high;
  const bool finite = kernels.range(x, cols, &low, &high) == cols && std::isfinite(high - low);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return finite ? RowRange{low + 0.0f, high - low} : RowRange{nan, nan};  // + 0: no negative zero
}

float inverse_of(float scale) { return scale > 0 ? 1.0f / scale : 0.0f; }

void encode_int8_row(const Kernels& kernels, const float* x, size_t cols, uint8_t* out) {
  const RowRange range = row_range(kernels, x, cols);
  const float pair[2] = {range.extent / 255.0f, range.low};
  kernels.quantize_row(x, cols, pair[1], inverse_of(pair[0]), 255.0f, out);
  std::memcpy(out + cols, pair, 8);
}

void encode_int4_row(const Kernels& kernels, const float* x, size_t cols, uint8_t* out) {
  const RowRange range = row_range(kernels, x, cols);
  const float exact[2] = {range.extent / 15.0f, range.low};
  uint8_t* const pair = out + (cols + 1) / 2;
  kernels.to_half(exact, 2, pair);
  float rounded[2];
  kernels.from_half(pair, 2, rounded);
  const float inverse = inverse_of(rounded[0]);
  uint8_t codes[kPiece + 1];
  for (size_t start = 0; start < cols; start += kPiece) {
    const size_t count = std::min(kPiece, cols - start);
    kernels.quantize_row(x + start, count, rounded[1], inverse, 15.0f, codes);
    codes[count] = 0;
    for (size_t i = 0; i < count; i += 2) out[(start + i) / 2] = uint8_t(codes[i] | codes[i + 1] << 4);
  }
}

void decode_int8_row(const Kernels& kernels, const uint8_t* in, size_t cols, float* out) {
  float pair[2];
  std::memcpy(pair, in + cols, 8);
  kernels.dequantize_row(in, cols, pair[0], pair[1], out);
}

void decode_int4_row(const Kernels& kernels, const uint8_t* in, size_t cols, float* out) {
  float pair[2];
  kernels.from_half(in + (cols + 1) / 2, 2, pair);
  uint8_t codes[kPiece];
  for (size_t start = 0; start < cols; start += kPiece) {
    const size_t count = std::min(kPiece, cols - start);
    for (size_t i = 0; i < (count + 1) / 2; ++i) {
      codes[2 * i] = in[start / 2 + i] & 15;
      codes[2 * i + 1] = in[start / 2 + i] >> 4;
    }
    kernels.dequantize_row(codes, count, pair[0], pair[1], out + start);
  }
}

size_t row_bytes(CastType type, size_t cols) {
  switch (type) {
    case CastType::kInt8: return cols + 8;
    case CastType::kInt4: return (cols + 1) / 2 + 4;
    case CastType::kFloat32: return cols * 4;
    default: return cols * 2;
  }
}

}  // namespace

size_t cast_bytes(CastType type, size_t rows, size_t cols) {
  return cols == 0 ? 0 : rows * row_bytes(type, cols);
}

void encode_cast(const Kernels& kernels, CastType type, const float* x, size_t rows, size_t cols, uint8_t* out) {
  const size_t n = rows * cols, stride = row_bytes(type, cols);
  if (n == 0) return;
  if (type == CastType::kFloat32) {
    std::memcpy(out, x, n * 4);
    return;
  }
  if (type == CastType::kFloat16) return kernels.to_half(x, n, out);
  if (type == CastType::kBfloat16) {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t h = bfloat_from_float(x[i]);
      std::memcpy(out + 2 * i, &h, 2);
    }
    return;
  }
  const auto encode_row = type == CastType::kInt8 ? encode_int8_row : encode_int4_row;
  for (size_t r = 0; r < rows; ++r) encode_row(kernels, x + r * cols, cols, out + r * stride);
}

void decode_cast(const Kernels& kernels, CastType type, const uint8_t* block, size_t size, size_t rows, size_t cols,
                 float* out) {
  const size_t n = rows * cols, stride = row_bytes(type, cols);
  if (size != cast_bytes(type, rows, cols))
    throw FormatError("block: expected " + std::to_string(cast_bytes(type, rows, cols)) + " bytes for this shape, got " +
                      std::to_string(size));
  if (n == 0) return;
  if (type == CastType::kFloat32) {
    std::memcpy(out, block, n * 4);
    return;
  }
  if (type == CastType::kFloat16) return kernels.from_half(block, n, out);
  if (type == CastType::kBfloat16) {
    for (size_t i = 0; i < n; ++i) {
      uint16_t h;
      std::memcpy(&h, block + 2 * i, 2);
      const uint32_t u = uint32_t(h) << 16;
      std::memcpy(out + i, &u, 4);
    }
    return;
  }
  const auto decode_row = type == CastType::kInt8 ? decode_int8_row : decode_int4_row;
  for (size_t r = 0; r < rows; ++r) decode_row(kernels, block + r * stride, cols, out + r * cols);
}

}  // namespace laconic
