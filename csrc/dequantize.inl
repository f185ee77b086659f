// Dequantize: value = float(code + base) * step, the one rounding the format allows.

#ifdef LACONIC_AVX2
static inline __m256i load_eight(const int8_t* codes) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
}
static inline __m256i load_eight(const int16_t* codes) {
  return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}
#endif

template <typename Code>
static inline void dequantize(const Code* codes, size_t n, float step, int32_t base, float* out) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256 vstep = _mm256_set1_ps(step);
  const __m256i vbase = _mm256_set1_epi32(base);
  for (; i + 16 <= n; i += 16) {
    const __m256i a = _mm256_add_epi32(load_eight(codes + i), vbase);
    const __m256i b = _mm256_add_epi32(load_eight(codes + i + 8), vbase);
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtepi32_ps(a), vstep));
    _mm256_storeu_ps(out + i + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(b), vstep));
  }
  for (; i + 8 <= n; i += 8) {
    const __m256i a = _mm256_add_epi32(load_eight(codes + i), vbase);
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtepi32_ps(a), vstep));
  }
#endif
  for (; i < n; ++i) out[i] = float(int32_t(codes[i]) + base) * step;
}

template <typename Code>
static void expand(const Code* codes, const uint32_t* refs, size_t rows, size_t cols, float step,
                   int32_t base, float* out) {
  for (size_t i = 0; i < rows; ++i)
    dequantize(codes + size_t(refs[i]) * cols, cols, step, base, out + i * cols);
}
