// Memory that one encode or decode needs, kept for the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deduplicate.h"

namespace laconic {

// A value that travels beside the codes: its place, and its bits (or its code).
struct Patch {
  uint64_t index;
  uint32_t bits;
};

struct Scratch {
  std::vector<int8_t> codes8, distinct8;
  std::vector<int16_t> codes16, distinct16;
  std::vector<uint8_t> symbols, slots, other;
  std::vector<uint32_t> failed, refs;
  std::vector<uint64_t> numbers;
  std::vector<Patch> patches, outliers;
  Distinct distinct;

  size_t bytes() const;
};

}  // namespace laconic
