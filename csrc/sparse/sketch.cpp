#include "sketch.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "bytes.h"
#include "huge_array.h"

namespace laconic {
namespace {

#include "bloom.inl"

constexpr size_t kChunk = 8192;   // entries that are looked at and then hashed, while they are in the cache
constexpr size_t kShelf = 65536;  // entries that are written together, in the cache
constexpr size_t kBatch = 64;     // entries whose cells are fetched while others are hashed

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

template <typename X, typename U>
void add_to_cells(const SketchLayout& layout, const X* x, const uint32_t* positions, size_t n, U* sums) {
  Triple triples[kBatch];
  for (size_t i = 0; i < n; ++i) {
    triples[i] = cells_of(layout, positions[i]);
    for (const size_t c : triples[i].cell) __builtin_prefetch(sums + c, 1);
  }
  for (size_t i = 0; i < n; ++i)
    for (const size_t c : triples[i].cell) sums[c] = U(sums[c] + U(x[positions[i]]));
}

BloomFilter filter_of(const SketchLayout& layout, const uint32_t* words) {
  BloomFilter filter{words, layout.words, layout.probes, {}};
  for (uint32_t p = 0; p < layout.probes; ++p) filter.keys[p] = uint32_t(mix(layout.key + ~uint64_t(p)));
  return filter;
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

// How many bits are set before every stretch of kShelf positions, and in all of them.
std::vector<size_t> count_bits(const Kernels& kernels, const uint32_t* mask, size_t size) {
  std::vector<size_t> counts{0};
  for (size_t start = 0; start < size; start += kShelf)
    counts.push_back(counts.back() + kernels.sketch.count_bits(mask + start / 32, (std::min(kShelf, size - start) + 31) / 32));
  return counts;
}

// Values in the order in which they are found, sorted onto shelves of neighboring positions, so that the
// vector is written once and in order.
template <typename C>
class Shelves {
 public:
  explicit Shelves(std::vector<size_t> starts) : ends_(std::move(starts)), found_(ends_.back()) {}

  void put(uint32_t position, C value) { found_[ends_[position / kShelf]++] = {position, value}; }

  // After one put() for every position that was counted.
  void write(C* out, size_t size) {
    size_t i = 0;
    for (size_t start = 0; start < size; start += kShelf) {
      std::fill(out + start, out + std::min(size, start + kShelf), C(0));
      for (; i < ends_[start / kShelf]; ++i) out[found_[i].position] = found_[i].value;
    }
  }

 private:
  struct Found {
    uint32_t position;
    C value;
  };

  std::vector<size_t> ends_;  // where the next value of each shelf goes
  HugeArray<Found> found_;
};

// A cell with one entry is the value of that entry; without it, other cells may have one. The order decides
// nothing: what is left, and the values, are the same in any.
template <typename C>
class Peeling {
 public:
  using U = std::make_unsigned_t<C>;

  Peeling(const SketchLayout& layout, const C* cells)
      : layout_(layout), left_in_(layout.cells), sums_(layout.cells), ready_(layout.cells + 1) {
    std::memset(left_in_.data(), 0, layout.cells * sizeof(uint64_t));
    std::memcpy(sums_.data(), cells, layout.cells * sizeof(C));
  }

  void insert(const uint32_t* positions, size_t n) {
    Triple triples[kBatch];
    for (size_t i = 0; i < n; ++i) {
      triples[i] = cells_of(layout_, positions[i]);
      for (const size_t c : triples[i].cell) __builtin_prefetch(&left_in_[c], 1);
    }
    for (size_t i = 0; i < n; ++i)
      for (const size_t c : triples[i].cell) left_in_[c] += entry(positions[i]);
    left_ += n;
  }

  // Returns how many entries are left. What a segment sets off stays near it, in the cache.
  uint64_t peel(Shelves<C>& shelves) {
    for (size_t start = 0; start < layout_.cells; start += layout_.length) {
      const size_t end = std::min(layout_.cells, start + layout_.length);
      noted_ = 0;
      for (size_t c = start; c < end; ++c) note(c);
      for (size_t done = 0; done < noted_;) done += take(done, shelves);
    }
    return left_;
  }

  bool explained() const {
    U any = 0;
    for (size_t i = 0; i < layout_.cells; ++i) any |= sums_[i];
    return any == 0;
  }

 private:
  // What one entry adds to a cell's counter: 1 below, its position above. A counter of 1 entry shows which.
  static uint64_t entry(uint32_t position) { return uint64_t(position) << 32 | 1; }
  static bool is_one(uint64_t counter) { return uint32_t(counter) == 1; }

  // Without a branch: no guess would be good. A cell gets down to one entry once, so there is room for all.
  void note(size_t c) {
    ready_[noted_] = uint32_t(c);
    noted_ += is_one(left_in_[c]);
  }

  // The next batch of cells that had one entry when they were noted; some have lost it since. Returns how many.
  size_t take(size_t done, Shelves<C>& shelves) {
    const size_t n = std::min(kBatch, noted_ - done);
    Triple triples[kBatch];
    for (size_t i = 0; i < n; ++i) {
      triples[i] = cells_of(layout_, uint32_t(left_in_[ready_[done + i]] >> 32));
      for (const size_t c : triples[i].cell) {
        __builtin_prefetch(&left_in_[c], 1);
        __builtin_prefetch(&sums_[c], 1);
      }
    }
    for (size_t i = 0; i < n; ++i) {
      const size_t from = ready_[done + i];
      const uint64_t counter = left_in_[from];
      if (!is_one(counter)) continue;
      const U value = sums_[from];
      shelves.put(uint32_t(counter >> 32), C(value));
      --left_;
      for (const size_t c : triples[i].cell) {
        left_in_[c] -= counter;
        sums_[c] = U(sums_[c] - value);
        note(c);
      }
    }
    return n;
  }

  const SketchLayout& layout_;
  HugeArray<uint64_t> left_in_;  // of a cell: counters of the entries that are not peeled yet
  HugeArray<U> sums_;            // and the sum of their values
  HugeArray<uint32_t> ready_;
  size_t noted_ = 0;
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
  uint32_t bits[kChunk / 32], positions[kChunk + 8];
  uint64_t largest = 0;
  for (size_t start = 0; start < layout.size; start += kChunk) {
    const size_t n = std::min(kChunk, layout.size - start);
    uint32_t* const mask = layout.probes ? bits : index + start / 32;
    largest = std::max(largest, nonzero(kernels, x + start, n, mask));
    if (layout.segments == 0) {
      for (size_t i = 0; i < n; ++i) sums[start + i] = U(x[start + i]);
      continue;
    }
    const size_t found = kernels.sketch.list_bits(mask, (n + 31) / 32, uint32_t(start), positions);
    for (size_t i = 0; i < found; i += kBatch) add_to_cells(layout, x, positions + i, std::min(kBatch, found - i), sums);
    for (uint32_t p = 0; p < filter.probes; ++p)
      for (size_t i = 0; i < found; ++i) {
        const BloomProbe probe = bloom_probe(filter.keys[p], filter.size, positions[i]);
        index[probe.word] |= probe.bits;
      }
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
  std::vector<size_t> counts = count_bits(kernels, mask, layout.size);
  if (counts.back() > layout.cells) return counts.back();  // more unknowns than equations: no need to try
  Shelves<C> shelves(std::move(counts));
  Peeling<C> peeling(layout, cells);
  uint32_t positions[kChunk + 8];
  for (size_t start = 0; start < layout.size; start += kChunk) {
    const size_t words = (std::min(kChunk, layout.size - start) + 31) / 32;
    const size_t found = kernels.sketch.list_bits(mask + start / 32, words, uint32_t(start), positions);
    for (size_t i = 0; i < found; i += kBatch) peeling.insert(positions + i, std::min(kBatch, found - i));
  }
  const uint64_t left = peeling.peel(shelves);
  if (left) return left;
  expect_explained(peeling.explained());
  shelves.write(out, layout.size);
  return 0;
}

#define LACONIC_SKETCH(C)                                                                                       \
  template uint64_t encode_sketch<int32_t, C>(const Kernels&, const SketchLayout&, const int32_t*, C*, uint32_t*); \
  template uint64_t encode_sketch<int64_t, C>(const Kernels&, const SketchLayout&, const int64_t*, C*, uint32_t*); \
  template uint64_t decode_sketch<C>(const Kernels&, const SketchLayout&, const C*, const uint32_t*, C*);
LACONIC_SKETCH(int32_t)
LACONIC_SKETCH(int64_t)

}  // namespace laconic
