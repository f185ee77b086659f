#include "quantize_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>
#include <vector>

#include "embedding_bag.h"
#include "parallel.h"

namespace laconic {
namespace {

constexpr size_t kRowsOfTask = 512;
constexpr float kLargestHalf = 65504.0f;
constexpr float kEpsilon = 1e-8f;  // added to the range by FBGEMM, for int8 only

struct Quantizer {
  const Kernels& kernels;
  size_t dim;
  RowFormat format;
  RangeMethod method;

  int bits() const { return format == RowFormat::kInt8 ? 8 : format == RowFormat::kInt4 ? 4 : 2; }
  float top() const { return float((1 << bits()) - 1); }
  bool half() const { return format != RowFormat::kInt8; }

  bool holds(const float* x) const {
    // of int8 half the largest number, so that the extent of a row is finite too
    const float most = half() ? kLargestHalf : std::numeric_limits<float>::max() / 2;
    float low, high;
    return kernels.range(x, dim, &low, &high) == dim && low >= -most && high <= most;
  }

  float through_half(float x) const {
    uint8_t bytes[2];
    kernels.to_half(&x, 1, bytes);
    kernels.from_half(bytes, 1, &x);
    return x;
  }

  void write_int8(const float* x, float low, float high, uint8_t* out) const {
    const float extent = high - low, pair[2] = {extent / top(), low};
    kernels.quantize_row(x, dim, low, top() / (extent + kEpsilon), top(), out);
    std::memcpy(out + dim, pair, 8);
  }

  void write_packed(const float* x, float low, float high, uint8_t* codes, uint8_t* out) const {
    low = through_half(low);
    const float extent = high - low;
    float scale = through_half(extent == 0 ? 1.0f : extent / top());
    if (scale == 0 || std::isinf(1.0f / scale)) scale = 1.0f;
    kernels.quantize_row(x, dim, low, 1.0f / scale, top(), codes);
    const size_t each = size_t(8 / bits()), bytes = (dim + each - 1) / each;
    std::fill(codes + dim, codes + bytes * each, uint8_t(0));
    if (each == 2)
      for (size_t i = 0; i < bytes; ++i) out[i] = uint8_t(codes[2 * i] | codes[2 * i + 1] << 4);
    else
      for (size_t i = 0; i < bytes; ++i)
        out[i] = uint8_t(codes[4 * i] | codes[4 * i + 1] << 2 | codes[4 * i + 2] << 4 | codes[4 * i + 3] << 6);
    const float pair[2] = {scale, low};
    kernels.to_half(pair, 2, out + bytes);
  }
};

}  // namespace

int64_t quantize_rows(const Kernels& kernels, const float* x, size_t rows, size_t dim, RowFormat format,
                      RangeMethod method, uint8_t* out, int threads) {
  const Quantizer q{kernels, dim, format, method};
  const size_t width = row_bytes(format, dim), lanes = kernels.range_lanes;
  std::atomic<size_t> wrong{rows};
  parallel_for((rows + kRowsOfTask - 1) / kRowsOfTask, threads, [&](size_t task) {
    const size_t begin = task * kRowsOfTask, end = std::min(begin + kRowsOfTask, rows);
    std::vector<float> columns(dim * lanes), low(lanes), high(lanes);
    std::vector<uint8_t> codes(dim + 3);
    for (size_t first = begin; first < end; first += lanes) {
      const size_t count = std::min(lanes, end - first);
      for (size_t k = 0; k < count; ++k) {
        const float* const row = x + (first + k) * dim;
        if (!q.holds(row)) {
          size_t known = wrong;
          while (first + k < known && !wrong.compare_exchange_weak(known, first + k)) {
          }
          return;
        }
        for (size_t d = 0; d < dim; ++d) columns[d * lanes + k] = row[d];
      }
      kernels.row_ranges(columns.data(), dim, q.top(), q.half(), method, low.data(), high.data());
      for (size_t k = 0; k < count; ++k) {
        const size_t r = first + k;
        if (format == RowFormat::kInt8) q.write_int8(x + r * dim, low[k], high[k], out + r * width);
        else q.write_packed(x + r * dim, low[k], high[k], codes.data(), out + r * width);
      }
    }
  });
  return wrong < rows ? int64_t(wrong) : -1;
}

}  // namespace laconic
