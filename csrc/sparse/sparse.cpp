#include "sparse.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "bytes.h"
#include "positions.h"

namespace laconic {
namespace {

constexpr size_t kChunkBitWords = kChunkWords / 64;

size_t chunks_of(size_t words) { return (words + kChunkWords - 1) / kChunkWords; }

// One bit a unit from one bit a word.
void fold_bits(uint64_t* bits, size_t words, size_t unit) {
  if (unit == 1) return;
  const size_t each = 64 / unit;
  for (size_t w = 0; w * 64 < words; ++w) {
    uint64_t from = bits[w], folded = 0;
    const uint64_t mask = unit == 64 ? ~uint64_t(0) : (uint64_t(1) << unit) - 1;
    for (size_t k = 0; k < each; ++k) folded |= uint64_t((from >> k * unit & mask) != 0) << k;
    const size_t at = w * each;
    if (at % 64 == 0) bits[at / 64] = folded;  // at or before w: what was there has been read
    else bits[at / 64] |= folded << at % 64;
  }
  const size_t units = (words + unit - 1) / unit, full = ((words + 63) / 64 * each + 63) / 64;
  for (size_t w = (units + 63) / 64; w < full; ++w) bits[w] = 0;
}

// bits[offset + i] |= part[i]
void or_bits(uint64_t* bits, size_t offset, const uint64_t* part, size_t n) {
  uint64_t* const to = bits + offset / 64;
  const size_t shift = offset % 64;
  for (size_t w = 0; w * 64 < n; ++w) {
    to[w] |= part[w] << shift;
    if (shift && part[w] >> (64 - shift)) to[w + 1] |= part[w] >> (64 - shift);
  }
}

size_t count_bits(const uint64_t* bits, size_t places) {
  size_t n = 0;
  for (size_t w = 0; w * 64 < places; ++w) n += size_t(__builtin_popcountll(bits[w]));
  return n;
}

template <typename Visit>
void for_each_bit(const uint64_t* bits, size_t places, const Visit& visit) {
  for (size_t w = 0; w * 64 < places; ++w)
    for (uint64_t rest = bits[w]; rest; rest &= rest - 1) visit(w * 64 + size_t(__builtin_ctzll(rest)));
}

// Writes the counts of all chunks in front and the places of one chunk after the other behind them.
class IndexWriter {
 public:
  IndexWriter(uint8_t* out, size_t words) : out_(out), counts_(out), at_(out + 2 * chunks_of(words)) {}

  void chunk(const uint64_t* bits, size_t places, size_t taken) {
    const auto count = uint16_t(taken);
    std::memcpy(counts_, &count, 2);
    counts_ += 2;
    encode_positions(bits, places, taken, at_);
    at_ += positions_bytes(places, taken);
  }

  size_t size() const { return size_t(at_ - out_); }

 private:
  uint8_t* out_;
  uint8_t* counts_;
  uint8_t* at_;
};

// The inverse.
class IndexReader {
 public:
  IndexReader(const uint8_t* data, size_t size, size_t words)
      : counts_(data, size, data + size), places_(data, size, data + size) {
    places_.take(2 * chunks_of(words), "index");
  }

  // The units of the next chunk, in `places_of`; returns how many.
  size_t chunk(size_t places, uint16_t* places_of) {
    const size_t taken = counts_.fixed<uint16_t>("index");
    expect(taken <= places, "index: a chunk of more units than it has places for");
    decode_positions(places_.take(positions_bytes(places, taken), "index"), places, taken, places_of);
    return taken;
  }

  void finish() const { expect(places_.left() == 0, "index: bytes after its end"); }

 private:
  Reader counts_, places_;
};

// An index and the values that belong to it.
template <typename T>
class PartReader {
 public:
  PartReader(const SparsePart<T>& part, size_t words)
      : index_(part.index, part.index_bytes, words), values_(part.values), left_(part.words) {}

  size_t chunk(size_t places, uint16_t* places_of) { return index_.chunk(places, places_of); }

  const T* values(size_t words) {
    expect(words <= left_, "values: fewer than the index says");
    left_ -= words;
    const T* const here = values_;
    values_ += words;
    return here;
  }

  void finish() const {
    index_.finish();
    expect(left_ == 0, "values: more than the index says");
  }

 private:
  IndexReader index_;
  const T* values_;
  size_t left_;
};

// Words of units at these places of a chunk; the last unit may be cut.
size_t words_of(const uint16_t* places, size_t taken, size_t units, size_t unit, size_t here) {
  const bool cut = taken && places[taken - 1] == units - 1 && here % unit;
  return taken * unit - (cut ? unit - here % unit : 0);
}

template <typename T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return T(Unsigned(a) + Unsigned(b));
  } else {
    return a + b;
  }
}

// Sums chunk after chunk in a buffer that stays in the cache, and hands each to `store(first, bits, units, sums)`,
// which puts the words it takes back to 0.
template <typename T, typename Store>
void sum_chunks(const SparsePart<T>* parts, size_t count, size_t words, size_t unit, const Store& store) {
  std::vector<PartReader<T>> readers;
  for (size_t p = 0; p < count; ++p) readers.emplace_back(parts[p], words);
  std::vector<T> sums(std::min(words, kChunkWords));
  std::vector<uint16_t> places(std::min(words, kChunkWords) / unit + 1);
  uint64_t bits[kChunkBitWords];
  for (size_t first = 0; first < words; first += kChunkWords) {
    const size_t here = std::min(kChunkWords, words - first), units = (here + unit - 1) / unit;
    std::memset(bits, 0, (units + 63) / 64 * 8);
    for (PartReader<T>& reader : readers) {
      const size_t taken = reader.chunk(units, places.data());
      if (taken == 0) continue;
      const T* values = reader.values(words_of(places.data(), taken, units, unit, here));
      for (size_t i = 0; i < taken; ++i) {
        const size_t place = places[i];
        bits[place / 64] |= uint64_t(1) << place % 64;
        T* const sum = sums.data() + place * unit;
        const size_t width = unit == 1 ? 1 : std::min(unit, here - place * unit);
        for (size_t k = 0; k < width; ++k) sum[k] = add(sum[k], values[k]);
        values += width;
      }
    }
    store(first, here, bits, units, sums.data());
  }
  for (const PartReader<T>& reader : readers) reader.finish();
}

