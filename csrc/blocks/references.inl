// References: which distinct row each row is. A row whose bit in `singles` (lowest first) is set occurs once,
// and those are numbered in their order from `first_single` on; the others take their numbers from `indices`.

#ifdef LACONIC_AVX2
// For eight rows: how many rows of the same sort are before each.
struct Ranks {
  uint8_t of[256][8];
  constexpr Ranks() : of() {
    for (unsigned bits = 0; bits < 256; ++bits) {
      uint8_t seen[2] = {0, 0};
      for (unsigned k = 0; k < 8; ++k) of[bits][k] = seen[bits >> k & 1]++;
    }
  }
};
static constexpr Ranks kRanks;
#endif

// Reads up to eight entries more of `indices` than there are rows that are not single.
static void merge_references(const uint8_t* singles, const uint32_t* indices, size_t rows, uint32_t first_single,
                             uint32_t* refs) {
  uint32_t next = first_single;
  size_t i = 0;
#ifdef LACONIC_AVX2
  const __m256i to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  for (; i + 8 <= rows; i += 8) {
    const unsigned bits = singles[i / 8];
    const __m256i ranks = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kRanks.of[bits])));
    const __m256i others = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(indices));
    const __m256i repeated = _mm256_permutevar8x32_epi32(others, ranks);
    const __m256i single = _mm256_add_epi32(_mm256_set1_epi32(int(next)), ranks);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_setzero_si256(), _mm256_sllv_epi32(_mm256_set1_epi32(int(bits)), to_top));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(refs + i), _mm256_blendv_epi8(repeated, single, mask));
    const unsigned count = unsigned(__builtin_popcount(bits));
    next += count;
    indices += 8 - count;
  }
#endif
  for (; i < rows; ++i) {  // without a branch: nobody can foresee the bits
    const uint32_t single = singles[i / 8] >> (i % 8) & 1u;
    refs[i] = single ? next : *indices;
    next += single;
    indices += 1 - single;
  }
}
