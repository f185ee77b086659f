// Packed bits: values of a few bits each, the lowest bit first, without gaps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bytes.h"

namespace laconic {

// Each of `values` is below 2^width; a width is at most that of the type.
void pack_bits(const uint8_t* values, size_t n, int width, Writer& out);
void pack_bits(const uint16_t* values, size_t n, int width, Writer& out);
void pack_bits(const uint32_t* values, size_t n, int width, Writer& out);

// codes[i] = value i + minimum, modulo 256; 1 <= width <= 8, and `raw` has `size` bytes, enough for n values.
// Groups of eight are written whole.
void unpack_bits(const uint8_t* raw, size_t size, int width, size_t n, int minimum, int8_t* codes);

}  // namespace laconic
