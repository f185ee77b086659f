// Where values are: one bit for every word, set where the word is not zero or the value is large.

// Bit i is set where any bit of words[i] is; `bits` has (n + 63) / 64 words, those past n stay 0.
template <typename Word>
static void nonzero_bits(const Word* words, size_t n, uint64_t* bits) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256i zero = _mm256_setzero_si256();
  for (; i + 64 <= n; i += 64) {
    uint64_t found = 0;
    if constexpr (sizeof(Word) == 4) {
      for (size_t k = 0; k < 64; k += 8) {
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i + k));
        const int zeros = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(v, zero)));
        found |= uint64_t(uint8_t(~zeros)) << k;
      }
    } else {
      for (size_t k = 0; k < 64; k += 4) {
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i + k));
        const int zeros = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(v, zero)));
        found |= uint64_t(~zeros & 15) << k;
      }
    }
    bits[i / 64] = found;
  }
#endif
  for (; i < n; i += 64) {
    const size_t here = n - i < 64 ? n - i : 64;
    uint64_t found = 0;
    for (size_t k = 0; k < here; ++k) found |= uint64_t(words[i + k] != 0) << k;
    bits[i / 64] = found;
  }
}

// memory[i] += gradient[i], gradient[i] = 0; bit i is set unless |memory[i]| < threshold: NaN is large.
static void large_bits(float* gradient, float* memory, size_t n, float threshold, uint64_t* bits) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256 limit = _mm256_set1_ps(threshold), sign = _mm256_set1_ps(-0.0f), zero = _mm256_setzero_ps();
  for (; i + 64 <= n; i += 64) {
    uint64_t found = 0;
    for (size_t k = 0; k < 64; k += 8) {
      const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(memory + i + k), _mm256_loadu_ps(gradient + i + k));
      _mm256_storeu_ps(memory + i + k, sum);
      _mm256_storeu_ps(gradient + i + k, zero);
      const int large = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_andnot_ps(sign, sum), limit, _CMP_NLT_UQ));
      found |= uint64_t(uint8_t(large)) << k;
    }
    bits[i / 64] = found;
  }
#endif
  for (; i < n; i += 64) {
    const size_t here = n - i < 64 ? n - i : 64;
    uint64_t found = 0;
    for (size_t k = 0; k < here; ++k) {
      memory[i + k] += gradient[i + k];
      gradient[i + k] = 0;
      found |= uint64_t(!(std::fabs(memory[i + k]) < threshold)) << k;
    }
    bits[i / 64] = found;
  }
}
