// Group: 2, 4 or 8 small digits become one 8-bit symbol, the first digit lowest.
// A Huffman code over groups spends fractions of a bit per digit, and takes
// fewer steps.

static void group(const int8_t* codes, size_t n, int log_group, int minimum, uint8_t* symbols) {
  const int size = 1 << log_group, width = 8 >> log_group;
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256i low = _mm256_set1_epi8(char(minimum));
  if (log_group == 1) {
    const __m256i weights = _mm256_set1_epi16(0x1001);  // first digit * 1 + second * 16
    for (; i + 32 <= n; i += 32) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_sub_epi8(v, low), weights);
      const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(symbols + i / 2), bytes);
    }
  } else if (log_group == 2) {
    const __m256i weights = _mm256_set1_epi16(0x0401), pair_weights = _mm256_set1_epi32(0x00100001);
    for (; i + 32 <= n; i += 32) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
      const __m256i quads = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_sub_epi8(v, low), weights), pair_weights);
      const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(symbols + i / 4), _mm_packus_epi16(words, words));
    }
  }
#endif
  for (; i < n; i += size_t(size)) {
    unsigned symbol = 0;
    for (int k = 0; k < size; ++k) symbol |= unsigned(uint8_t(codes[i + size_t(k)] - minimum)) << (k * width);
    symbols[i >> log_group] = uint8_t(symbol);
  }
}

static void ungroup(const uint8_t* symbols, size_t n, int log_group, int minimum, int8_t* codes) {
  const int size = 1 << log_group, width = 8 >> log_group;
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256i low = _mm256_set1_epi8(char(minimum));
  if (log_group == 0) {
    for (; i + 32 <= n; i += 32) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(symbols + i));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), _mm256_add_epi8(v, low));
    }
  } else if (log_group == 1) {
    for (; i + 32 <= n; i += 32) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(symbols + i / 2));
      const __m256i wide = _mm256_cvtepu8_epi16(bytes);  // 000000hl -> 0000h0l by shift and mask
      const __m256i digits = _mm256_and_si256(_mm256_or_si256(wide, _mm256_slli_epi16(wide, 4)), _mm256_set1_epi8(0x0f));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), _mm256_add_epi8(digits, low));
    }
  } else if (log_group == 2) {
    for (; i + 32 <= n; i += 32) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(symbols + i / 4));
      __m256i wide = _mm256_cvtepu8_epi32(bytes);
      wide = _mm256_or_si256(wide, _mm256_slli_epi32(wide, 12));  // 0000dcba -> 00dc00ba and on
      wide = _mm256_or_si256(wide, _mm256_slli_epi32(wide, 6));
      const __m256i digits = _mm256_and_si256(wide, _mm256_set1_epi8(0x03));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), _mm256_add_epi8(digits, low));
    }
  }
#endif
  const int mask = (1 << width) - 1;
  for (; i < n; i += size_t(size)) {
    const unsigned symbol = symbols[i >> log_group];
    for (int k = 0; k < size; ++k) codes[i + size_t(k)] = int8_t(int((symbol >> (k * width)) & unsigned(mask)) + minimum);
  }
}
