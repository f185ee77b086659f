// Heads of messages: a row of int64 numbers for each rank, in as few bytes as they need.
// docs/formats/head.md is the normative text.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic {

// Bytes that a head of so many numbers may have at most.
inline size_t head_max_bytes(size_t numbers) { return (numbers + 7) / 8 + 10 * numbers; }

// Writes the heads back to back; head i becomes out[offsets[i]] to out[offsets[i + 1]].
void encode_heads(const int64_t* numbers, size_t heads, size_t count, uint8_t* out, int64_t* offsets);

// Throws FormatError that names the first bad head.
void decode_heads(const uint8_t* in, size_t size, const int64_t* offsets, size_t heads, size_t count,
                  int64_t* numbers);

}  // namespace laconic
