// Dequantize: value = float(code + base) * step, the one rounding the format allows.

#ifdef LACONIC_AVX2
static inline __m256i load_eight(const int8_t* codes) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
}
static inline __m256i load_eight(const int16_t* codes) {
  return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}
#endif

#ifdef LACONIC_AVX2
template <bool based, typename Code>
static inline __m256 dequantize_eight(const Code* codes, __m256 step, __m256i base) {
  __m256i c = load_eight(codes);
  if (based) c = _mm256_add_epi32(c, base);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(c), step);
}
#endif

// `based` is base != 0: most blocks lie around zero, and save the addition.
template <bool based, typename Code>
static inline void dequantize_codes(const Code* codes, size_t n, float step, int32_t base, float* out) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256 vstep = _mm256_set1_ps(step);
  const __m256i vbase = _mm256_set1_epi32(base);
  for (; i + 32 <= n; i += 32)
    for (size_t k = 0; k < 32; k += 8)
      _mm256_storeu_ps(out + i + k, dequantize_eight<based>(codes + i + k, vstep, vbase));
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, dequantize_eight<based>(codes + i, vstep, vbase));
#endif
  for (; i < n; ++i) out[i] = float(int32_t(codes[i]) + base) * step;
}

template <typename Code>
static void dequantize(const Code* codes, size_t n, float step, int32_t base, float* out) {
  if (base) dequantize_codes<true>(codes, n, step, base, out);
  else dequantize_codes<false>(codes, n, step, base, out);
}

template <bool based, typename Code>
static void expand_rows(const Code* codes, const uint32_t* refs, size_t rows, size_t cols, float step,
                        int32_t base, float* out) {
  for (size_t i = 0; i < rows; ++i)
    dequantize_codes<based>(codes + size_t(refs[i]) * cols, cols, step, base, out + i * cols);
}

template <typename Code>
static void expand(const Code* codes, const uint32_t* refs, size_t rows, size_t cols, float step,
                   int32_t base, float* out) {
  if (base) expand_rows<true>(codes, refs, rows, cols, step, base, out);
  else expand_rows<false>(codes, refs, rows, cols, step, base, out);
}
