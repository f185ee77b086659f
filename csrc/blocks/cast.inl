// Cast: float32 to float16 and back, and a row to unsigned codes of one scale and back.

static inline uint32_t float_bits(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return u;
}

static inline float bits_float(uint32_t u) {
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}

static inline uint16_t half_from_float(float x) {
  const uint32_t u = float_bits(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);   // any NaN becomes the one quiet NaN
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {                                  // subnormal: let the adder round
    const float shifted = bits_float(magnitude) + 0.5f;
    return uint16_t(sign | (float_bits(shifted) - float_bits(0.5f)));
  }
  return uint16_t(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

static inline float float_from_half(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude > 0x7c00u) return bits_float(sign | 0x7fc00000u | (magnitude & 0x3ffu) << 13);  // quiet
  if (magnitude == 0x7c00u) return bits_float(sign | 0x7f800000u);
  if (magnitude >= 0x400u) return bits_float(sign | ((magnitude << 13) + 0x38000000u));
  return bits_float(sign | float_bits(float(magnitude) * 0x1p-24f));
}

static void to_half(const float* x, size_t n, uint8_t* out) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  for (; i + 8 <= n; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m128i nan16 = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
    const __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    const __m128i quiet = _mm_or_si128(_mm_and_si128(h, _mm_set1_epi16(short(0x8000))), _mm_set1_epi16(0x7e00));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), _mm_blendv_epi8(h, quiet, nan16));
  }
#endif
  for (; i < n; ++i) {
    const uint16_t h = half_from_float(x[i]);
    std::memcpy(out + 2 * i, &h, 2);
  }
}

static void from_half(const uint8_t* in, size_t n, float* out) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i))));
#endif
  for (; i < n; ++i) {
    uint16_t h;
    std::memcpy(&h, in + 2 * i, 2);
    out[i] = float_from_half(h);
  }
}

// round(clamp((x - bias) * inverse, 0, top)), half to even; where that is NaN, 0.
static void quantize_row(const float* x, size_t n, float bias, float inverse, float top, uint8_t* codes) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256 vbias = _mm256_set1_ps(bias), vinverse = _mm256_set1_ps(inverse), vtop = _mm256_set1_ps(top);
  for (; i + 16 <= n; i += 16) {
    __m256i c[2];
    for (int k = 0; k < 2; ++k) {
      __m256 v = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * size_t(k)), vbias), vinverse);
      v = _mm256_min_ps(_mm256_max_ps(v, _mm256_setzero_ps()), vtop);
      c[k] = _mm256_cvtps_epi32(v);
    }
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(c[0], c[1]), 0xd8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), bytes);
  }
#endif
  for (; i < n; ++i) {
    float v = (x[i] - bias) * inverse;
    v = v > 0.0f ? v : 0.0f;
    v = v < top ? v : top;
    codes[i] = uint8_t((v + 8388608.0f) - 8388608.0f);
  }
}

static void dequantize_row(const uint8_t* codes, size_t n, float scale, float bias, float* out) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256 vscale = _mm256_set1_ps(scale), vbias = _mm256_set1_ps(bias);
  for (; i + 8 <= n; i += 8) {
    const __m256i c = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i)));
    _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(c), vscale), vbias));
  }
#endif
  for (; i < n; ++i) out[i] = float(codes[i]) * scale + bias;
}
