// Raw bits: values[i] = values[i] << width | the next `width` bits, least significant first.

static void append_bits(const uint8_t* raw, size_t size, int width, uint32_t* values, size_t n) {
  const uint64_t step = uint64_t(width), mask = (uint64_t(1) << width) - 1;
  // values whose bits can be had from eight bytes that are all there
  const uint64_t safe = size < 8 ? 0 : (uint64_t(size) - 8) * 8 / step, whole = safe < n ? safe : n;
  uint64_t bit = 0, i = 0;
#ifdef LACONIC_AVX2
  if (width <= 8) {  // eight values are whole bytes, four of them at most 32 bits
    const __m256i shifts = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3), _mm256_set1_epi32(width));
    const __m256i ones = _mm256_set1_epi32(int(mask));
    const __m128i up = _mm_cvtsi32_si128(width);
    for (; i + 8 <= whole; i += 8, bit += 8 * step) {
      uint64_t window;
      std::memcpy(&window, raw + (bit >> 3), 8);
      const __m128i low = _mm_set1_epi32(int(window)), high = _mm_set1_epi32(int(window >> 4 * step));
      const __m256i bits = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set_m128i(high, low), shifts), ones);
      __m256i* const at = reinterpret_cast<__m256i*>(values + i);
      _mm256_storeu_si256(at, _mm256_or_si256(_mm256_sll_epi32(_mm256_loadu_si256(at), up), bits));
    }
  }
#endif
  const uint64_t per = 57 / step;
  for (; i + per <= whole; bit += per * step) {
    uint64_t window;
    std::memcpy(&window, raw + (bit >> 3), 8);
    window >>= bit & 7;
    for (const uint64_t end = i + per; i < end; ++i, window >>= width)
      values[i] = uint32_t(uint64_t(values[i]) << width | (window & mask));
  }
  for (; i < n; ++i, bit += step) {
    uint64_t window = 0;
    const size_t at = size_t(bit >> 3);
    std::memcpy(&window, raw + at, size - at < 8 ? size - at : 8);
    values[i] = uint32_t(uint64_t(values[i]) << width | (window >> (bit & 7) & mask));
  }
}
