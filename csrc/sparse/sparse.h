// Tensors that are mostly zero: where their words are, and the words themselves; and sums of such tensors.
//
// A tensor is cut into chunks of 32,768 words, a chunk into units of 1 to 64 neighboring words (whole rows of
// a gradient are there or not). A unit with any bit set is there, with all its words. docs/formats/sparse.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace laconic {

inline constexpr size_t kChunkWords = 32768;
inline constexpr size_t kMostUnit = 64;  // and a power of two

// Most bytes of the index of a tensor of `words`.
size_t sparse_index_room(size_t words, size_t unit);

struct SparseSize {
  size_t index_bytes, words;
};

// What one rank has of a tensor.
template <typename T>
struct SparsePart {
  const uint8_t* index;
  size_t index_bytes;
  const T* values;
  size_t words;
};

// Units of x that are there. `index` has sparse_index_room, `values` room for all words of x.
template <typename T>
SparseSize compact(const Kernels& kernels, const T* x, size_t words, size_t unit, uint8_t* index, T* values);

// Neighboring layers, each with a threshold of its own: layer s is from bounds[s] to bounds[s + 1].
struct Thresholds {
  const int64_t* bounds;
  const float* thresholds;
  size_t layers;
};

// memory += gradient, gradient = 0; entries of memory of at least their layer's threshold, or NaN, move out of it.
// counts[s] is how many of layer s do.
SparseSize compact_large(const Kernels& kernels, float* gradient, float* memory, const Thresholds& layers,
                         uint8_t* index, float* values, int64_t* counts);

// The sum of the parts, in their order, each entry from +0; integers wrap. Entries that no part has stay.
// FormatError if a part is not one of a tensor of so many words; earlier chunks may have been written by then.
template <typename T>
void place_sum(const SparsePart<T>* parts, size_t count, size_t words, size_t unit, T* out);

// The same as a tensor of its own, with the entries that any part has.
template <typename T>
SparseSize compact_sum(const SparsePart<T>* parts, size_t count, size_t words, size_t unit, uint8_t* index, T* values);

}  // namespace laconic