// Moves the units that are there from `x` to `values`, which is returned behind the last; they are 0 then if `clear`.
template <bool clear, typename T, typename X>
T* take_units(X* x, size_t words, size_t unit, const uint64_t* bits, T* values) {
  if (unit == 1) {
    for_each_bit(bits, words, [&](size_t i) {
      *values++ = x[i];
      if constexpr (clear) x[i] = 0;
    });
    return values;
  }
  for_each_bit(bits, (words + unit - 1) / unit, [&](size_t place) {
    const size_t start = place * unit, width = std::min(unit, words - start);
    std::memcpy(values, x + start, width * sizeof(T));
    if constexpr (clear) std::memset(x + start, 0, width * sizeof(T));
    values += width;
  });
  return values;
}

}  // namespace

size_t sparse_index_room(size_t words, size_t unit) {
  const size_t units = (words + unit - 1) / unit;
  return chunks_of(words) * 3 + units / 8 + 1;  // a chunk's places are at most a bitmap
}

template <typename T>
SparseSize compact(const Kernels& kernels, const T* x, size_t words, size_t unit, uint8_t* index, T* values) {
  IndexWriter writer(index, words);
  T* at = values;
  uint64_t bits[kChunkBitWords];
  for (size_t first = 0; first < words; first += kChunkWords) {
    const size_t here = std::min(kChunkWords, words - first), units = (here + unit - 1) / unit;
    if constexpr (sizeof(T) == 4)
      kernels.nonzero_bits32(reinterpret_cast<const uint32_t*>(x + first), here, bits);
    else
      kernels.nonzero_bits64(reinterpret_cast<const uint64_t*>(x + first), here, bits);
    fold_bits(bits, here, unit);
    writer.chunk(bits, units, count_bits(bits, units));
    at = take_units<false>(x + first, here, unit, bits, at);
  }
  return {writer.size(), size_t(at - values)};
}

SparseSize compact_large(const Kernels& kernels, float* gradient, float* memory, const Thresholds& layers,
                         uint8_t* index, float* values, int64_t* counts) {
  std::fill_n(counts, layers.layers, 0);
  const size_t words = size_t(layers.bounds[layers.layers]);
  IndexWriter writer(index, words);
  float* at = values;
  uint64_t bits[kChunkBitWords], part[kChunkBitWords];
  size_t layer = 0;
  for (size_t first = 0; first < words; first += kChunkWords) {
    const size_t here = std::min(kChunkWords, words - first);
    std::memset(bits, 0, (here + 63) / 64 * 8);
    for (size_t begin = first; begin < first + here;) {
      while (size_t(layers.bounds[layer + 1]) <= begin) ++layer;
      const size_t end = std::min(first + here, size_t(layers.bounds[layer + 1]));
      kernels.large_bits(gradient + begin, memory + begin, end - begin, layers.thresholds[layer], part);
      or_bits(bits, begin - first, part, end - begin);
      counts[layer] += int64_t(count_bits(part, end - begin));
      begin = end;
    }
    writer.chunk(bits, here, count_bits(bits, here));
    at = take_units<true>(memory + first, here, 1, bits, at);
  }
  return {writer.size(), size_t(at - values)};
}

template <typename T>
void place_sum(const SparsePart<T>* parts, size_t count, size_t words, size_t unit, T* out) {
  sum_chunks(parts, count, words, unit, [=](size_t first, size_t here, const uint64_t* bits, size_t units, T* sums) {
    T* const chunk = out + first;
    for_each_bit(bits, units, [=](size_t place) {
      for (size_t i = place * unit; i < std::min(place * unit + unit, here); ++i) {
        chunk[i] = sums[i];
        sums[i] = 0;
      }
    });
  });
}

template <typename T>
SparseSize compact_sum(const SparsePart<T>* parts, size_t count, size_t words, size_t unit, uint8_t* index,
                       T* values) {
  IndexWriter writer(index, words);
  T* at = values;
  sum_chunks(parts, count, words, unit, [&](size_t, size_t here, const uint64_t* bits, size_t units, T* sums) {
    writer.chunk(bits, units, count_bits(bits, units));
    at = take_units<true>(sums, here, unit, bits, at);
  });
  return {writer.size(), size_t(at - values)};
}

#define LACONIC_SPARSE(T)                                                                                   \
  template SparseSize compact<T>(const Kernels&, const T*, size_t, size_t, uint8_t*, T*);                   \
  template void place_sum<T>(const SparsePart<T>*, size_t, size_t, size_t, T*);                             \
  template SparseSize compact_sum<T>(const SparsePart<T>*, size_t, size_t, size_t, uint8_t*, T*);
LACONIC_SPARSE(float)
LACONIC_SPARSE(double)
LACONIC_SPARSE(int32_t)
LACONIC_SPARSE(int64_t)

}  // namespace laconic
