// Huffman codes over an alphabet of 256: built from counts, or taken from a family of fixed ones.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace laconic {

using Histogram = std::array<uint32_t, 256>;
using Lengths = std::array<uint8_t, 256>;  // 0: the symbol does not occur

// log2(1 + i/256) in 2^-16, by repeated squaring.
constexpr std::array<uint32_t, 256> make_log_table() {
  std::array<uint32_t, 256> table{};
  for (uint64_t i = 0; i < 256; ++i) {
    uint64_t m = (256 + i) << 22;  // 30 fraction bits
    for (int bit = 0; bit < 16; ++bit) {
      m = m * m >> 30;
      table[i] <<= 1;
      if (m >> 31) {
        table[i] |= 1;
        m >>= 1;
      }
    }
  }
  return table;
}
inline constexpr std::array<uint32_t, 256> kLogTable = make_log_table();

// 2^16 * log2(x), x >= 1, from the top nine bits of x: integer arithmetic only, so
// that every encoder decides alike.
inline uint64_t log2_q16(uint64_t x) {
  const int top = 63 - __builtin_clzll(x);
  const uint64_t mantissa = top >= 8 ? x >> (top - 8) : x << (8 - top);
  return (uint64_t(top) << 16) + kLogTable[mantissa & 255];
}

// x * log2_q16(x) for small x: most counts are small, and of unforeseeable size.
inline constexpr size_t kSmallCounts = 512;
constexpr std::array<uint32_t, kSmallCounts> make_small_terms() {
  std::array<uint32_t, kSmallCounts> terms{};
  for (size_t x = 1; x < kSmallCounts; ++x) {
    int top = 0;
    while (x >> (top + 1)) ++top;
    const size_t mantissa = top >= 8 ? x >> (top - 8) : x << (8 - top);
    terms[x] = uint32_t(x) * ((uint32_t(top) << 16) + kLogTable[mantissa & 255]);
  }
  return terms;
}
inline constexpr std::array<uint32_t, kSmallCounts> kSmallTerms = make_small_terms();

inline uint64_t entropy_term(uint32_t x) { return x < kSmallCounts ? kSmallTerms[x] : x * log2_q16(x); }

// Sum of count * log2(total / count), in 2^-16 bits.
uint64_t entropy_q16(const uint32_t* counts, size_t n);

// The smallest and the largest symbol that occur; 255 both if none does.
struct Span {
  size_t first, last;
};
Span live_span(const Histogram& histogram);

// Lengths of at most 12 bits whose Kraft sum is exactly 1. At least two counts are positive.
Lengths code_lengths(const Histogram& counts);

// The symbols that have a code, in their own order.
CanonicalOrder live_codes(const Lengths& lengths);

// From the order of symbols to the order of codes.
CanonicalOrder canonical_order(const CanonicalOrder& by_symbol);

// Canonical codes: shorter first, then by symbol. codes[symbol + minimum, modulo 256] = code << 8 | length, 0 for others.
void canonical_codes(const CanonicalOrder& by_symbol, uint8_t minimum, uint32_t* codes);

// The decoder of a complete code; returns log2 of the table's size. The table needs kDecoderRoom.
inline constexpr size_t kDecoderRoom = (size_t(1) << kMaxCodeLength) + 3;
int fill_decoder(const CanonicalOrder& order, uint16_t* table);

// Codes that need no table on the wire: products of one digit's distribution.
enum class Shape : uint8_t { kRanked = 0, kLaplace = 1, kNormal = 2 };
inline constexpr int kShapes = 3, kLevels = 16;

inline constexpr uint64_t kMissing = uint64_t(1) << 40;  // price of a symbol that has no code

struct StaticCode {
  Lengths lengths;
  std::array<int16_t, 256> short_lengths;  // the same, as short blocks are priced with them
  std::array<int16_t, 256> missing;        // -1: the symbol has no code
  std::array<uint32_t, 256> codes;
  std::vector<uint16_t> table;
  std::vector<uint32_t> runs;
  bool has_runs;
  int log_size;

  HuffmanDecoder decoder() const { return {table.data(), log_size, has_runs ? runs.data() : nullptr, lengths.data()}; }
};

// The codes of one shape, from narrow to wide.
struct StaticCodes {
  std::array<uint64_t, kLevels> means_q8;  // expected distance of a digit from its center
  std::array<StaticCode, kLevels> codes;

  const StaticCode& operator[](size_t level) const { return codes[level]; }
};
const StaticCodes& static_codes(int log_group, Shape shape);

}  // namespace laconic
