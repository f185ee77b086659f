// Count sketch and index of a sparse vector of integers; both add, so that sums of vectors decode from sums
// of sketches. docs/formats/sketch.md is the normative text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace laconic {

// Where the entries of a vector go; laconic.kernels.sketch_layout computes it.
struct SketchLayout {
  size_t size;        // entries of the vector
  size_t cells;       // of the sketch
  uint64_t key;       // of the hashes
  uint32_t segments;  // an entry starts in one of these, and has a cell there and in the two after; 0: cell i is entry i
  uint32_t length;    // cells of a segment
  uint32_t words;     // of the index
  uint32_t probes;    // words of the Bloom filter that know an entry; 0: the index is a bitmap

  bool valid() const;
};

// Fills cells[0..layout.cells) and index[0..layout.words). Sums of cells are those of the entries modulo 2^32
// (2^64); returns the largest magnitude of an entry, by which the caller knows whether they fit.
template <typename X, typename C>
uint64_t encode_sketch(const Kernels& kernels, const SketchLayout& layout, const X* x, C* cells, uint32_t* index);

// Fills out[0..layout.size) and returns 0, or returns how many entries could not be peeled (`out` is then
// unspecified). FormatError: no vector has these cells and this index.
template <typename C>
uint64_t decode_sketch(const Kernels& kernels, const SketchLayout& layout, const C* cells, const uint32_t* index,
                       C* out);

}  // namespace laconic
