#include "sketch.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "bytes.h"

namespace laconic {
namespace {

#include "bloom.inl"

constexpr size_t kChunk = 8192;  // entries that are looked at and then hashed, while they are in the cache

uint64_t mix(uint64_t h) {
  h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
  h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
  return h ^ h >> 33;
}

struct Triple {
  size_t cell[3];
};

Triple cells_of(const SketchLayout& layout, uint32_t position) {
  const uint64_t h = mix(position + layout.key), g = (h ^ h >> 29) * 0x9e3779b97f4a7c15u, length = layout.length;
  const uint64_t start = (g >> 32) * layout.segments >> 32;
  return {{size_t(start * length + (uint32_t(h) * length >> 32)),
           size_t((start + 1) * length + ((h >> 32) * length >> 32)),
           size_t((start + 2) * length + (uint32_t(g) * length >> 32))}};
}

BloomFilter filter_of(const SketchLayout& layout, const uint32_t* words) {
  BloomFilter filter{words, layout.words, layout.probes, {}};
  for (uint32_t p = 0; p < layout.probes; ++p) filter.keys[p] = uint32_t(mix(layout.key + ~uint64_t(p)));
  return filter;
}

template <typename Visit>
void for_each_bit(const uint32_t* mask, size_t words, uint32_t first, const Visit& visit) {
  for (size_t w = 0; w < words; ++w)
    for (uint32_t word = mask[w]; word; word &= word - 1)
      visit(first + uint32_t(32 * w) + uint32_t(__builtin_ctz(word)));
}

uint64_t nonzero(const Kernels& kernels, const int32_t* x, size_t n, uint32_t* mask) {
  return kernels.sketch.nonzero32(x, n, mask);
}
uint64_t nonzero(const Kernels& kernels, const int64_t* x, size_t n, uint32_t* mask) {
  return kernels.sketch.nonzero64(x, n, mask);
}

// Bits of the entries that a vector of this index may have; the index itself, or what the filter knows.
const uint32_t* candidates(const Kernels& kernels, const SketchLayout& layout, const uint32_t* index,
                           std::vector<uint32_t>& room) {
  if (!layout.probes) {
    const uint32_t last = layout.words ? index[layout.words - 1] : 0;
    expect(layout.size % 32 == 0 || last >> layout.size % 32 == 0, "index: bits beyond the last entry are set");
    return index;
  }
  room.resize((layout.size + 31) / 32);
  kernels.sketch.bloom_candidates(filter_of(layout, index), 0, layout.size, room.data());
  return room.data();
}

void expect_explained(bool truth) { expect(truth, "cells: no entries of the index add up to them"); }

template <typename C>
void decode_direct(const SketchLayout& layout, const C* cells, const uint32_t* index, C* out) {
  bool explained = true;
  for (size_t i = 0; i < layout.size; ++i) explained &= cells[i] == 0 || (index[i / 32] >> i % 32 & 1);
  expect_explained(explained);
  if (layout.size) std::memcpy(out, cells, layout.size * sizeof(C));
}

// What is left of a cell: the entries that are not peeled yet, and their sum.
template <typename U>
struct Rest {
  uint32_t positions;  // all of them, exclusive or: with one entry, its position
  uint32_t count;
  U sum;
};

template <typename C>
class Peeling {
 public:
  using U = std::make_unsigned_t<C>;

  Peeling(const SketchLayout& layout, const C* cells) : layout_(layout), rests_(layout.cells) {
    for (size_t i = 0; i < layout.cells; ++i) rests_[i] = {0, 0, U(cells[i])};
  }

  void insert(uint32_t position) {
    const Triple triple = cells_of(layout_, position);
    for (const size_t c : triple.cell) {
      rests_[c].positions ^= position;
      ++rests_[c].count;
    }
    ++left_;
  }

  // A cell with one entry is the value of that entry; without it, other cells may have one. The order decides
  // nothing: what is left, and the values, are the same in any.
  uint64_t peel(C* out) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < rests_.size(); ++i) {
      size_t c = i;
      for (;;) {
        if (rests_[c].count == 1) take(c, out, ready);
        if (ready.empty()) break;
        c = ready.back();
        ready.pop_back();
      }
    }
    return left_;
  }

