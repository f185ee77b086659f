#include "quantized_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "parallel.h"

namespace laconic {
namespace {

constexpr size_t kSlice = 16384;              // values quantized per call
constexpr size_t kSegment = size_t(1) << 18;  // values per parallel task, a multiple of kSlice

// Codes of one segment; appends its patches.
template <typename Code>
void quantize_segment(const Kernels& kernels, const float* x, size_t first, size_t n, const Grid& grid,
                      Code* codes, std::vector<uint32_t>& failed, std::vector<Patch>& patches) {
  failed.resize(std::max(failed.size(), std::min(n, kSlice)));
  for (size_t start = first; start < first + n; start += kSlice) {
    const size_t count = std::min(kSlice, first + n - start);
    size_t failures;
    if constexpr (sizeof(Code) == 1)
      failures = kernels.quantize8(x + start, count, grid, start, codes + start, failed.data());
    else
      failures = kernels.quantize16(x + start, count, grid, start, codes + start, failed.data());
    for (size_t k = 0; k < failures; ++k)
      patches.push_back({start + failed[k], bits_of(x[start + failed[k]])});
  }
}

template <typename Code>
void quantize_values(const Kernels& kernels, const float* x, size_t n, const Grid& grid, int threads,
                     Scratch& scratch, std::vector<Code>& codes) {
  if (codes.size() < n) codes.resize(n);
  scratch.patches.clear();
  const size_t segments = (n + kSegment - 1) / kSegment;
  if (threads <= 1 || segments <= 1) {
    quantize_segment(kernels, x, 0, n, grid, codes.data(), scratch.failed, scratch.patches);
    return;
  }
  std::vector<std::vector<Patch>> parts(segments);
  parallel_for(segments, threads, [&](size_t s) {
    std::vector<uint32_t> failed;
    quantize_segment(kernels, x, s * kSegment, std::min(kSegment, n - s * kSegment), grid, codes.data(),
                     failed, parts[s]);
  });
  for (const auto& part : parts) scratch.patches.insert(scratch.patches.end(), part.begin(), part.end());
}

// All codes equal and nothing escaped.
bool is_constant(const Scratch& scratch, bool narrow, size_t n) {
  if (!scratch.patches.empty() || !narrow) return false;
  const int8_t* codes = scratch.codes8.data();
  return !std::memcmp(codes, codes + 1, n - 1);
}

}  // namespace

size_t write_stored(const float* x, size_t n, uint8_t* out) {
  out[0] = uint8_t(Form::kStored);
  std::memcpy(out + 1, x, n * 4);
  return n * 4 + 1;
}

size_t write_constant(uint32_t bits, uint8_t* out) {
  out[0] = uint8_t(Form::kConstant);
  std::memcpy(out + 1, &bits, 4);
  return 5;
}

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

Quantized quantize_block(const Kernels& kernels, const float* x, size_t n, const BoundSpec& bound, int threads,
                         Scratch& scratch, uint8_t* out) {
  if (!n) return {true, 0, {}};
  if (!std::memcmp(x, x + 1, (n - 1) * 4)) return {true, write_constant(bits_of(x[0]), out), {}};
  const Lattice lattice = choose_lattice(kernels, x, n, bound);
  if (!lattice.usable) return {true, write_stored(x, n, out), {}};
  const bool narrow = lattice.low_bits == 0;
  if (narrow)
    quantize_values(kernels, x, n, lattice.grid, threads, scratch, scratch.codes8);
  else
    quantize_values(kernels, x, n, lattice.grid, threads, scratch, scratch.codes16);
  if (scratch.patches.size() * 5 >= n * 4) return {true, write_stored(x, n, out), {}};
  if (is_constant(scratch, narrow, n)) {
    const float value = float(scratch.codes8[0] + lattice.grid.base) * lattice.grid.step;
    return {true, write_constant(bits_of(value), out), {}};
  }
  return {false, 0, lattice};
}

void write_patches(const std::vector<Patch>& patches, Writer& out) {
  out.varint(patches.size());
  uint64_t next = 0;
  for (const Patch& p : patches) {
    out.varint(p.index - next);
    out.fixed(p.bits);
    next = p.index + 1;
  }
}

void apply_patches(Reader& in, size_t n, float* out) {
  const uint64_t count = in.varint("patches");
  expect(count <= n && count <= in.left() / 5, "patches: more than there are values or bytes");
  uint64_t next = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t gap = in.varint("patch position");
    expect(gap < n && next + gap < n, "patch position: beyond the values");
    const uint32_t bits = in.fixed<uint32_t>("patch value");
    std::memcpy(out + next + gap, &bits, 4);
    next += gap + 1;
  }
}

void write_header(const Grid& grid, Writer& out) {
  out.fixed(grid.step);
  out.signed_varint(grid.base);
}

GridHeader read_header(Reader& in) {
  GridHeader h;
  h.step = in.fixed<float>("step");
  expect(std::isfinite(h.step) && h.step > 0, "step: not a positive finite number");
  const int64_t base = in.signed_varint("base code");
  expect(base >= -(int64_t(1) << 22) && base <= int64_t(1) << 22, "base code: beyond 2^22");
  h.base = int32_t(base);
  return h;
}

bool read_plain_form(Form form, Reader& in, size_t n, float* out) {
  if (form == Form::kConstant) {
    const float value = in.fixed<float>("value");
    std::fill(out, out + n, value);
    return true;
  }
  if (form != Form::kStored) return false;
  std::memcpy(out, in.take(uint64_t(n) * 4, "stored values"), n * 4);
  return true;
}

}  // namespace laconic
