// Magnitudes of one row: what the fit of a threshold needs, and which of them reach it.

// Sum of the finite magnitudes, lane by lane as in squares.inl; `some` receives how many of them are not 0.
static double finite_magnitudes(const float* x, size_t n, size_t* some) {
  double lane[8] = {};
  size_t count = 0, i = 0;
#ifdef LACONIC_AVX2
  const __m256 inf = _mm256_set1_ps(std::numeric_limits<float>::infinity()), sign = _mm256_set1_ps(-0.0f);
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  __m256i counts = _mm256_setzero_si256();  // n has 32 bits
  for (; i + 8 <= n; i += 8) {
    const __m256 size = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i));
    const __m256 v = _mm256_and_ps(size, _mm256_cmp_ps(size, inf, _CMP_LT_OQ));
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
    counts = _mm256_sub_epi32(counts, _mm256_cmpgt_epi32(_mm256_castps_si256(v), _mm256_setzero_si256()));
  }
  _mm256_storeu_pd(lane, low);
  _mm256_storeu_pd(lane + 4, high);
  alignas(32) uint32_t parts[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(parts), counts);
  for (const uint32_t part : parts) count += part;
#endif
  for (; i < n; ++i) {
    const uint32_t size = magnitude_of(x[i]);
    if (size >= 0x7f800000u) continue;  // adding its 0 would change nothing
    lane[i % 8] += std::fabs(double(x[i]));
    count += size_t(size != 0);
  }
  *some = count;
  return sum_lanes(lane);
}

// Bit i is set where the magnitude of x[i], as an integer, is at least `threshold`, which is not 0: NaN is above
// infinity. `bits` has (n + 63) / 64 words, those past n stay 0.
static void reach_bits(const float* x, size_t n, uint32_t threshold, uint64_t* bits) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256i below = _mm256_set1_epi32(int32_t(threshold - 1)), rest = _mm256_set1_epi32(0x7fffffff);
  for (; i + 64 <= n; i += 64) {
    uint64_t found = 0;
    for (size_t k = 0; k < 64; k += 8) {
      const __m256i size =
          _mm256_and_si256(rest, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i + k)));
      const int reached = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(size, below)));
      found |= uint64_t(uint8_t(reached)) << k;
    }
    bits[i / 64] = found;
  }
#endif
  for (; i < n; i += 64) {
    const size_t here = n - i < 64 ? n - i : 64;
    uint64_t found = 0;
    for (size_t k = 0; k < here; ++k) found |= uint64_t(magnitude_of(x[i + k]) >= threshold) << k;
    bits[i / 64] = found;
  }
}
