#include "first_rows.h"

#include <algorithm>

namespace laconic {
namespace {

constexpr size_t kDraws = 8;  // floats of one block of Philox

struct Block {
  uint64_t word[4];
};

uint64_t high(unsigned __int128 product) { return uint64_t(product >> 64); }

// Two blocks at a time: one waits for its products while the other is multiplied.
void philox(uint64_t seed, uint64_t key, uint64_t counter, Block& a, Block& b) {
  a = {{counter, 0, 0, 0}};
  b = {{counter + 1, 0, 0, 0}};
  uint64_t key0 = seed, key1 = key;
  for (int round = 0; round < 10; ++round) {
    for (Block* block : {&a, &b}) {
      uint64_t* x = block->word;
      const unsigned __int128 first = (unsigned __int128)(0xD2E7470EE14C6C93u) * x[0];
      const unsigned __int128 second = (unsigned __int128)(0xCA5A826395121157u) * x[2];
      x[0] = high(second) ^ x[1] ^ key0;
      x[1] = uint64_t(second);
      x[2] = high(first) ^ x[3] ^ key1;
      x[3] = uint64_t(first);
    }
    key0 += 0x9E3779B97F4A7C15u;
    key1 += 0xBB67AE8584CAA73Bu;
  }
}

void draw(const Block& block, float* out) {
  for (int w = 0; w < 4; ++w) {
    out[2 * w] = float(uint32_t(block.word[w]) >> 8) * 0x1p-24f;
    out[2 * w + 1] = float(uint32_t(block.word[w] >> 40)) * 0x1p-24f;
  }
}

}  // namespace

void first_rows(float* out, size_t dim, const int64_t* rows, size_t count, uint64_t seed, uint64_t table) {
  float drawn[2 * kDraws];
  for (size_t i = 0; i < count; ++i, out += dim) {
    const uint64_t chunk = uint64_t(rows[i] / kFirstRowsChunk);
    const size_t place = size_t(rows[i] % kFirstRowsChunk) * dim;
    uint64_t counter = place / kDraws + 1;  // numpy's generator counts before it draws
    size_t skip = place % kDraws;
    for (size_t done = 0; done < dim; counter += 2, skip = 0) {
      Block a, b;
      philox(seed, table << 32 | chunk, counter, a, b);
      draw(a, drawn);
      draw(b, drawn + kDraws);
      const size_t taken = std::min(dim - done, 2 * kDraws - skip);
      std::copy_n(drawn + skip, taken, out + done);
      done += taken;
    }
  }
}

}  // namespace laconic
