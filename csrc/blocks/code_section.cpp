#include "code_section.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "numbers.h"
#include "packed_bits.h"

namespace laconic {
namespace {

constexpr uint64_t kFewBits = 24;      // and costs about this much

constexpr size_t kCountAll = size_t(1) << 13, kCountRun = 1024;

// How narrow codes become digits: value - minimum, 2^log_group to a symbol. Codes outside the
// window of 2^(8 >> log_group) are outliers. Sparse: no digits at all, only `minimum` and outliers.
struct Grouping {
  int log_group = 0;
  int minimum = -128;
  bool sparse = false;

  int width() const { return sparse ? 1 : 1 << (8 >> log_group); }
  int center() const { return minimum + width() / 2; }
};

void high_parts(const int16_t* codes, size_t n, int low_bits, uint8_t* parts) {
  for (size_t i = 0; i < n; ++i) parts[i] = uint8_t(int16_t(codes[i] >> low_bits) + 128);
}

// Calls run(first, length) for everything, or for evenly spread runs if that is too much.
template <typename Run>
void each_run(size_t n, const Run& run) {
  if (n <= kCountAll) return run(size_t(0), n);
  const size_t stride = kCountRun * ((n + kCountAll - 1) / kCountAll);
  for (size_t start = 0; start < n; start += stride) run(start, std::min(kCountRun, n - start));
}

void summarize(CodeCounts& c) {
  const Span span = live_span(c.by_code);
  c.low = int(span.first) - 128;
  c.high = int(span.last) - 128;
  c.entropy_q16 = laconic::entropy_q16(&c.by_code[span.first], span.last - span.first + 1);
  uint64_t before = 0;
  for (c.median = c.low; (before += c.by_code[size_t(c.median + 128)]) * 2 < c.counted;) ++c.median;
}

// How many codes a window holds and what they add to an entropy, as differences of sums over all smaller codes.
class WindowSums {
 public:
  explicit WindowSums(const CodeCounts& c) : counts_(c), origin_(c.low - kWidest) {
    const int span = c.high - c.low + 1;
    std::fill_n(below_, kWidest + 1, 0u);
    std::fill_n(terms_, kWidest + 1, uint64_t(0));
    const uint32_t* const by_code = &c.by_code[size_t(c.low + 128)];
    for (int i = 0; i < span; ++i) {
      below_[kWidest + i + 1] = below_[kWidest + i] + by_code[i];
      terms_[kWidest + i + 1] = terms_[kWidest + i] + entropy_term(by_code[i]);
    }
    std::fill_n(below_ + kWidest + span + 1, kWidest, below_[kWidest + span]);
    std::fill_n(terms_ + kWidest + span + 1, kWidest, terms_[kWidest + span]);
    all_terms_ = terms_[kWidest + span];
  }

  // The window of `width` codes around the median, or the first one that holds most if that loses much.
  int choose_minimum(int width, uint64_t* outside) const {
    const CodeCounts& c = counts_;
    const auto mass = [&](int from) { return below(from + width) - below(from); };
    const int centered = std::max(-128, std::min(c.median - width / 2, 128 - width));
    const uint64_t enough = mass(centered) + (c.counted >> 10);
    int best = centered;
    if (enough < c.counted) {
      uint64_t most = enough;
      for (int from = std::max(c.low - width + 1, -128); from <= std::min(c.high, 128 - width); ++from)
        if (mass(from) > most) most = mass(best = from);
    }
    *outside = c.counted - mass(best);
    return best;
  }

