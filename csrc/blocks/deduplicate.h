// Deduplicate: equal rows are found once, over the whole block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace laconic {

// Not part of any format: equal rows have equal hashes, no more.
uint64_t hash_row(const uint8_t* row, size_t size);

// Distinct rows are numbered: those that occur more than once first, by falling
// count (equal from 255 on) and then by first occurrence; after them the others, as they come.
struct Distinct {
  uint32_t repeated = 0;             // rows that occur more than once
  uint32_t single = 0;               // rows that occur once
  std::vector<uint32_t> first;       // by new number: the row where it occurs first
  std::vector<uint32_t> flags;       // per row: 1 if it is a single one
  std::vector<uint32_t> indices;     // per row that is not single: its number

  // reused between calls
  std::vector<uint64_t> hashes, slots, seen, again;
  std::vector<uint8_t> candidate;
  std::vector<uint32_t> ids, counts, number;
};

// Returns how many rows are distinct; where that is all of them, nothing else is filled in.
size_t find_distinct(const uint8_t* rows, size_t n, size_t row_bytes, Distinct& out);

}  // namespace laconic
