#include "coding.h"

#include <algorithm>
#include <cstring>

namespace laconic {
namespace {

constexpr size_t kFewSymbols = 48;  // too few to clear several counters for each

int bit_width(uint64_t x) { return x ? 64 - __builtin_clzll(x) : 0; }

// Bytes that directory, stream sizes and padding add, roughly, in bits.
uint64_t overhead_bits(uint64_t n) { return n < kManyStreams ? 16 : 64 + 128 * (n / kChunkSymbols + 1); }

// What symbols occur how often, as codes are priced with it.
struct Weights {
  explicit Weights(const Histogram& h, uint64_t n) : histogram(h), few(n <= kFew), span(live_span(h)) {
    if (few) std::copy(h.begin(), h.end(), counts);
  }

  // Bits that all symbols take, or kMissing and more where one has no code.
  uint64_t cost_bits(const StaticCode& code) const {
    if (!few) {
      uint64_t bits = 0;
      for (size_t s = span.first; s <= span.last; ++s)
        bits += histogram[s] * (code.lengths[s] ? uint64_t(code.lengths[s]) : kMissing);
      return bits;
    }
    int32_t bits = 0;  // products of 16 bits each are added by one instruction
    int16_t missing = 0;
    const size_t from = span.first & ~size_t(15), to = (span.last | 15) + 1;
    for (size_t s = from; s < to; ++s) bits += int32_t(counts[s]) * code.short_lengths[s];
    for (size_t s = from; s < to; ++s) missing = int16_t(missing | (counts[s] & code.missing[s]));
    return missing ? kMissing : uint64_t(bits);
  }

  static constexpr uint64_t kFew = 32767;  // symbols that a short integer can count

  const Histogram& histogram;
  bool few;
  Span span;
  int16_t counts[256];  // if they are few
};

// The same of few symbols, one after the other.
struct FewSymbols {
  FewSymbols(const uint8_t* bytes, size_t count) : symbols(bytes), n(count) {
    uint64_t seen[4] = {};
    for (size_t i = 0; i < n; ++i) {
      last = std::max(last, size_t(symbols[i]));
      seen[symbols[i] / 64] |= uint64_t(1) << (symbols[i] % 64);
    }
    for (const uint64_t some : seen) live += uint64_t(__builtin_popcountll(some));
  }

  uint64_t cost_bits(const StaticCode& code) const {
    uint64_t bits = 0;
    int missing = 0;
    for (size_t i = 0; i < n; ++i) {
      bits += code.lengths[symbols[i]];
      missing |= code.missing[symbols[i]];
    }
    return missing ? kMissing : bits;
  }

  // In bits, rounded down: as if all symbols but one occurred once.
  uint64_t least_entropy() const {
    return (entropy_term(uint32_t(n)) - entropy_term(uint32_t(n - live + 1))) >> 16;
  }

  const uint8_t* symbols;
  size_t n, last = 0;
  uint64_t live = 0;
};

uint64_t custom_table_bits(size_t last, uint64_t live) { return 8 + uint64_t(last + 1) + 4 * std::max<uint64_t>(live, 2); }

template <typename Weights>
void consider_static(Coding& best, const Weights& weights, int log_group, Shape shape, uint64_t mean_q8,
                     uint64_t fixed_cost) {
  const auto& codes = static_codes(log_group, shape);
  int level = 0;
  while (level < kLevels - 1 && codes.means_q8[size_t(level)] < mean_q8) ++level;
  // the two whose means enclose this one; a wider one only if they lack a symbol
  bool covered = false;
  for (int l = std::max(level - 1, 0); l <= std::min(level + 1, kLevels - 1); ++l) {
    if (l > level && covered) break;
    const uint64_t cost = weights.cost_bits(codes[size_t(l)]);
    covered |= cost < kMissing;
    if (cost >= kMissing || cost + fixed_cost >= best.bits) continue;
    best.mode = Mode::kStatic;
    best.shape = shape;
    best.level = l;
    best.bits = cost + fixed_cost;
  }
}

// A code made for this histogram, if what it can save exceeds the bits of its table.
void consider_custom(Coding& best, const Weights& weights, uint64_t fixed_cost) {
  const Histogram& histogram = weights.histogram;
  const auto [first, last] = weights.span;
  uint64_t live = 0;
  for (size_t s = first; s <= last; ++s) live += histogram[s] > 0;
  const uint64_t table_cost = custom_table_bits(last, live) + fixed_cost;
  if ((entropy_q16(&histogram[first], last - first + 1) >> 16) + table_cost >= best.bits) return;
  Lengths lengths;
  if (live == 1) {  // a code needs two symbols
    Histogram counts = histogram;
    counts[first ? 0 : 1] = 1;
    lengths = code_lengths(counts);
  } else {
    lengths = code_lengths(histogram);
  }
  uint64_t cost = table_cost;
  for (size_t s = first; s <= last; ++s) cost += uint64_t(histogram[s]) * lengths[s];
  if (cost >= best.bits) return;
  best.mode = Mode::kCustom;
  best.lengths = lengths;
  best.bits = cost;
}

// With values up to `last`; groups are not packed.
Coding packed_coding(size_t last, uint64_t n, int log_group, int low_bits) {
  Coding coding;
  coding.log_group = log_group;
  coding.low_bits = low_bits;
  coding.bits = UINT64_MAX;
  if (log_group == 0) {
    coding.width = low_bits + bit_width(last);
    coding.bits = uint64_t(coding.width) * n + 8;
  }
  return coding;
}

template <int log_group>
void group_values(const uint32_t* values, size_t n, int low_bits, uint8_t* symbols) {
  constexpr size_t group = size_t(1) << log_group;
  constexpr int digit = 8 >> log_group;
  size_t i = 0;
  for (; i + group <= n; i += group) {
    unsigned symbol = 0;
    for (size_t k = 0; k < group; ++k) symbol |= values[i + k] >> low_bits << int(k) * digit;
    *symbols++ = uint8_t(symbol);
  }
  if (i == n) return;
  unsigned symbol = 0;
  for (size_t k = 0; i + k < n; ++k) symbol |= values[i + k] >> low_bits << int(k) * digit;
  *symbols = uint8_t(symbol);
}

}  // namespace

void count_symbols(const uint8_t* symbols, size_t n, Histogram& histogram) {
  if (n < kFewSymbols) {
    for (size_t i = 0; i < n; ++i) ++histogram[symbols[i]];
    return;
  }
  // Four counters each: neighbors are often equal, and would wait for each other. Short ones: there is little to clear.
  constexpr size_t kMost = 65528;
  for (size_t start = 0; start < n; start += kMost) {
    uint16_t lanes[4][256] = {};
    const uint8_t* const piece = symbols + start;
    const size_t count = std::min(kMost, n - start);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      uint64_t v;
      std::memcpy(&v, piece + i, 8);
      ++lanes[0][v & 255], ++lanes[1][v >> 8 & 255], ++lanes[2][v >> 16 & 255], ++lanes[3][v >> 24 & 255];
      ++lanes[0][v >> 32 & 255], ++lanes[1][v >> 40 & 255], ++lanes[2][v >> 48 & 255], ++lanes[3][v >> 56];
    }
    for (; i < count; ++i) ++lanes[0][piece[i]];
    // a lane counts at most a quarter and seven, so that two of them together still fit
    for (size_t s = 0; s < 256; ++s)
      histogram[s] += uint32_t(uint16_t(lanes[0][s] + lanes[1][s])) + uint16_t(lanes[2][s] + lanes[3][s]);
  }
}