  bool explained() const {
    U any = 0;
    for (const auto& rest : rests_) any |= rest.sum;
    return any == 0;
  }

 private:
  void take(size_t from, C* out, std::vector<size_t>& ready) {
    const uint32_t position = rests_[from].positions;
    const U value = rests_[from].sum;
    out[position] = C(value);
    --left_;
    const Triple triple = cells_of(layout_, position);
    for (const size_t c : triple.cell) {
      Rest<U>& rest = rests_[c];
      rest.positions ^= position;
      rest.sum = U(rest.sum - value);
      if (--rest.count == 1) ready.push_back(c);
    }
  }

  const SketchLayout& layout_;
  std::vector<Rest<U>> rests_;
  uint64_t left_ = 0;
};

}  // namespace

bool SketchLayout::valid() const {
  const uint64_t bitmap = (uint64_t(size) + 31) / 32;
  if (size > 0xffffffffu || probes > kMaxProbes || (probes ? words == 0 : words != bitmap)) return false;
  if (segments == 0) return cells == size && probes == 0;
  return length > 0 && (uint64_t(segments) + 2) * length <= cells && cells < size;
}

template <typename X, typename C>
uint64_t encode_sketch(const Kernels& kernels, const SketchLayout& layout, const X* x, C* cells, uint32_t* index) {
  using U = std::make_unsigned_t<C>;
  auto* const sums = reinterpret_cast<U*>(cells);
  std::fill(sums, sums + layout.cells, U(0));
  if (layout.probes) std::fill(index, index + layout.words, 0u);
  const BloomFilter filter = filter_of(layout, index);
  uint32_t bits[kChunk / 32];
  uint64_t largest = 0;
  for (size_t start = 0; start < layout.size; start += kChunk) {
    const size_t n = std::min(kChunk, layout.size - start);
    uint32_t* const mask = layout.probes ? bits : index + start / 32;
    largest = std::max(largest, nonzero(kernels, x + start, n, mask));
    if (layout.segments == 0) {
      for (size_t i = 0; i < n; ++i) sums[start + i] = U(x[start + i]);
      continue;
    }
    for_each_bit(mask, (n + 31) / 32, uint32_t(start), [&](uint32_t position) {
      const U value = U(x[position]);
      const Triple triple = cells_of(layout, position);
      for (const size_t c : triple.cell) sums[c] = U(sums[c] + value);
      for (uint32_t p = 0; p < filter.probes; ++p) {
        const BloomProbe probe = bloom_probe(filter.keys[p], filter.size, position);
        index[probe.word] |= probe.bits;
      }
    });
  }
  return largest;
}

template <typename C>
uint64_t decode_sketch(const Kernels& kernels, const SketchLayout& layout, const C* cells, const uint32_t* index,
                       C* out) {
  std::vector<uint32_t> room;
  const uint32_t* const mask = candidates(kernels, layout, index, room);
  if (layout.segments == 0) {
    decode_direct(layout, cells, mask, out);
    return 0;
  }
  const size_t words = (layout.size + 31) / 32;
  uint64_t count = 0;
  for (size_t w = 0; w < words; ++w) count += uint64_t(__builtin_popcount(mask[w]));
  if (count > layout.cells) return count;  // more unknowns than equations: no need to try
  std::fill(out, out + layout.size, C(0));
  Peeling<C> peeling(layout, cells);
  for_each_bit(mask, words, 0, [&](uint32_t position) { peeling.insert(position); });
  const uint64_t left = peeling.peel(out);
  if (left == 0) expect_explained(peeling.explained());
  return left;
}

#define LACONIC_SKETCH(C)                                                                                       \
  template uint64_t encode_sketch<int32_t, C>(const Kernels&, const SketchLayout&, const int32_t*, C*, uint32_t*); \
  template uint64_t encode_sketch<int64_t, C>(const Kernels&, const SketchLayout&, const int64_t*, C*, uint32_t*); \
  template uint64_t decode_sketch<C>(const Kernels&, const SketchLayout&, const C*, const uint32_t*, C*);
LACONIC_SKETCH(int32_t)
LACONIC_SKETCH(int64_t)

}  // namespace laconic
