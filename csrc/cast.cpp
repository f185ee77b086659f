#include "cast.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "bytes.h"

namespace laconic {
namespace {

uint32_t bits_of(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return u;
}

float float_of(uint32_t u) {
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}

uint16_t bfloat_from_float(float x) {
  const uint32_t u = bits_of(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16 & 0x8000u) | 0x7fc0u);
  return uint16_t((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// Smallest value and extent of a row; both NaN if the row is not finite or its extent is not.
void row_range(const float* x, size_t cols, float* low, float* extent) {
  float lo = x[0], hi = x[0], sum = 0;
  for (size_t i = 0; i < cols; ++i) {
    lo = x[i] < lo ? x[i] : lo;
    hi = x[i] > hi ? x[i] : hi;
    sum += x[i] * 0.0f;  // NaN as soon as one value is not finite
  }
  *low = lo + sum;
  *extent = (hi - lo) + sum;
  if (!std::isfinite(*extent)) *low = *extent = std::numeric_limits<float>::quiet_NaN();
}

// round(clamp((x - bias) * inverse, 0, top)), half to even; a NaN row has codes 0.
void quantize_row(const float* x, size_t cols, float bias, float scale, float top, uint8_t* codes) {
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (size_t i = 0; i < cols; ++i) {
    float v = (x[i] - bias) * inverse;
    v = v > 0.0f ? v : 0.0f;
    v = v < top ? v : top;
    codes[i] = uint8_t((v + 8388608.0f) - 8388608.0f);
  }
}

void encode_int8_row(const float* x, size_t cols, uint8_t* out) {
  float low, extent;
  row_range(x, cols, &low, &extent);
  const float pair[2] = {extent / 255.0f, low};
  quantize_row(x, cols, low, pair[0], 255.0f, out);
  std::memcpy(out + cols, pair, 8);
}

void encode_int4_row(const float* x, size_t cols, uint8_t* out) {
  float low, extent;
  row_range(x, cols, &low, &extent);
  const uint16_t pair[2] = {half_from_float(extent / 15.0f), half_from_float(low)};
  const float scale = float_from_half(pair[0]), bias = float_from_half(pair[1]);
  const size_t packed = (cols + 1) / 2;
  for (size_t i = 0; i < packed; ++i) {
    uint8_t codes[2] = {0, 0};
    quantize_row(x + 2 * i, std::min<size_t>(2, cols - 2 * i), bias, scale, 15.0f, codes);
    out[i] = uint8_t(codes[0] | codes[1] << 4);
  }
  std::memcpy(out + packed, pair, 4);
}

void decode_row(CastType type, const uint8_t* in, size_t cols, float* out) {
  if (type == CastType::kInt8) {
    float pair[2];
    std::memcpy(pair, in + cols, 8);
    for (size_t i = 0; i < cols; ++i) out[i] = float(in[i]) * pair[0] + pair[1];
    return;
  }
  uint16_t pair[2];
  std::memcpy(pair, in + (cols + 1) / 2, 4);
  const float scale = float_from_half(pair[0]), bias = float_from_half(pair[1]);
  for (size_t i = 0; i < cols; ++i) out[i] = float(in[i / 2] >> (i % 2 * 4) & 15) * scale + bias;
}

size_t row_bytes(CastType type, size_t cols) {
  switch (type) {
    case CastType::kInt8: return cols + 8;
    case CastType::kInt4: return (cols + 1) / 2 + 4;
    default: return cols * 2;
  }
}

}  // namespace

uint16_t half_from_float(float x) {
  const uint32_t u = bits_of(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);   // any NaN
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {                                  // subnormal: let the adder round
    const float shifted = float_of(magnitude) + 0.5f;
    return uint16_t(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  return uint16_t(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

float float_from_half(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x400u) return float_of(sign | ((magnitude << 13) + 0x38000000u));
  return float_of(sign | bits_of(float(magnitude) * 0x1p-24f));
}

size_t cast_bytes(CastType type, size_t rows, size_t cols) {
  return cols == 0 ? 0 : rows * row_bytes(type, cols);
}

void encode_cast(CastType type, const float* x, size_t rows, size_t cols, uint8_t* out) {
  const size_t n = rows * cols, stride = row_bytes(type, cols);
  if (n == 0) return;
  if (type == CastType::kFloat16 || type == CastType::kBfloat16) {
    const auto convert = type == CastType::kFloat16 ? half_from_float : bfloat_from_float;
    for (size_t i = 0; i < n; ++i) {
      const uint16_t h = convert(x[i]);
      std::memcpy(out + 2 * i, &h, 2);
    }
    return;
  }
  const auto encode_row = type == CastType::kInt8 ? encode_int8_row : encode_int4_row;
  for (size_t r = 0; r < rows; ++r) encode_row(x + r * cols, cols, out + r * stride);
}

void decode_cast(CastType type, const uint8_t* block, size_t size, size_t rows, size_t cols, float* out) {
  const size_t n = rows * cols, stride = row_bytes(type, cols);
  if (size != cast_bytes(type, rows, cols))
    throw FormatError("block: expected " + std::to_string(cast_bytes(type, rows, cols)) + " bytes for this shape, got " +
                      std::to_string(size));
  if (type == CastType::kFloat16 || type == CastType::kBfloat16) {
    for (size_t i = 0; i < n; ++i) {
      uint16_t h;
      std::memcpy(&h, block + 2 * i, 2);
      out[i] = type == CastType::kFloat16 ? float_from_half(h) : float_of(uint32_t(h) << 16);
    }
    return;
  }
  if (cols == 0) return;
  for (size_t r = 0; r < rows; ++r) decode_row(type, block + r * stride, cols, out + r * cols);
}

}  // namespace laconic
