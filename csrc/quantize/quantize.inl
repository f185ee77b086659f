// Quantize: float32 to integer codes, every code checked against the bound.
//
//   code  = clamp(round(clamp(x * inverse, -2^22, 2^22)) - base, smallest, largest)
//   back  = float(code + base) * step            one rounding: code + base < 2^24
//   fails = not (|x - back| < bound)             NaN and infinities fail by themselves
//
// The comparison is strict because |x - back| is itself rounded: rounding is
// monotone, so a true error of at least `bound` cannot round below it.
// Dithered: round(v) becomes floor(v + u), u in [0, 1) from a hash of the index.

static constexpr float kCodeLimit = 4194304.0f;  // 2^22: beyond it float32 has no half steps

static constexpr float kRounder = 12582912.0f;   // 1.5 * 2^23: adding it rounds half to even

static inline uint32_t dither_bits(uint32_t index, const uint32_t key[2]) {
  uint32_t h = index + key[0];
  h = (h ^ (h >> 16)) * 0x7feb352du;
  h = ((h ^ (h >> 15)) ^ key[1]) * 0x846ca68bu;
  return (h ^ (h >> 16)) >> 8;
}

template <typename Code>
static inline bool quantize_one(float x, const Grid& grid, uint32_t index, Code* code) {
  float v = x * grid.inverse;
  v = v > -kCodeLimit ? v : -kCodeLimit;  // NaN goes to the limit, and fails below
  v = v < kCodeLimit ? v : kCodeLimit;
  v = grid.dithered ? std::floor(v + float(dither_bits(index, grid.key)) * 0x1p-24f)
                    : (v + kRounder) - kRounder;
  int32_t c = int32_t(v) - grid.base;
  c = c < grid.smallest ? grid.smallest : c > grid.largest ? grid.largest : c;
  const float back = float(c + grid.base) * grid.step;
  const bool ok = std::fabs(x - back) < grid.bound;
  *code = ok ? Code(c) : Code(0);
  return ok;
}

#ifdef LACONIC_AVX2
static inline __m256i dither_bits8(__m256i index, const uint32_t key[2]) {
  __m256i h = _mm256_add_epi32(index, _mm256_set1_epi32(int(key[0])));
  h = _mm256_mullo_epi32(_mm256_xor_si256(h, _mm256_srli_epi32(h, 16)), _mm256_set1_epi32(0x7feb352d));
  h = _mm256_xor_si256(_mm256_xor_si256(h, _mm256_srli_epi32(h, 15)), _mm256_set1_epi32(int(key[1])));
  h = _mm256_mullo_epi32(h, _mm256_set1_epi32(int(0x846ca68bu)));
  return _mm256_srli_epi32(_mm256_xor_si256(h, _mm256_srli_epi32(h, 16)), 8);
}

// Eight codes as int32, and which lanes hold their bound. Codes that cannot leave the
// grid's range (`clamped` false: the range of x was measured, base is 0) skip the clamps;
// NaN and infinities convert to INT_MIN there, and fail.
template <bool clamped, bool dithered>
static inline __m256i quantize_eight(const float* x, const Grid& grid, uint32_t index, __m256* ok) {
  const __m256 value = _mm256_loadu_ps(x);
  __m256 v = _mm256_mul_ps(value, _mm256_set1_ps(grid.inverse));
  if (clamped) {
    v = _mm256_max_ps(v, _mm256_set1_ps(-kCodeLimit));  // a NaN in the first operand yields the second
    v = _mm256_min_ps(v, _mm256_set1_ps(kCodeLimit));
  }
  if (dithered) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i bits = dither_bits8(_mm256_add_epi32(_mm256_set1_epi32(int(index)), lanes), grid.key);
    v = _mm256_floor_ps(_mm256_add_ps(v, _mm256_mul_ps(_mm256_cvtepi32_ps(bits), _mm256_set1_ps(0x1p-24f))));
  }
  __m256i c = _mm256_cvtps_epi32(v), whole = c;
  if (clamped) {
    const __m256i base = _mm256_set1_epi32(grid.base);
    c = _mm256_sub_epi32(c, base);
    c = _mm256_max_epi32(c, _mm256_set1_epi32(grid.smallest));
    c = _mm256_min_epi32(c, _mm256_set1_epi32(grid.largest));
    whole = _mm256_add_epi32(c, base);
  }
  const __m256 back = _mm256_mul_ps(_mm256_cvtepi32_ps(whole), _mm256_set1_ps(grid.step));
  const __m256 error = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_sub_ps(value, back));
  *ok = _mm256_cmp_ps(error, _mm256_set1_ps(grid.bound), _CMP_LT_OQ);
  return c;
}

static inline void store_codes(int8_t* out, __m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32(bytes, order));
}