  // What the codes cost, in 2^-16 bits, if those outside the window travel as outliers: places, values,
  // and the codes that remain, whose code spends at least a bit per symbol.
  uint64_t cost_q16(const Grouping& g, uint64_t outside) const {
    const CodeCounts& c = counts_;
    const uint64_t n = c.counted << 16, all = entropy_term(uint32_t(c.counted));
    const uint64_t inside = terms(g.minimum + g.width()) - terms(g.minimum);
    const uint32_t middle = c.by_code[size_t(g.center() + 128)];  // stands in for those outside
    const uint64_t entropy = all - (inside - entropy_term(middle) + entropy_term(middle + uint32_t(outside)));
    const uint64_t cost = std::max(entropy, n >> g.log_group) + (n >> (4 + g.log_group));
    if (outside * c.total < kFewOutliers * c.counted) return cost + (kFewBits * outside << 16);
    const uint64_t values = entropy_term(uint32_t(outside)), rest = entropy_term(uint32_t(c.counted - outside));
    return cost + (all - values - rest) + (values - (all_terms_ - inside)) + (outside << 14);
  }

 private:
  static constexpr int kWidest = 16;

  // A window has codes in common with low..high, or nearly so.
  uint32_t below(int code) const { return below_[code - origin_]; }
  uint64_t terms(int code) const { return terms_[code - origin_]; }

