#include "sketch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "bytes.h"

namespace laconic {
namespace {

#include "bloom.inl"

constexpr size_t kChunk = 8192;  // entries that are looked at and then hashed, while they are in the cache
constexpr size_t kBatch = 64;    // entries whose cells are fetched while others are hashed

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

// Values in the order in which they are found, sorted into shelves of neighbouring positions, so that the
// vector is written once and in order.
template <typename C>
class Shelves {
 public:
  Shelves(const uint32_t* mask, size_t size) : size_(size), ends_((size + kShelf - 1) / kShelf) {
    size_t count = 0;
    for (size_t s = 0; s < ends_.size(); ++s) {
      const size_t last = std::min(size, (s + 1) * kShelf);
      ends_[s] = count;
      for (size_t w = s * kShelf / 32; w < (last + 31) / 32; ++w) count += size_t(__builtin_popcount(mask[w]));
    }
    count_ = count;
  }

  size_t count() const { return count_; }

  void open() { found_.reset(new Found[count_]); }

  void put(uint32_t position, C value) { found_[ends_[position / kShelf]++] = {position, value}; }

  // After as many put() as bits of the mask.
  void write(C* out) const {
    size_t i = 0;
    for (size_t s = 0; s < ends_.size(); ++s) {
      std::fill(out + s * kShelf, out + std::min(size_, (s + 1) * kShelf), C(0));
      for (; i < ends_[s]; ++i) out[found_[i].position] = found_[i].value;
    }
  }

 private:
  static constexpr size_t kShelf = size_t(1) << 16;
  struct Found {
    uint32_t position;
    C value;
  };

  size_t size_, count_;
  std::vector<size_t> ends_;  // where the next value of each shelf goes
  std::unique_ptr<Found[]> found_;
};

// A cell with one entry is the value of that entry; without it, other cells may have one. The order decides
// nothing: what is left, and the values, are the same in any.
template <typename C>
class Peeling {
 public:
  using U = std::make_unsigned_t<C>;

  Peeling(const SketchLayout& layout, const C* cells) : layout_(layout), rests_(new Rest[layout.cells]) {
    for (size_t i = 0; i < layout.cells; ++i) rests_[i] = {0, 0, U(cells[i])};
  }

  void insert(const uint32_t* positions, size_t n) {
    Triple triples[kBatch];
    for (size_t i = 0; i < n; ++i) triples[i] = fetch(positions[i]);
    for (size_t i = 0; i < n; ++i)
      for (const size_t c : triples[i].cell) {
        rests_[c].positions ^= positions[i];
        ++rests_[c].count;
      }
    left_ += n;
  }

  // Returns how many entries are left. What a segment sets off stays near it, in the cache.
  uint64_t peel(Shelves<C>& shelves) {
    for (size_t start = 0; start < layout_.cells; start += layout_.length) {
      const size_t end = std::min(layout_.cells, start + layout_.length);
      for (size_t c = start; c < end; ++c)
        if (rests_[c].count == 1) ready_.push_back(c);
      for (size_t done = 0; done < ready_.size();) done += take(done, shelves);
      ready_.clear();
    }
    return left_;
  }

  bool explained() const {
    U any = 0;
    for (size_t i = 0; i < layout_.cells; ++i) any |= rests_[i].sum;
    return any == 0;
  }

 private:
  struct Rest {
    uint32_t positions;  // of the entries that are left in the cell, exclusive or: with one, its position
    uint32_t count;      // of these entries
    U sum;               // of their values
  };

  Triple fetch(uint32_t position) const {
    const Triple triple = cells_of(layout_, position);
    for (const size_t c : triple.cell) __builtin_prefetch(&rests_[c], 1);
    return triple;
  }

  // The next batch of cells that had one entry when they were noted; some have lost it since. Returns how many.
  size_t take(size_t done, Shelves<C>& shelves) {
    const size_t n = std::min(kBatch, ready_.size() - done);
    Triple triples[kBatch];
    size_t from[kBatch];
    for (size_t i = 0; i < n; ++i) {
      from[i] = ready_[done + i];
      triples[i] = fetch(rests_[from[i]].positions);
    }
    for (size_t i = 0; i < n; ++i) {
      if (rests_[from[i]].count != 1) continue;
      const uint32_t position = rests_[from[i]].positions;
      const U value = rests_[from[i]].sum;
      shelves.put(position, C(value));
      --left_;
      for (const size_t c : triples[i].cell) {
        Rest& rest = rests_[c];
        rest.positions ^= position;
        rest.sum = U(rest.sum - value);
        if (--rest.count == 1) ready_.push_back(c);
      }
    }
    return n;
  }

  const SketchLayout& layout_;
  std::unique_ptr<Rest[]> rests_;
  std::vector<size_t> ready_;
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
  uint32_t bits[kChunk / 32], positions[kChunk];
  uint64_t largest = 0;
  for (size_t start = 0; start < layout.size; start += kChunk) {
    const size_t n = std::min(kChunk, layout.size - start);
    uint32_t* const mask = layout.probes ? bits : index + start / 32;
    largest = std::max(largest, nonzero(kernels, x + start, n, mask));
    if (layout.segments == 0) {
      for (size_t i = 0; i < n; ++i) sums[start + i] = U(x[start + i]);
      continue;
    }
    size_t found = 0;
    for_each_bit(mask, (n + 31) / 32, uint32_t(start), [&](uint32_t position) { positions[found++] = position; });
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
  Shelves<C> shelves(mask, layout.size);
  if (shelves.count() > layout.cells) return shelves.count();  // more unknowns than equations: no need to try
  Peeling<C> peeling(layout, cells);
  uint32_t batch[kBatch];
  size_t filled = 0;
  for_each_bit(mask, (layout.size + 31) / 32, 0, [&](uint32_t position) {
    batch[filled++] = position;
    if (filled < kBatch) return;
    peeling.insert(batch, filled);
    filled = 0;
  });
  peeling.insert(batch, filled);
  shelves.open();
  const uint64_t left = peeling.peel(shelves);
  if (left) return left;
  expect_explained(peeling.explained());
  shelves.write(out);
  return 0;
}

#define LACONIC_SKETCH(C)                                                                                       \
  template uint64_t encode_sketch<int32_t, C>(const Kernels&, const SketchLayout&, const int32_t*, C*, uint32_t*); \
  template uint64_t encode_sketch<int64_t, C>(const Kernels&, const SketchLayout&, const int64_t*, C*, uint32_t*); \
  template uint64_t decode_sketch<C>(const Kernels&, const SketchLayout&, const C*, const uint32_t*, C*);
LACONIC_SKETCH(int32_t)
LACONIC_SKETCH(int64_t)

}  // namespace laconic
