// Squares: sums of squares in an order that vectors can follow, so that all kernels get the same bits.
//
//   lane j of eight sums the squares of x[j], x[j + 8], ...
//   sum = ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))

template <typename T>
static inline T sum_lanes(const T lane[8]) {
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

// In the type of the values, for row-wise Adagrad.
template <typename T>
static inline T sum_of_squares(const T* x, size_t n) {
  T lane[8] = {};
  size_t i = 0;
#ifdef LACONIC_AVX2
  constexpr size_t kVectors = sizeof(T) / 4, kWide = 32 / sizeof(T);
  using Vector [[gnu::vector_size(32)]] = T;
  Vector sums[kVectors] = {};
  for (; i + 8 <= n; i += 8)
    for (size_t k = 0; k < kVectors; ++k) {
      Vector v;
      std::memcpy(&v, x + i + k * kWide, 32);
      sums[k] += v * v;
    }
  std::memcpy(lane, sums, sizeof(lane));
#else
  for (; i + 8 <= n; i += 8)
    for (size_t j = 0; j < 8; ++j) lane[j] += x[i + j] * x[i + j];
#endif
  for (size_t j = 0; i + j < n; ++j) lane[j] += x[i + j] * x[i + j];
  return sum_lanes(lane);
}

static inline double finite_square(float x) {
  const double v = std::fabs(x) < std::numeric_limits<float>::infinity() ? double(x) : 0.0;
  return v * v;
}

// In float64, where every square of a float32 is exact and no sum overflows; NaN and infinities count as 0.
static double finite_squares(const float* x, size_t n) {
  double lane[8] = {};
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256 inf = _mm256_set1_ps(std::numeric_limits<float>::infinity()), sign = _mm256_set1_ps(-0.0f);
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  for (; i + 8 <= n; i += 8) {
    const __m256 size = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i));
    const __m256 v = _mm256_and_ps(size, _mm256_cmp_ps(size, inf, _CMP_LT_OQ));
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v)), b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
    low = _mm256_add_pd(low, _mm256_mul_pd(a, a));
    high = _mm256_add_pd(high, _mm256_mul_pd(b, b));
  }
  _mm256_storeu_pd(lane, low);
  _mm256_storeu_pd(lane + 4, high);
#else
  for (; i + 8 <= n; i += 8)
    for (size_t j = 0; j < 8; ++j) lane[j] += finite_square(x[i + j]);
#endif
  for (size_t j = 0; i + j < n; ++j) lane[j] += finite_square(x[i + j]);
  return sum_lanes(lane);
}