  const CodeCounts& counts_;
  int origin_;  // the code of the first sum
  uint64_t all_terms_;
  uint32_t below_[256 + 2 * kWidest + 1];
  uint64_t terms_[256 + 2 * kWidest + 1];
};

// Whether some window of `width` codes may hold all but `outside` of those counted: it would hold all between the
// quantiles beyond which so many lie.
bool may_hold(const CodeCounts& c, int width, uint64_t outside) {
  const auto count = [&](int code) { return c.by_code[size_t(code + 128)]; };
  int low = c.low, high = c.high;
  for (uint64_t below = count(low); below <= outside && low < high; below += count(low)) ++low;
  for (uint64_t above = count(high); above <= outside && high > low; above += count(high)) --high;
  return high - low < width;
}

// No codes but the median.
uint64_t sparse_cost_q16(const CodeCounts& c) {
  const uint32_t inside = c.by_code[size_t(c.median + 128)], outside = uint32_t(c.counted) - inside;
  if (outside * c.total < kFewOutliers * c.counted) return kFewBits * outside << 16;
  return c.entropy_q16 + (uint64_t(outside) << 14);  // which ones are outside, and what they are
}

Grouping choose_grouping(const CodeCounts& c) {
  Grouping best;
  if (c.counted == c.total && c.low >= c.median - 128 && c.high <= c.median + 127) best.minimum = c.median - 128;
  const uint64_t n = c.counted << 16;
  if (c.entropy_q16 > 5 * n) return best;  // groups hold at most four bits a code
  uint64_t least = std::max(c.entropy_q16, n) + (n >> 4);
  std::optional<WindowSums> sums;
  for (const int log_group : {1, 2}) {
    Grouping g{log_group, 0, false};
    // Digits and outliers together have the entropy of the codes or more, and every outlier adds a quarter of a bit or
    // more; logarithms that are rounded down change that by less than n / 32.
    const uint64_t entropy = c.entropy_q16 + (n >> (4 + log_group)), most = least + (n >> 5);
    if (most < entropy || !may_hold(c, g.width(), (most - entropy) >> 14)) continue;
    if (!sums) sums.emplace(c);
    uint64_t outside;
    g.minimum = sums->choose_minimum(g.width(), &outside);
    const uint64_t cost = sums->cost_q16(g, outside);
    if (cost > least) continue;
    least = cost;
    best = g;
  }
  return sparse_cost_q16(c) < least ? Grouping{0, c.median, true} : best;
}

// Codes outside the window are noted and replaced by its center.
void remove_outliers(int8_t* codes, size_t n, const Grouping& grouping, std::vector<Patch>& outliers) {
  const unsigned width = unsigned(grouping.width());
  const int8_t center = int8_t(grouping.center());
  constexpr size_t kBlock = 64;
  for (size_t start = 0; start < n; start += kBlock) {
    const size_t end = std::min(n, start + kBlock);
    unsigned outside = 0;
    for (size_t i = start; i < end; ++i) outside |= uint8_t(codes[i] - grouping.minimum);
    if (outside < width) continue;
    for (size_t i = start; i < end; ++i) {
      if (uint8_t(codes[i] - grouping.minimum) < width) continue;
      outliers.push_back({i, uint32_t(int32_t(codes[i]))});
      codes[i] = center;
    }
  }
}

// Groups in place; a partial last group is filled up with the smallest digit. Returns how many symbols.
size_t group_codes(const Kernels& kernels, const int8_t* codes, size_t n, const Grouping& grouping, uint8_t* symbols) {
  const size_t group = size_t(1) << grouping.log_group, whole = n & ~(group - 1), rest = n - whole;
  int8_t tail[8];
  std::copy(codes + whole, codes + n, tail);
  std::fill(tail + rest, tail + group, int8_t(grouping.minimum));
  kernels.group(codes, whole, grouping.log_group, grouping.minimum, symbols);
  const size_t m = whole >> grouping.log_group;
  if (rest) kernels.group(tail, group, grouping.log_group, grouping.minimum, symbols + m);
  return m + (rest ? 1 : 0);
}

uint32_t zigzag(uint32_t bits) { return bits << 1 ^ uint32_t(int32_t(bits) >> 31); }

// Few: place and code of each. Many: the gaps between places as numbers, then the codes.
void write_outliers(const Kernels& kernels, Scratch& scratch, Writer& out) {
  const auto& outliers = scratch.outliers;
  const size_t n = outliers.size();
  out.varint(n);
  auto& gaps = scratch.numbers;
  auto& codes = scratch.refs;
  if (gaps.size() < n) gaps.resize(n);
  if (codes.size() < n) codes.resize(n);
  uint64_t next = 0;
  for (size_t i = 0; i < n; ++i) {
    gaps[i] = outliers[i].index - next;
    codes[i] = zigzag(outliers[i].bits);
    next = outliers[i].index + 1;
  }
  if (n < kFewOutliers) {
    for (size_t i = 0; i < n; ++i) {
      out.varint(gaps[i]);
      out.varint(codes[i]);
    }
    return;
  }
  const Coding gap_coding = choose_for_numbers(gaps.data(), n, scratch.symbols);
  write_numbers(kernels, gap_coding, gaps.data(), n, scratch.symbols, scratch.slots, out);
  const Coding code_coding = choose_for_values(codes.data(), n, 256, scratch.symbols);
  write_values(kernels, code_coding, codes.data(), n, scratch.symbols, scratch.slots, out);
}

// Of the codes that were counted, times 256.
uint64_t mean_distance_q8(const CodeCounts& c, int center) {
  uint32_t distance = 0;  // few codes were counted
  for (int v = c.low; v <= c.high; ++v) distance += c.by_code[size_t(v + 128)] * uint32_t(std::abs(v - center));
  return (uint64_t(distance) << 8) / c.counted;
}

uint8_t packed_kind(int width) { return uint8_t(width << 2); }

int first_symbol(const Histogram& histogram) {
  int first = 0;
  while (first < 255 && !histogram[size_t(first)]) ++first;
  return first;
}

}  // namespace

CodeCounts count_codes(const int8_t* codes, size_t n) {
  CodeCounts c;
  c.total = n;
  Histogram by_byte{};
  each_run(n, [&](size_t first, size_t length) {
    count_symbols(reinterpret_cast<const uint8_t*>(codes) + first, length, by_byte);
    c.counted += length;
  });
  std::rotate_copy(by_byte.begin(), by_byte.begin() + 128, by_byte.end(), c.by_code.begin());
  summarize(c);
  return c;
}

CodeCounts count_codes(const int16_t* codes, size_t n, int low_bits) {
  CodeCounts c;
  c.total = n;
  uint8_t parts[kCountAll];
  each_run(n, [&](size_t first, size_t length) {
    high_parts(codes + first, length, low_bits, parts);
    count_symbols(parts, length, c.by_code);
    c.counted += length;
  });
  summarize(c);
  c.entropy_q16 += uint64_t(low_bits) * c.counted << 16;
  return c;
}

Mode write_codes(const Kernels& kernels, const CodeCounts& counts, int8_t* codes, size_t n, int threads,
                 Scratch& scratch, Writer& out) {
  const Grouping grouping = choose_grouping(counts);
  scratch.outliers.clear();
  if (grouping.log_group || grouping.sparse) remove_outliers(codes, n, grouping, scratch.outliers);
  if (grouping.sparse) {
    out.signed_varint(grouping.minimum);
    out.byte(0);  // packed, no bits
    write_outliers(kernels, scratch, out);
    return Mode::kPacked;
  }

  uint8_t* symbols = reinterpret_cast<uint8_t*>(codes);
  uint8_t offset = 0;  // of the bytes over the symbols
  size_t m = n;
  if (grouping.log_group) m = group_codes(kernels, codes, n, grouping, symbols);
  else offset = uint8_t(grouping.minimum);

  Histogram histogram{};
  if (grouping.log_group) {
    count_symbols(symbols, m, histogram);
  } else if (counts.counted < n) {
    count_symbols(symbols, m, histogram);
    std::rotate(histogram.begin(), histogram.begin() + offset, histogram.end());
  } else {  // all codes lie in the window
    std::copy_n(&counts.by_code[size_t(counts.low + 128)], counts.high - counts.low + 1,
                &histogram[size_t(counts.low - grouping.minimum)]);
  }
  const Coding coding =
      choose_coding(histogram, m, grouping.log_group, 0, true, mean_distance_q8(counts, grouping.center()));
  if (coding.mode == Mode::kPacked) {
    const int first = first_symbol(histogram);
    out.signed_varint(grouping.minimum + first);
    out.byte(packed_kind(coding.width));
    for (size_t i = 0; i < m; ++i) symbols[i] = uint8_t(symbols[i] - offset - first);
    pack_bits(symbols, m, coding.width, out);
  } else {
    out.signed_varint(grouping.minimum);
    write_symbols(kernels, coding, symbols, offset, m, threads, scratch.slots, out);
  }
  write_outliers(kernels, scratch, out);
  return coding.mode;
}

Mode write_codes(const Kernels& kernels, const CodeCounts& counts, const int16_t* codes, size_t n, int low_bits,
                 int threads, Scratch& scratch, Writer& out) {
  if (scratch.symbols.size() < n) scratch.symbols.resize(n);
  uint8_t* symbols = scratch.symbols.data();
  high_parts(codes, n, low_bits, symbols);
  Histogram histogram{};
  if (counts.counted < n) count_symbols(symbols, n, histogram);
  else histogram = counts.by_code;
  uint64_t distance = 0;
  for (int s = 0; s < 256; ++s) distance += uint64_t(histogram[size_t(s)]) * uint64_t(std::abs(s - 128));
  const Coding coding = choose_coding(histogram, n, 0, low_bits, true, (distance << 8) / n);
  const int32_t minimum = -(128 << low_bits);
  if (coding.mode == Mode::kPacked) {
    const int32_t smallest = minimum + (first_symbol(histogram) << low_bits);
    out.signed_varint(smallest);
    out.byte(packed_kind(coding.width));
    uint16_t values[4096];  // a multiple of 8 values fills whole bytes
    for (size_t start = 0; start < n; start += std::size(values)) {
      const size_t count = std::min(std::size(values), n - start);
      for (size_t i = 0; i < count; ++i) values[i] = uint16_t(codes[start + i] - smallest);
      pack_bits(values, count, coding.width, out);
    }
  } else {
    out.signed_varint(minimum);
    write_symbols(kernels, coding, symbols, 0, n, threads, scratch.slots, out);
    const int mask = (1 << low_bits) - 1;  // the minimum has no low bits
    for (size_t i = 0; i < n; ++i) symbols[i] = uint8_t(codes[i] & mask);
    pack_bits(symbols, n, low_bits, out);
  }
  out.varint(0);  // no outliers
  return coding.mode;
}

}  // namespace laconic
