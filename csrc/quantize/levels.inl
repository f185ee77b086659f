// Levels: floats with two bits behind the leading one, counted from the smallest that matters.
//
//   level of x = sign * (bits of |x|, rounded to 2 bits of mantissa, >> 21, - base), 0 where that is below 1
//
// Four levels an octave: the error is at most a ninth of the value, whatever its size. A layer's base is kMostLevel below its
// largest level, so levels are within +-kMostLevel; smaller values, 25 octaves down, become 0.

static constexpr int kLevelShift = 21;
static constexpr uint32_t kHalfLevel = uint32_t(1) << (kLevelShift - 1), kMagnitude = 0x7fffffffu, kNotFinite = 0x7f800000u;

static inline uint32_t magnitude_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits & kMagnitude;
}

#ifdef LACONIC_AVX2
static inline __m256i magnitudes_of(const float* x) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm256_and_si256(bits, _mm256_set1_epi32(int(kMagnitude)));
}
#endif

// Base of a layer, or kNoLevels if a value is not finite, or rounds to something that is not.
static int32_t level_base(const float* x, size_t n) {
  uint32_t largest = 0;
  size_t i = 0;
#ifdef LACONIC_AVX2
  __m256i most = _mm256_setzero_si256();
  for (; i + 8 <= n; i += 8) most = _mm256_max_epi32(most, magnitudes_of(x + i));
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), most);
  largest = *std::max_element(lanes, lanes + 8);
#endif
  for (; i < n; ++i) largest = std::max(largest, magnitude_of(x[i]));
  if (largest + kHalfLevel >= kNotFinite) return kNoLevels;
  return int32_t((largest + kHalfLevel) >> kLevelShift) - kMostLevel;
}

static void to_levels(const float* x, size_t n, int32_t base, float* levels) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256i half = _mm256_set1_epi32(int(kHalfLevel)), bases = _mm256_set1_epi32(base), zero = _mm256_setzero_si256();
  for (; i + 8 <= n; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)), size = magnitudes_of(x + i);
    const __m256i level = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_add_epi32(size, half), kLevelShift), bases);
    const __m256i kept = _mm256_andnot_si256(_mm256_cmpeq_epi32(size, zero), _mm256_max_epi32(level, zero));
    _mm256_storeu_ps(levels + i, _mm256_cvtepi32_ps(_mm256_sign_epi32(kept, bits)));
  }
#endif
  for (; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    const int32_t level = int32_t(((bits & kMagnitude) + kHalfLevel) >> kLevelShift) - base;
    const int32_t kept = level > 0 && (bits & kMagnitude) != 0 ? level : 0;
    levels[i] = float(bits >> 31 ? -kept : kept);
  }
}

// Any float is taken for the nearest level; one outside of +-kMostLevel, or not a number, gives NaN.
static void from_levels(const float* levels, size_t n, int32_t base, float* out) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256 most = _mm256_set1_ps(float(kMostLevel) + 0.5f), least = _mm256_set1_ps(-float(kMostLevel) - 0.5f);
  const __m256i bases = _mm256_set1_epi32(base), zero = _mm256_setzero_si256();
  const __m256i end = _mm256_set1_epi32(int(kNotFinite >> kLevelShift));
  const __m256i sign = _mm256_set1_epi32(int(~kMagnitude)), not_a_number = _mm256_set1_epi32(0x7fc00000);
  for (; i + 8 <= n; i += 8) {
    const __m256 given = _mm256_loadu_ps(levels + i);
    const __m256 fits = _mm256_and_ps(_mm256_cmp_ps(given, least, _CMP_GE_OQ), _mm256_cmp_ps(given, most, _CMP_LE_OQ));
    const __m256i level = _mm256_cvtps_epi32(_mm256_and_ps(given, fits));
    const __m256i place = _mm256_add_epi32(_mm256_abs_epi32(level), bases);
    const __m256i nothing = _mm256_or_si256(_mm256_cmpeq_epi32(level, zero), _mm256_cmpgt_epi32(zero, place));
    const __m256i real = _mm256_and_si256(_mm256_castps_si256(fits), _mm256_cmpgt_epi32(end, place));
    __m256i bits = _mm256_or_si256(_mm256_slli_epi32(place, kLevelShift), _mm256_and_si256(level, sign));
    bits = _mm256_andnot_si256(nothing, bits);
    bits = _mm256_blendv_epi8(not_a_number, bits, real);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), bits);
  }
#endif
  for (; i < n; ++i) {
    const bool fits = levels[i] >= -float(kMostLevel) - 0.5f && levels[i] <= float(kMostLevel) + 0.5f;
    const int32_t level = int32_t(std::nearbyintf(fits ? levels[i] : 0.0f));
    const int32_t place = (level < 0 ? -level : level) + base;
    const bool real = fits && place < int32_t(kNotFinite >> kLevelShift);
    uint32_t bits = level == 0 || place < 0 ? 0 : uint32_t(place) << kLevelShift | uint32_t(level < 0) << 31;
    if (!real) bits = 0x7fc00000u;
    std::memcpy(out + i, &bits, 4);
  }
}
