// Bloom: where one probe of the filter looks for a position, and the three bits that it sets or seeks there.
// Compiled into every file that includes it, none of which may share a symbol with another.

constexpr uint32_t kBloomMix0 = 0x85ebca6bu, kBloomMix1 = 0xc2b2ae35u, kBloomBits = 0x9e3779b1u;

struct BloomProbe {
  uint32_t word, bits;
};

static inline BloomProbe bloom_probe(uint32_t key, uint32_t words, uint32_t position) {
  uint32_t hash = position + key;
  hash = (hash ^ hash >> 16) * kBloomMix0;
  hash = (hash ^ hash >> 13) * kBloomMix1;
  hash ^= hash >> 16;
  const uint32_t chosen = hash * kBloomBits;
  return {uint32_t(uint64_t(hash) * words >> 32), 1u << (chosen >> 27) | 1u << (chosen >> 22 & 31) | 1u << (chosen >> 17 & 31)};
}
