// Kernels for x86-64 with AVX2, BMI2 and F16C; compiled with those flags, called only where they exist.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"

#if defined(__AVX2__) && defined(__BMI2__) && defined(__F16C__)
#include <immintrin.h>
#define LACONIC_AVX2
#define LACONIC_LANES 8

namespace laconic {
namespace {
#include "quantize.inl"
#include "code_window.inl"
#include "dequantize.inl"
#include "group.inl"
#include "huffman.inl"
#include "huffman_abreast.inl"
#include "raw_bits.inl"
#include "references.inl"
#include "cast.inl"
#include "squares.inl"
#include "rows.inl"
#include "sparse.inl"
#include "lossless.inl"
#include "levels.inl"
#include "magnitudes.inl"
#include "bloom.inl"
#include "sketch.inl"
#include "embedding_bag.inl"
#include "row_ranges.inl"
#include "dense.inl"
#include "kernel_table.inl"
LACONIC_KERNEL_TABLE("avx2")
}  // namespace

const Kernels* avx2_kernels() {
  __builtin_cpu_init();
  // every processor with AVX2 also has F16C, which older compilers cannot ask for
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") ? &kTable : nullptr;
}

}  // namespace laconic
#else
namespace laconic {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace laconic
#endif
