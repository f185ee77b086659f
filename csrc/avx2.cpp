// Kernels for x86-64 with AVX2 and BMI2; compiled with those flags, called only where they exist.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"

#if defined(__AVX2__) && defined(__BMI2__)
#include <immintrin.h>
#define LACONIC_AVX2

namespace laconic {
namespace {
#include "quantize.inl"
#include "dequantize.inl"
#include "group.inl"
#include "huffman.inl"
#include "kernel_table.inl"
LACONIC_KERNEL_TABLE("avx2")
}  // namespace

const Kernels* avx2_kernels() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") ? &kTable : nullptr;
}

}  // namespace laconic
#else
namespace laconic {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace laconic
#endif