Coding choose_coding(const Histogram& histogram, uint64_t n, int log_group, int low_bits, bool centered,
                     uint64_t mean_q8) {
  const Weights weights(histogram, n);
  // packed values count from the first where the caller centres them, otherwise from zero
  Coding best = packed_coding(weights.span.last - (centered ? weights.span.first : 0), n, log_group, low_bits);
  const uint64_t fixed_cost = 16 + overhead_bits(n) + uint64_t(low_bits) * n;
  if (centered) {
    consider_static(best, weights, log_group, Shape::kLaplace, mean_q8, fixed_cost);
    consider_static(best, weights, log_group, Shape::kNormal, mean_q8, fixed_cost);
  } else {
    consider_static(best, weights, log_group, Shape::kRanked, mean_q8, fixed_cost);
  }
  consider_custom(best, weights, fixed_cost);
  return best;
}

Coding choose_coding(const uint8_t* symbols, size_t n, int log_group, int low_bits, uint64_t mean_q8) {
  if (n && n < kFewSymbols) {
    const FewSymbols few(symbols, n);
    Coding best = packed_coding(few.last, n, log_group, low_bits);
    const uint64_t fixed_cost = 16 + overhead_bits(n) + uint64_t(low_bits) * n;
    consider_static(best, few, log_group, Shape::kRanked, mean_q8, fixed_cost);
    if (few.least_entropy() + custom_table_bits(few.last, few.live) + fixed_cost >= best.bits) return best;
  }
  Histogram histogram{};
  count_symbols(symbols, n, histogram);
  return choose_coding(histogram, n, log_group, low_bits, false, mean_q8);
}


size_t group_values(const uint32_t* values, size_t n, int log_group, int low_bits, std::vector<uint8_t>& symbols) {
  const size_t m = (n + (size_t(1) << log_group) - 1) >> log_group;
  if (symbols.size() < m) symbols.resize(m);
  constexpr decltype(&group_values<0>) by_group[] = {group_values<0>, group_values<1>, group_values<2>, group_values<3>};
  by_group[log_group](values, n, low_bits, symbols.data());
  return m;
}

Coding choose_for_values(const uint32_t* values, size_t n, uint32_t limit, std::vector<uint8_t>& scratch) {
  const int width = bit_width(limit - 1), low_bits = std::max(0, width - 8);
  int most = 3;
  while (most && width > 8 >> most) --most;
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) sum += values[i] >> low_bits;
  const uint64_t mean_q8 = n ? (sum << 8) / n : 0;
  Coding best;
  best.width = width;
  best.bits = uint64_t(width) * n + 8;
  // One value per symbol pays where the table of a group would be too large for so few values;
  // a one- or two-bit value has no cheaper code of its own.
  for (const int log_group : {most, 0}) {
    if (log_group == 0 && most >= 2) break;
    const size_t m = group_values(values, n, log_group, low_bits, scratch);
    const Coding coding = choose_coding(scratch.data(), m, log_group, low_bits, mean_q8);
    if (coding.bits < best.bits) best = coding;
    if (most == 0) break;
  }
  return best;
}

}  // namespace laconic
