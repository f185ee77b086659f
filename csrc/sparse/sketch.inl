// Sketch: which entries are not zero, and which a Bloom filter may know; one bit each, the first lowest.

template <typename T>
struct Extremes {
  T low, high;

  void add(T v) {
    low = v < low ? v : low;
    high = v > high ? v : high;
  }
  uint64_t magnitude() const {
    const uint64_t below = 0 - uint64_t(int64_t(low)), above = uint64_t(int64_t(high));
    return below > above ? below : above;
  }
};

#ifdef LACONIC_AVX2
static inline uint32_t nonzero_word(const int32_t* x, __m256i* low, __m256i* high) {
  uint32_t zeros = 0;
  for (int k = 0; k < 4; ++k) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8 * k));
    *low = _mm256_min_epi32(*low, v);
    *high = _mm256_max_epi32(*high, v);
    const __m256i zero = _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
    zeros |= uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(zero))) << 8 * k;
  }
  return ~zeros;
}

static inline uint32_t nonzero_word(const int64_t* x, __m256i* low, __m256i* high) {
  uint32_t zeros = 0;
  for (int k = 0; k < 8; ++k) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 4 * k));
    *low = _mm256_blendv_epi8(*low, v, _mm256_cmpgt_epi64(*low, v));
    *high = _mm256_blendv_epi8(*high, v, _mm256_cmpgt_epi64(v, *high));
    const __m256i zero = _mm256_cmpeq_epi64(v, _mm256_setzero_si256());
    zeros |= uint32_t(_mm256_movemask_pd(_mm256_castsi256_pd(zero))) << 4 * k;
  }
  return ~zeros;
}
#endif

template <typename T>
static uint64_t nonzero(const T* x, size_t n, uint32_t* mask) {
  Extremes<T> extremes{0, 0};
  size_t i = 0;
#ifdef LACONIC_AVX2
  __m256i low = _mm256_setzero_si256(), high = low;
  for (; i + 32 <= n; i += 32) mask[i / 32] = nonzero_word(x + i, &low, &high);
  T lows[32 / sizeof(T)], highs[32 / sizeof(T)];
  std::memcpy(lows, &low, 32);
  std::memcpy(highs, &high, 32);
  for (const T v : lows) extremes.add(v);
  for (const T v : highs) extremes.add(v);
#endif
  for (; i < n; i += 32) {
    uint32_t word = 0;
    for (size_t j = 0; j < 32 && i + j < n; ++j) {
      word |= uint32_t(x[i + j] != 0) << j;
      extremes.add(x[i + j]);
    }
    mask[i / 32] = word;
  }
  return extremes.magnitude();
}

static size_t count_bits(const uint32_t* mask, size_t words) {
  size_t count = 0;
  for (size_t w = 0; w < words; ++w) count += size_t(__builtin_popcount(mask[w]));
  return count;
}

// Eight at a time, wanted or not: how many there are is less predictable than eight stores are slow.
static size_t list_bits(const uint32_t* mask, size_t words, uint32_t first, uint32_t* positions) {
  size_t count = 0;
  for (size_t w = 0; w < words; w += 2, first += 64) {
    uint64_t bits = mask[w] | (w + 1 < words ? uint64_t(mask[w + 1]) << 32 : 0);
    uint32_t* at = positions + count;
    count += size_t(__builtin_popcountll(bits));
    do {
      for (int k = 0; k < 8; ++k, bits &= bits - 1) *at++ = first + uint32_t(__builtin_ctzll(bits | uint64_t(1) << 63));
    } while (bits);
  }
  return count;
}

#ifdef LACONIC_AVX2
static inline __m256i bloom_mix(__m256i v) {
  v = _mm256_xor_si256(v, _mm256_srli_epi32(v, 16));
  v = _mm256_mullo_epi32(v, _mm256_set1_epi32(int(kBloomMix0)));
  v = _mm256_xor_si256(v, _mm256_srli_epi32(v, 13));
  v = _mm256_mullo_epi32(v, _mm256_set1_epi32(int(kBloomMix1)));
  return _mm256_xor_si256(v, _mm256_srli_epi32(v, 16));
}

static inline uint32_t bloom_known(const BloomFilter& f, uint32_t p, __m256i positions) {
  const __m256i hash = bloom_mix(_mm256_add_epi32(positions, _mm256_set1_epi32(int(f.keys[p]))));
  const __m256i size = _mm256_set1_epi32(int(f.size));
  const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(hash, size), 32);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(hash, 32), size);
  const __m256i place = _mm256_blend_epi32(even, odd, 0xaa);
  const __m256i chosen = _mm256_mullo_epi32(hash, _mm256_set1_epi32(int(kBloomBits)));
  const __m256i one = _mm256_set1_epi32(1), five = _mm256_set1_epi32(31);
  const __m256i bits = _mm256_or_si256(
      _mm256_sllv_epi32(one, _mm256_srli_epi32(chosen, 27)),
      _mm256_or_si256(_mm256_sllv_epi32(one, _mm256_and_si256(_mm256_srli_epi32(chosen, 22), five)),
                      _mm256_sllv_epi32(one, _mm256_and_si256(_mm256_srli_epi32(chosen, 17), five))));
  const __m256i word = _mm256_i32gather_epi32(reinterpret_cast<const int*>(f.words), place, 4);
  const __m256i known = _mm256_cmpeq_epi32(_mm256_and_si256(word, bits), bits);
  return uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(known)));
}

// Lanes whose bit is set, moved to the front.
static inline __m256i front_lanes(__m256i v, uint32_t set) {
  const uint64_t chosen = _pdep_u64(set, 0x0101010101010101u) * 255u;
  const uint64_t order = _pext_u64(0x0706050403020100u, chosen);
  return _mm256_permutevar8x32_epi32(v, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(int64_t(order))));
}
#endif

// Keeps the positions that probe p finds, in their order; returns how many. Needs room for 8 more.
static size_t bloom_keep(const BloomFilter& f, uint32_t p, uint32_t* positions, size_t n) {
  size_t kept = 0, i = 0;
#ifdef LACONIC_AVX2
  if (f.size <= 0x7fffffffu)  // what a gather can address
    for (; i + 8 <= n; i += 8) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(positions + i));
      const uint32_t known = bloom_known(f, p, v);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(positions + kept), front_lanes(v, known));
      kept += size_t(__builtin_popcount(known));
    }
#endif
  for (; i < n; ++i) {
    const BloomProbe probe = bloom_probe(f.keys[p], f.size, positions[i]);
    positions[kept] = positions[i];
    kept += (f.words[probe.word] & probe.bits) == probe.bits;
  }
  return kept;
}

static void bloom_candidates(const BloomFilter& f, uint32_t first, size_t n, uint32_t* mask) {
  constexpr size_t kChunk = 2048;
  uint32_t positions[kChunk + 8];
  for (size_t start = 0; start < n; start += kChunk) {
    const uint32_t from = first + uint32_t(start);
    size_t left = n - start < kChunk ? n - start : kChunk;
    for (uint32_t i = 0; i < left; ++i) positions[i] = from + i;
    std::memset(mask + start / 32, 0, (left + 31) / 32 * 4);
    for (uint32_t p = 0; p < f.probes; ++p) left = bloom_keep(f, p, positions, left);
    for (size_t i = 0; i < left; ++i) {
      const size_t bit = start + (positions[i] - from);
      mask[bit / 32] |= 1u << bit % 32;
    }
  }
}
