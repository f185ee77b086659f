// Kernels for any machine.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"

#define LACONIC_LANES 4

namespace laconic {
namespace {
#include "quantize.inl"
#include "code_window.inl"
#include "dequantize.inl"
#include "group.inl"
#include "huffman.inl"
#include "huffman_abreast.inl"
#include "raw_bits.inl"
#include "references.inl"
#include "cast.inl"
#include "squares.inl"
#include "rows.inl"
#include "sparse.inl"
#include "lossless.inl"
#include "levels.inl"
#include "magnitudes.inl"
#include "bloom.inl"
#include "sketch.inl"
#include "embedding_bag.inl"
#include "row_ranges.inl"
#include "dense.inl"
#include "kernel_table.inl"
LACONIC_KERNEL_TABLE("scalar")
}  // namespace

const Kernels* scalar_kernels() { return &kTable; }

}  // namespace laconic
