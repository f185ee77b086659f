// Which of up to 32,768 places are taken, in few bits: Elias-Fano, or a bitmap where that is smaller.
//
// Both sides know how many places there are and how many are taken; the form follows from these two
// numbers and is not written. docs/formats/sparse.md says how the bits lie.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic {

inline constexpr size_t kMostPlaces = 32768;

// Bytes of `taken` out of `places`.
size_t positions_bytes(size_t places, size_t taken);

// Writes positions_bytes; bit i of `bits` says whether place i is taken, those past the last are 0.
void encode_positions(const uint64_t* bits, size_t places, size_t taken, uint8_t* out);

// Ascending places; FormatError unless the bytes are what encode_positions writes. `in` has positions_bytes,
// and nothing behind them is read. `out` has room for `taken`.
void decode_positions(const uint8_t* in, size_t places, size_t taken, uint16_t* out);

}  // namespace laconic
