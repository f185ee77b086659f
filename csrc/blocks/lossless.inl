// Words whose exponents travel apart from the rest, and words of which only those that are not zero travel.
//
//   s eeeeeeee mmmmm...m    rotated left by one:    eeeeeeee mmmmm...m s
//
// The top byte is the exponent; below it are three bytes that hardly any code makes smaller.

// rest[3 i]... = the low three bytes of word i, inverted[i] = 255 - its exponent.
static void split_words(const uint32_t* words, size_t n, uint8_t* rest, uint8_t* inverted) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256i low_bytes = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,  //
                                             0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), ones = _mm256_set1_epi8(-1);
  for (; i + 34 <= n; i += 32) {  // a store reaches four bytes too far, which belong to the next two words
    __m256i top[4];
    for (int k = 0; k < 4; ++k) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i + 8 * size_t(k)));
      const __m256i turned = _mm256_or_si256(_mm256_slli_epi32(v, 1), _mm256_srli_epi32(v, 31));
      const __m256i low = _mm256_shuffle_epi8(turned, low_bytes);
      uint8_t* const to = rest + 3 * (i + 8 * size_t(k));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(low));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 12), _mm256_extracti128_si256(low, 1));
      top[k] = _mm256_srli_epi32(turned, 24);
    }
    const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(top[0], top[1]), _mm256_packus_epi32(top[2], top[3]));
    const __m256i sorted = _mm256_permutevar8x32_epi32(bytes, order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(inverted + i), _mm256_xor_si256(sorted, ones));
  }
#endif
  for (; i < n; ++i) {
    const uint32_t turned = words[i] << 1 | words[i] >> 31;
    std::memcpy(rest + 3 * i, &turned, 3);
    inverted[i] = uint8_t(~(turned >> 24));
  }
}

// The inverse; the exponent of word i is top - ranks[i], modulo 256.
static void join_words(const uint8_t* rest, const uint8_t* ranks, size_t n, uint8_t top, uint32_t* words) {
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256i low_bytes = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,  //
                                             0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
  const __m128i tops = _mm_set1_epi8(char(top));
  for (; i + 10 <= n; i += 8) {  // a load reaches four bytes too far
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rest + 3 * i));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rest + 3 * i + 12));
    const __m256i low = _mm256_shuffle_epi8(_mm256_set_m128i(second, first), low_bytes);
    const __m128i exponents = _mm_sub_epi8(tops, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(ranks + i)));
    const __m256i turned = _mm256_or_si256(low, _mm256_slli_epi32(_mm256_cvtepu8_epi32(exponents), 24));
    const __m256i v = _mm256_or_si256(_mm256_srli_epi32(turned, 1), _mm256_slli_epi32(turned, 31));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i), v);
  }
#endif
  for (; i < n; ++i) {
    uint32_t turned = 0;
    std::memcpy(&turned, rest + 3 * i, 3);
    turned |= uint32_t(uint8_t(top - ranks[i])) << 24;
    words[i] = turned >> 1 | turned << 31;
  }
}

#ifdef LACONIC_AVX2
// For eight bits: which places are set, first ones first; and how many are set before each place.
struct BitPlaces {
  uint8_t set[256][8], before[256][8];
};
constexpr BitPlaces make_bit_places() {
  BitPlaces places{};
  for (unsigned bits = 0; bits < 256; ++bits) {
    uint8_t count = 0;
    for (uint8_t k = 0; k < 8; ++k) {
      places.before[bits][k] = uint8_t(count & 7);
      if (bits >> k & 1) places.set[bits][count++] = k;
    }
  }
  return places;
}
static constexpr BitPlaces kBitPlaces = make_bit_places();

static inline __m256i load_places(const uint8_t* places) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(places)));
}
#endif

// The words whose bits are set, side by side; returns how many. `packed` has room for eight more.
static size_t pack_words(const uint32_t* words, size_t n, const uint8_t* bits, uint32_t* packed) {
  size_t i = 0, count = 0;
#ifdef LACONIC_AVX2
  for (; i + 8 <= n; i += 8) {
    const unsigned here = bits[i / 8];
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i));
    const __m256i together = _mm256_permutevar8x32_epi32(v, load_places(kBitPlaces.set[here]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed + count), together);
    count += size_t(__builtin_popcount(here));
  }
#endif
  for (; i < n; ++i) {
    packed[count] = words[i];
    count += bits[i / 8] >> i % 8 & 1u;
  }
  return count;
}

// The inverse: 0 where the bit is not set. Eight words after those of `packed` are read too; returns how many belong.
static size_t spread_words(const uint32_t* packed, const uint8_t* bits, size_t n, uint32_t* words) {
  size_t i = 0, count = 0;
#ifdef LACONIC_AVX2
  const __m256i single = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  for (; i + 8 <= n; i += 8) {
    const unsigned here = bits[i / 8];
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(packed + count));
    const __m256i apart = _mm256_permutevar8x32_epi32(v, load_places(kBitPlaces.before[here]));
    const __m256i kept = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(int(here)), single), single);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i), _mm256_and_si256(apart, kept));
    count += size_t(__builtin_popcount(here));
  }
#endif
  for (; i < n; ++i) {
    const uint32_t bit = bits[i / 8] >> i % 8 & 1u;
    words[i] = packed[count] & (0u - bit);
    count += bit;
  }
  return count;
}
