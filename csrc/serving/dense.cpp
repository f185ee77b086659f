#include "dense.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <system_error>

#include "parallel.h"

namespace laconic {
namespace {

constexpr size_t kBlockRows = 48;  // samples that pass through all layers together, so that they stay in the cache

// The widest kernels that go with these: on machines that have them, they are part of what avx2 means.
const DenseKernels& dense_kernels(const Kernels& kernels, bool wide) {
  static const DenseKernels* const widest = avx512_dense();
  return wide && widest && kernels.dense->lanes == 8 ? *widest : *kernels.dense;
}

size_t padded(size_t n) { return (n + 15) / 16 * 16; }

struct Codes {
  float scale;
  int32_t zero;
};

Codes to_codes(const Kernels& kernels, const Int8Layer& layer, const float* x, uint8_t* codes) {
  float low = layer.low, high = layer.high;
  if (!layer.fixed) {
    if (!kernels.range(x, layer.inputs, &low, &high)) low = high = 0.0f;
    low = std::min(low, 0.0f);
    high = std::max(high, 0.0f);
  }
  const float extent = (high - low) / 255.0f, scale = extent > 0.0f ? extent : 1.0f;
  const float zero = std::nearbyint(-low / scale);
  kernels.quantize_row(x, layer.inputs, -(zero * scale), 1.0f / scale, 255.0f, codes);
  return {scale, int32_t(zero)};
}

}  // namespace

Int8Layers::Int8Layers(const Kernels& kernels, bool wide) : kernels_(kernels), dense_(dense_kernels(kernels, wide)) {}

void Int8Layers::add(const int8_t* weights, size_t outputs, size_t inputs, const float* scales, const float* biases,
                     const float* equal, const float* range, bool relu) {
  std::unique_ptr<Int8Layer> owned(
      new Int8Layer{outputs, inputs, HugeArray<uint8_t>(dense_.packed_bytes(outputs, inputs)), {}, {}, {}, {},
                    range != nullptr, range ? range[0] : 0.0f, range ? range[1] : 0.0f, relu});
  Int8Layer& layer = *owned;
  dense_.pack(weights, outputs, inputs, layer.packed.data());
  layer.weight_sums.assign(outputs, 0);
  for (size_t n = 0; n < outputs; ++n)
    for (size_t k = 0; k < inputs; ++k) layer.weight_sums[n] += weights[n * inputs + k];
  layer.scales.assign(scales, scales + outputs);
  if (biases) layer.biases.assign(biases, biases + outputs);
  else layer.biases.assign(outputs, 0.0f);
  if (equal) layer.equal.assign(equal, equal + inputs);
  widest_ = std::max({widest_, padded(outputs), padded(inputs)});
  layers_.push_back(std::move(owned));
}

void Int8Layers::run(const float* x, size_t rows, float* out, size_t pitch, int threads) const {
  const size_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  parallel_for(blocks, threads, [&](size_t block) {
    const size_t first = block * kBlockRows;
    run_block(x + first * inputs(), std::min(kBlockRows, rows - first), out + first * pitch, pitch);
  });
}

void Int8Layers::run_block(const float* x, size_t rows, float* out, size_t pitch) const {
  // one after the other: sums, floats between layers, floats times equal, codes
  static thread_local std::vector<float> scratch;
  const size_t plane = rows * widest_;
  if (scratch.size() < 3 * plane + widest_) scratch.resize(3 * plane + widest_);
  auto* const sums = reinterpret_cast<int32_t*>(scratch.data());
  float* const between = scratch.data() + plane;
  auto* const codes = reinterpret_cast<uint8_t*>(scratch.data() + 2 * plane);
  float* const equalized = scratch.data() + 3 * plane;
  const float* from = x;
  size_t from_pitch = inputs();
  Codes how[kBlockRows];
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Int8Layer& layer = *layers_[l];
    const size_t code_pitch = padded(layer.inputs), sum_pitch = padded(layer.outputs);
    for (size_t r = 0; r < rows; ++r) {
      const float* row = from + r * from_pitch;
      if (!layer.equal.empty()) {
        dense_.multiply_elements(row, layer.equal.data(), layer.inputs, equalized);
        row = equalized;
      }
      uint8_t* const place = codes + r * code_pitch;
      std::memset(place + layer.inputs, 0, code_pitch - layer.inputs);
      how[r] = to_codes(kernels_, layer, row, place);
    }
    dense_.multiply(codes, rows, code_pitch, layer.packed.data(), layer.outputs, layer.inputs, sums, sum_pitch);
    const bool last = l + 1 == layers_.size();
    for (size_t r = 0; r < rows; ++r)
      dense_.finish_layer(sums + r * sum_pitch, layer.outputs, how[r].zero, layer.weight_sums.data(), how[r].scale,
                          layer.scales.data(), layer.biases.data(), layer.relu,
                          last ? out + r * pitch : between + r * widest_);
    from = between;
    from_pitch = widest_;
  }
}

void interact(const Kernels& kernels, const float* vectors, size_t rows, size_t count, size_t dim, size_t keep,
              float* out, bool wide, int threads) {
  const DenseKernels& dense = dense_kernels(kernels, wide);
  const size_t width = keep * dim + count * (count - 1) / 2, pitch = (count + 31) / 32 * 32;
  const size_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  parallel_for(blocks, threads, [&](size_t block) {
    static thread_local std::vector<float> columns;
    if (columns.size() < pitch * dim) columns.resize(pitch * dim);
    const size_t end = std::min(rows, (block + 1) * kBlockRows);
    for (size_t r = block * kBlockRows; r < end; ++r) {
      const float* const x = vectors + r * count * dim;
      std::memcpy(out + r * width, x, keep * dim * sizeof(float));
      dense.dot_pairs(x, count, dim, columns.data(), pitch, out + r * width + keep * dim);
    }
  });
}

}  // namespace laconic
