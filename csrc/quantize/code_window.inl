// Code window: where the codes of a block lie, from a few of them.

// Nearest codes around 0, clamped to 2^22; every x is finite.
static void nearest_codes(const float* x, size_t n, float inverse, int32_t* codes) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  for (; i + 8 <= n; i += 8) {
    __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(inverse));
    v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-kCodeLimit)), _mm256_set1_ps(kCodeLimit));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), _mm256_cvtps_epi32(v));
  }
#endif
  for (; i < n; ++i) {
    float v = x[i] * inverse;
    v = v > -kCodeLimit ? v : -kCodeLimit;
    v = v < kCodeLimit ? v : kCodeLimit;
    codes[i] = int32_t((v + kRounder) - kRounder);
  }
}

static size_t count_below(const int32_t* codes, size_t n, int32_t limit) {
  size_t i = 0, count = 0;
#ifdef LACONIC_AVX2
  const __m256i limits = _mm256_set1_epi32(limit);
  __m256i counts[4];  // of four vectors in turn, negative
  for (auto& c : counts) c = _mm256_setzero_si256();
  for (; i + 32 <= n; i += 32)
    for (size_t k = 0; k < 4; ++k) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i + 8 * k));
      counts[k] = _mm256_add_epi32(counts[k], _mm256_cmpgt_epi32(limits, v));
    }
  const __m256i sums = _mm256_add_epi32(_mm256_add_epi32(counts[0], counts[1]), _mm256_add_epi32(counts[2], counts[3]));
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
  for (const int32_t lane : lanes) count += size_t(-int64_t(lane));
#endif
  for (; i < n; ++i) count += size_t(codes[i] < limit);
  return count;
}
