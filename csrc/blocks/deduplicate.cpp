#include "deduplicate.h"

#include <algorithm>
#include <cstring>

namespace laconic {
namespace {

constexpr uint64_t kA = 0x9e3779b97f4a7c15u, kB = 0xd1b54a32d192ed03u;
constexpr uint32_t kCountClip = 255;

uint64_t fold(uint64_t a, uint64_t b) {
  const __uint128_t p = __uint128_t(a) * b;
  return uint64_t(p) ^ uint64_t(p >> 64);
}

uint64_t load(const uint8_t* p, size_t size) {
  uint64_t v = 0;
  std::memcpy(&v, p, size);
  return v;
}

}  // namespace

uint64_t hash_row(const uint8_t* p, size_t size) {
  uint64_t a = kA ^ size, b = kB;
  for (; size >= 32; p += 32, size -= 32) {
    a = fold(load(p, 8) ^ a ^ kB, load(p + 8, 8) ^ kA);
    b = fold(load(p + 16, 8) ^ b ^ kA, load(p + 24, 8) ^ kB);
  }
  for (; size >= 8; p += 8, size -= 8) a = fold(load(p, 8) ^ a, kB);
  if (size) b = fold(load(p, size) ^ b, kA);
  return fold(a ^ kB, b ^ kA);
}

namespace {

constexpr size_t kFilterRows = size_t(1) << 14;  // from here on the table of slots leaves the nearest caches

// Marks, in a bit per row, which rows may have a double: those that share a bucket of a bitmap with
// another one. In a block without duplicates that is one row in sixteen, and only those meet the table.
void find_candidates(Distinct& d, size_t n) {
  size_t buckets = 64;
  while (buckets < 16 * n) buckets *= 2;
  const size_t mask = buckets - 1;
  const auto bit_of = [&](size_t i) { return d.hashes[i] >> 20 & mask; };  // other bits than the slots use first
  d.seen.assign(buckets / 64, 0);
  d.again.assign(buckets / 64, 0);
  for (size_t i = 0; i < n; ++i) {
    const size_t at = bit_of(i);
    const uint64_t bit = uint64_t(1) << (at & 63);
    d.again[at >> 6] |= d.seen[at >> 6] & bit;
    d.seen[at >> 6] |= bit;
  }
  d.candidate.resize(n);
  for (size_t i = 0; i < n; ++i) d.candidate[i] = uint8_t(d.again[bit_of(i) >> 6] >> (bit_of(i) & 63) & 1);
}

constexpr size_t kFewRows = 64;

// Whether few rows differ, as far as a small bitmap can tell: no two hashes share a bit.
bool surely_distinct(const uint64_t* hashes, size_t n) {
  uint64_t seen[64] = {}, again = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t bit = uint64_t(1) << (hashes[i] & 63);
    uint64_t& word = seen[hashes[i] >> 6 & 63];
    again |= word & bit;
    word |= bit;
  }
  return !again;
}

// Fills ids (per row) and first, counts (per distinct row, as they come).
void find_ids(const uint8_t* rows, size_t n, size_t row_bytes, Distinct& d) {
  const bool filtered = n >= kFilterRows;
  size_t entries = n;
  if (filtered) {
    find_candidates(d, n);
    entries = size_t(std::count(d.candidate.begin(), d.candidate.end(), uint8_t(1)));
  }
  size_t size = 16;
  while (size < 2 * entries) size *= 2;
  const size_t mask = size - 1;
  d.slots.assign(size, 0);  // upper half: bits of the hash; lower half: id + 1
  d.ids.resize(n);
  d.first.resize(n);
  d.counts.resize(n);
  uint32_t distinct = 0;
  const auto add = [&](size_t i) {
    d.ids[i] = distinct;
    d.first[distinct] = uint32_t(i);
    d.counts[distinct] = 1;
    return ++distinct;
  };
  constexpr size_t kAhead = 8;  // rows between the prefetch of a slot and its use
  for (size_t i = 0; i < n; ++i) {
    if (filtered && !d.candidate[i]) {
      add(i);
      continue;
    }
    if (i + kAhead < n) __builtin_prefetch(&d.slots[d.hashes[i + kAhead] & mask]);
    const uint64_t hash = d.hashes[i], tag = hash & 0xffffffff00000000u;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      const uint64_t slot = d.slots[at];
      if (!slot) {
        d.slots[at] = tag | add(i);
        break;
      }
      const uint32_t id = uint32_t(slot) - 1;
      if ((slot & 0xffffffff00000000u) == tag &&
          !std::memcmp(rows + size_t(d.first[id]) * row_bytes, rows + i * row_bytes, row_bytes)) {
        d.ids[i] = id;
        ++d.counts[id];
        break;
      }
    }
  }
  d.first.resize(distinct);
  d.counts.resize(distinct);
}

}  // namespace

size_t find_distinct(const uint8_t* rows, size_t n, size_t row_bytes, Distinct& d) {
  d.hashes.resize(n);
  for (size_t i = 0; i < n; ++i) d.hashes[i] = hash_row(rows + i * row_bytes, row_bytes);
  if (n <= kFewRows && surely_distinct(d.hashes.data(), n)) return n;
  find_ids(rows, n, row_bytes, d);
  const size_t distinct = d.first.size();
  if (distinct == n) return distinct;  // nothing to number
  size_t start[kCountClip + 2] = {};  // by falling count: position of the first row of each
  const auto bucket = [&](uint32_t count) { return kCountClip - (count < kCountClip ? count : kCountClip); };
  for (const uint32_t count : d.counts) ++start[bucket(count) + 1];
  d.single = uint32_t(start[bucket(1) + 1]);
  d.repeated = uint32_t(distinct) - d.single;
  for (size_t b = 0; b < kCountClip; ++b) start[b + 1] += start[b];
  d.number.resize(distinct);
  for (size_t id = 0; id < distinct; ++id) d.number[id] = uint32_t(start[bucket(d.counts[id])]++);

  d.flags.resize(n);
  d.indices.clear();
  for (size_t i = 0; i < n; ++i) {
    const uint32_t number = d.number[d.ids[i]];
    d.flags[i] = number >= d.repeated;
    if (!d.flags[i]) d.indices.push_back(number);
  }
  d.counts.assign(d.first.begin(), d.first.end());
  for (size_t id = 0; id < distinct; ++id) d.first[d.number[id]] = d.counts[id];
  return distinct;
}

}  // namespace laconic
