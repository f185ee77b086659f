// Numbers: unsigned 64-bit integers that are mostly small, as classes by size and raw bits.
//
// A number below 16 is its own class. A larger one of b bits has class 16 + 4 (b - 5) + its two
// bits below the first, and b - 3 raw bits: 256 classes reach 2^64. The classes are a sequence,
// the raw bits follow it. docs/formats/sequence.md is the normative text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bytes.h"
#include "sequence.h"

namespace laconic {

struct Classed {
  uint8_t symbol;
  int raw_bits;
};

inline Classed classify(uint64_t v) {
  if (v < 16) return {uint8_t(v), 0};
  const int b = 64 - __builtin_clzll(v);
  return {uint8_t(16 + 4 * (b - 5) + int(v >> (b - 3) & 3)), b - 3};
}

// The cheapest code for the classes of n numbers; `bits` includes the raw ones.
Coding choose_for_numbers(const uint64_t* numbers, size_t n, std::vector<uint8_t>& symbols);

void write_numbers(const Kernels& kernels, const Coding& coding, const uint64_t* numbers, size_t n,
                   std::vector<uint8_t>& symbols, std::vector<uint8_t>& slots, Writer& out);

void read_numbers(Reader& in, const Kernels& kernels, uint64_t* numbers, size_t n, std::vector<uint32_t>& classes);

}  // namespace laconic
