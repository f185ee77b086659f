// Dense kernels for x86-64 with AVX-512 and VNNI; compiled with those flags, called only where they exist.
#include <cstring>

#include "kernels.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define LACONIC_LANES 16

namespace laconic {
namespace {
#include "dense.inl"
}  // namespace

const DenseKernels* avx512_dense() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl")
             ? &kDense
             : nullptr;
}

}  // namespace laconic
#else
namespace laconic {
const DenseKernels* avx512_dense() { return nullptr; }
}  // namespace laconic
#endif
