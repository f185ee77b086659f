// Which code a sequence gets: the cheapest one, by integer costs that every encoder computes alike.
#pragma once

#include <cstdint>
#include <vector>

#include "huffman_code.h"

namespace laconic {

inline constexpr size_t kManyStreams = 384;  // symbols from which a chunk has six streams
inline constexpr size_t kByteSizes = 1008;   // symbols up to which stream sizes fit a byte: 42 quads of 12-bit codes
// Stream sizes, six paddings and the slack of the encoder included; fits 16 bits.
inline constexpr size_t max_chunk_bytes(size_t symbols) { return symbols * kMaxCodeLength / 8 + 64; }

enum class Mode : uint8_t { kPacked = 0, kStatic = 1, kCustom = 2 };

// Which code, and what it will cost.
struct Coding {
  Mode mode = Mode::kPacked;
  int width = 0;           // packed: bits per value
  int log_group = 0;       // Huffman: log2 of values per symbol
  int low_bits = 0;        // Huffman: raw bits below the symbol
  Shape shape = Shape::kRanked;
  int level = 0;
  uint64_t bits = 0;       // the cost, headers included
  Lengths lengths{};       // custom
};

// Adds to a histogram how often symbols occur.
void count_symbols(const uint8_t* symbols, size_t n, Histogram& histogram);

// The cheapest code for n symbols with this histogram. `mean_q8` is the mean distance of a digit
// from its center. Packed is considered for log_group 0 only.
Coding choose_coding(const Histogram& histogram, uint64_t n, int log_group, int low_bits, bool centered,
                     uint64_t mean_q8);

// The same for the symbols themselves, whose digits are not centered.
Coding choose_coding(const uint8_t* symbols, size_t n, int log_group, int low_bits, uint64_t mean_q8);

// Unsigned values below `limit`: the cheapest of packed, one value per symbol, and as many
// values per symbol as fit.
Coding choose_for_values(const uint32_t* values, size_t n, uint32_t limit, std::vector<uint8_t>& scratch);

// The high parts of the values, 2^log_group of them to a symbol; returns how many symbols.
size_t group_values(const uint32_t* values, size_t n, int log_group, int low_bits, std::vector<uint8_t>& symbols);

}  // namespace laconic
