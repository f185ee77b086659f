// Dense layers in int8 one after the other, and dot products of pairs: what a model does after its lookups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "huge_array.h"
#include "kernels.h"

namespace laconic {

// One fully connected layer. Inputs are rounded to uint8 codes x = (code - zero) * s, where s and zero follow from the
// smallest and largest input, of each sample or given once, 0 included:
//
//   s = (high - low) / 255, or 1 where that is 0      zero = round(-low / s)      code = round((x + zero * s) / s)
//   out = (sum of code * weight - zero * sum of weight) * (s * scale) + bias
struct Int8Layer {
  size_t outputs, inputs;
  HugeArray<uint8_t> packed;
  std::vector<int32_t> weight_sums;
  std::vector<float> scales, biases, equal;  // equal: inputs are multiplied with it first; empty: they are not
  bool fixed;                                // whether low and high are given
  float low, high;
  bool relu;
};

// Layers that feed one another.
class Int8Layers {
 public:
  // `wide`: with AVX-512 where avx2 is asked for and the machine has it; the results are the same.
  Int8Layers(const Kernels& kernels, bool wide);
  Int8Layers(const Int8Layers&) = delete;
  Int8Layers& operator=(const Int8Layers&) = delete;

  // Weights are outputs x inputs; `biases` and `equal` may be nullptr, `range` is low and high, or nullptr.
  void add(const int8_t* weights, size_t outputs, size_t inputs, const float* scales, const float* biases,
           const float* equal, const float* range, bool relu);

  // out = the last layer's outputs, `pitch` floats from sample to sample; x is rows x inputs of the first layer.
  void run(const float* x, size_t rows, float* out, size_t pitch, int threads) const;

  size_t inputs() const { return layers_.empty() ? 0 : layers_.front()->inputs; }
  size_t outputs() const { return layers_.empty() ? 0 : layers_.back()->outputs; }
  size_t count() const { return layers_.size(); }

 private:
  void run_block(const float* x, size_t rows, float* out, size_t pitch) const;

  const Kernels& kernels_;
  const DenseKernels& dense_;
  std::vector<std::unique_ptr<const Int8Layer>> layers_;
  size_t widest_ = 0;  // inputs or outputs of any layer, a multiple of 16
};

// For every sample of rows x count x dim vectors: out = the first `keep` vectors, then the dot products of vectors j < i
// at i * (i - 1) / 2 + j. One row of `out` is keep * dim + count * (count - 1) / 2 floats.
void interact(const Kernels& kernels, const float* vectors, size_t rows, size_t count, size_t dim, size_t keep,
              float* out, bool wide, int threads);

}  // namespace laconic