static inline void store_codes(int16_t* out, __m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i ab = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
  const __m256i cd = _mm256_permute4x64_epi64(_mm256_packs_epi32(c, d), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), ab);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), cd);
}

// The part of [0, n) that fits whole vectors; returns where it stopped.
template <typename Code, bool clamped, bool dithered>
static size_t quantize_vectors(const float* x, size_t n, const Grid& grid, uint64_t first, Code* codes,
                               uint32_t* failed, size_t* failures) {
  size_t i = 0, m = *failures;
  for (; i + 32 <= n; i += 32) {
    // a large block comes from memory, and the hardware looks too short a way ahead
    _mm_prefetch(reinterpret_cast<const char*>(x + i + 1024), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(x + i + 1040), _MM_HINT_T0);
    __m256 ok[4];
    __m256i c[4];
    for (int k = 0; k < 4; ++k)
      c[k] = quantize_eight<clamped, dithered>(x + i + 8 * k, grid, uint32_t(first + i) + 8u * unsigned(k), &ok[k]);
    const __m256 all = _mm256_and_ps(_mm256_and_ps(ok[0], ok[1]), _mm256_and_ps(ok[2], ok[3]));
    if (_mm256_movemask_ps(all) != 0xff) {
      for (int k = 0; k < 4; ++k) {
        c[k] = _mm256_and_si256(c[k], _mm256_castps_si256(ok[k]));
        for (unsigned bad = unsigned(~_mm256_movemask_ps(ok[k])) & 0xffu; bad; bad &= bad - 1)
          failed[m++] = uint32_t(i) + 8u * unsigned(k) + uint32_t(__builtin_ctz(bad));
      }
    }
    store_codes(codes + i, c[0], c[1], c[2], c[3]);
  }
  *failures = m;
  return i;
}
#endif

template <typename Code>
static size_t quantize(const float* x, size_t n, const Grid& grid, uint64_t first, Code* codes,
                       uint32_t* failed) {
  size_t i = 0, failures = 0;
#ifdef LACONIC_AVX2
  const auto vectors = grid.clamped ? (grid.dithered ? quantize_vectors<Code, true, true> : quantize_vectors<Code, true, false>)
                                    : (grid.dithered ? quantize_vectors<Code, false, true> : quantize_vectors<Code, false, false>);
  i = vectors(x, n, grid, first, codes, failed, &failures);
#endif
  for (; i < n; ++i)
    if (!quantize_one(x[i], grid, uint32_t(first + i), &codes[i])) failed[failures++] = uint32_t(i);
  return failures;
}

// Smallest, largest and number of finite values.
static size_t range(const float* x, size_t n, float* low, float* high) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  float lo = inf, hi = -inf;
#ifdef LACONIC_AVX2
  // While nothing but finite values comes, no lane needs a mask.
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 vlo[4], vhi[4], size[4];
  for (int k = 0; k < 4; ++k) vlo[k] = _mm256_set1_ps(inf), vhi[k] = _mm256_set1_ps(-inf), size[k] = _mm256_setzero_ps();
  size_t whole = n & ~size_t(31);
  for (size_t i = 0; i < whole; i += 32)
    for (int k = 0; k < 4; ++k) {
      const __m256 v = _mm256_loadu_ps(x + i + 8 * k);
      vlo[k] = _mm256_min_ps(v, vlo[k]);
      vhi[k] = _mm256_max_ps(v, vhi[k]);
      // as integers, NaN and infinities are the largest
      size[k] = _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(size[k]), _mm256_castps_si256(_mm256_andnot_ps(sign, v))));
    }
  for (int k = 1; k < 4; ++k) {
    vlo[0] = _mm256_min_ps(vlo[0], vlo[k]);
    vhi[0] = _mm256_max_ps(vhi[0], vhi[k]);
    size[0] = _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(size[0]), _mm256_castps_si256(size[k])));
  }
  const __m256i infinite = _mm256_cmpgt_epi32(_mm256_castps_si256(size[0]), _mm256_set1_epi32(0x7f7fffff));
  if (_mm256_testz_si256(infinite, infinite)) {
    alignas(32) float a[8], b[8];
    _mm256_store_ps(a, vlo[0]);
    _mm256_store_ps(b, vhi[0]);
    for (int j = 0; j < 8; ++j) {
      lo = a[j] < lo ? a[j] : lo;
      hi = b[j] > hi ? b[j] : hi;
    }
  } else {
    whole = 0;  // start again, one by one
  }
  size_t count = whole;
#else
  const size_t whole = 0;
  size_t count = 0;
#endif
  for (size_t i = whole; i < n; ++i) {
    if (!(std::fabs(x[i]) < inf)) continue;
    lo = x[i] < lo ? x[i] : lo;
    hi = x[i] > hi ? x[i] : hi;
    ++count;
  }
  *low = lo;
  *high = hi;
  return count;
}
