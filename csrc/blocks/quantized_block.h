// What every quantized block shares: step and base, patches, and the exits that need no codes.
#pragma once

#include <vector>

#include "bytes.h"
#include "grid.h"
#include "kernels.h"
#include "scratch.h"

namespace laconic {

enum class Form : uint8_t {
  kConstant = 0,
  kStored = 1,
  kPacked = 2,
  kEntropy = 3,
  kDeduplicated = 4,
  kVectorLz = 5,
  kHuffman = 6,
};

inline size_t max_block_bytes(size_t n) { return n ? n * 4 + 1 : 0; }

size_t write_stored(const float* x, size_t n, uint8_t* out);
size_t write_constant(uint32_t bits, uint8_t* out);
uint32_t bits_of(float x);

// The block without codes if there is one (empty, constant, no usable step, nearly all escaped),
// else the codes are in scratch.codes8 or scratch.codes16, by lattice.low_bits.
struct Quantized {
  bool finished = false;
  size_t size = 0;
  Lattice lattice;
};
Quantized quantize_block(const Kernels& kernels, const float* x, size_t n, const BoundSpec& bound, int threads,
                         Scratch& scratch, uint8_t* out);

void write_patches(const std::vector<Patch>& patches, Writer& out);
void apply_patches(Reader& in, size_t n, float* out);

struct GridHeader {
  float step;
  int32_t base;
};
void write_header(const Grid& grid, Writer& out);
GridHeader read_header(Reader& in);

// Fills `out` if the form is constant or stored; returns whether it was.
bool read_plain_form(Form form, Reader& in, size_t n, float* out);

}  // namespace laconic
