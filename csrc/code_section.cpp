#include "code_section.h"

#include <algorithm>

namespace laconic {
namespace {

constexpr uint64_t kOutlierBits = 24;

constexpr size_t kCountAll = size_t(1) << 13, kCountRun = 1024;

// How narrow codes become digits: value - minimum, 2^log_group to a symbol.
struct Grouping {
  int log_group = 0;
  int minimum = -128;
};

uint8_t high_part(int16_t code, int low_bits) {
  return uint8_t((int32_t(code) + (128 << low_bits)) >> low_bits);
}

// Calls run(first, length) for everything, or for evenly spread runs if that is too much.
template <typename Run>
void each_run(size_t n, const Run& run) {
  if (n <= kCountAll) return run(size_t(0), n);
  const size_t stride = kCountRun * ((n + kCountAll - 1) / kCountAll);
  for (size_t start = 0; start < n; start += stride) run(start, std::min(kCountRun, n - start));
}

void summarize(CodeCounts& c) {
  for (c.low = -128; !c.by_code[size_t(c.low + 128)];) ++c.low;
  for (c.high = 127; !c.by_code[size_t(c.high + 128)];) --c.high;
  c.entropy_q16 = laconic::entropy_q16(&c.by_code[size_t(c.low + 128)], size_t(c.high - c.low + 1));
  uint64_t before = 0;
  for (c.median = c.low; (before += c.by_code[size_t(c.median + 128)]) * 2 < c.counted;) ++c.median;
}

// The window of `width` codes around the median, or the one that holds most if that loses much.
int choose_minimum(const CodeCounts& c, int width, uint64_t* outside) {
  uint32_t below[257];  // how many codes are below index - 128
  below[0] = 0;
  for (size_t v = 0; v < 256; ++v) below[v + 1] = below[v] + c.by_code[v];
  const auto mass = [&](int from) -> uint64_t { return below[from + width + 128] - below[from + 128]; };
  const int centred = std::max(-128, std::min(c.median - width / 2, 128 - width));
  int best = centred;
  for (int from = std::max(c.low - width + 1, -128); from <= std::min(c.high, 128 - width); ++from)
    if (mass(from) > mass(best)) best = from;
  if (mass(best) <= mass(centred) + (c.counted >> 10)) best = centred;
  *outside = c.counted - mass(best);
  return best;
}

Grouping choose_grouping(const CodeCounts& c) {
  Grouping best;
  if (c.counted == c.total && c.low >= c.median - 128 && c.high <= c.median + 127) best.minimum = c.median - 128;
  const uint64_t n = c.counted << 16;
  if (c.entropy_q16 > 5 * n) return best;  // groups hold at most four bits a code
  uint64_t least = std::max(c.entropy_q16, n) + (n >> 4);
  for (int log_group = 1; log_group <= 2; ++log_group) {
    uint64_t outside;
    const int minimum = choose_minimum(c, 1 << (8 >> log_group), &outside);
    const uint64_t cost =
        std::max(c.entropy_q16, n >> log_group) + (n >> (4 + log_group)) + (kOutlierBits * outside << 16);
    if (cost > least) continue;
    least = cost;
    best = {log_group, minimum};
  }
  return best;
}

// Codes outside the window are noted and replaced by its centre.
void remove_outliers(int8_t* codes, size_t n, const Grouping& grouping, std::vector<Patch>& outliers) {
  const int width = 1 << (8 >> grouping.log_group);
  const int8_t centre = int8_t(grouping.minimum + width / 2);
  constexpr size_t kBlock = 256;
  for (size_t start = 0; start < n; start += kBlock) {
    const size_t end = std::min(n, start + kBlock);
    unsigned outside = 0;
    for (size_t i = start; i < end; ++i) outside |= uint8_t(codes[i] - grouping.minimum);
    if (outside < unsigned(width)) continue;
    for (size_t i = start; i < end; ++i) {
      if (uint8_t(codes[i] - grouping.minimum) < width) continue;
      outliers.push_back({i, uint32_t(int32_t(codes[i]))});
      codes[i] = centre;
    }
  }
}

void write_outliers(const std::vector<Patch>& outliers, Writer& out) {
  out.varint(outliers.size());
  uint64_t next = 0;
  for (const Patch& o : outliers) {
    out.varint(o.index - next);
    out.signed_varint(int32_t(o.bits));
    next = o.index + 1;
  }
}

// value(0) ... value(n - 1), `width` bits each.
template <typename Value>
void write_bits(size_t n, int width, const Value& value, Writer& out) {
  uint32_t values[4096];  // a multiple of 8 values fills whole bytes
  for (size_t start = 0; start < n; start += 4096) {
    const size_t count = std::min<size_t>(4096, n - start);
    for (size_t i = 0; i < count; ++i) values[i] = value(start + i);
    pack_bits(values, count, width, out);
  }
}

template <typename Value>
void write_packed(size_t n, int width, const Value& value, Writer& out) {
  out.byte(uint8_t(width << 2));
  write_bits(n, width, value, out);
}

int first_symbol(const Histogram& histogram) {
  int first = 0;
  while (first < 255 && !histogram[size_t(first)]) ++first;
  return first;
}

}  // namespace

CodeCounts count_codes(const int8_t* codes, size_t n) {
  CodeCounts c;
  c.total = n;
  SymbolCounter counter;
  each_run(n, [&](size_t first, size_t length) {
    counter.add(reinterpret_cast<const uint8_t*>(codes) + first, length);
    c.counted += length;
  });
  Histogram by_byte;
  counter.total(by_byte);
  std::rotate_copy(by_byte.begin(), by_byte.begin() + 128, by_byte.end(), c.by_code.begin());
  summarize(c);
  return c;
}

CodeCounts count_codes(const int16_t* codes, size_t n, int low_bits) {
  CodeCounts c;
  c.total = n;
  each_run(n, [&](size_t first, size_t length) {
    for (size_t i = first; i < first + length; ++i) ++c.by_code[high_part(codes[i], low_bits)];
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
  if (grouping.log_group) remove_outliers(codes, n, grouping, scratch.outliers);

  const size_t group = size_t(1) << grouping.log_group, whole = n & ~(group - 1), rest = n - whole;
  uint8_t* symbols = reinterpret_cast<uint8_t*>(codes);
  int8_t tail[8];
  std::copy(codes + whole, codes + n, tail);
  std::fill(tail + rest, tail + group, int8_t(grouping.minimum));
  kernels.group(codes, whole, grouping.log_group, grouping.minimum, symbols);
  size_t m = whole >> grouping.log_group;
  if (rest) kernels.group(tail, group, grouping.log_group, grouping.minimum, symbols + m++);

  Histogram histogram{};
  uint64_t entropy = counts.entropy_q16;
  if (grouping.log_group || counts.counted < n) {
    SymbolCounter counter;
    counter.add(symbols, m);
    counter.total(histogram);
    entropy = entropy_q16(histogram.data(), 256);
  } else {
    for (int v = counts.low; v <= counts.high; ++v)
      histogram[uint8_t(v - grouping.minimum)] = counts.by_code[size_t(v + 128)];
  }
  const int centre = grouping.minimum + (1 << (8 >> grouping.log_group)) / 2;
  uint64_t distance = 0;
  for (int v = counts.low; v <= counts.high; ++v)
    distance += uint64_t(counts.by_code[size_t(v + 128)]) * uint64_t(std::abs(v - centre));
  const Coding coding =
      choose_coding(histogram, entropy, m, grouping.log_group, 0, true, (distance << 8) / counts.counted);
  if (coding.mode == Mode::kPacked) {
    const int first = first_symbol(histogram);
    out.signed_varint(grouping.minimum + first);
    write_packed(m, coding.width, [&](size_t i) { return uint32_t(symbols[i] - first); }, out);
  } else {
    out.signed_varint(grouping.minimum);
    write_symbols(kernels, coding, symbols, m, threads, scratch.slots, out);
  }
  write_outliers(scratch.outliers, out);
  return coding.mode;
}

Mode write_codes(const Kernels& kernels, const int16_t* codes, size_t n, int low_bits, int threads,
                 Scratch& scratch, Writer& out) {
  if (scratch.symbols.size() < n) scratch.symbols.resize(n);
  uint8_t* symbols = scratch.symbols.data();
  const int32_t minimum = -(128 << low_bits);
  for (size_t i = 0; i < n; ++i) symbols[i] = high_part(codes[i], low_bits);
  SymbolCounter counter;
  counter.add(symbols, n);
  Histogram histogram;
  counter.total(histogram);
  uint64_t distance = 0;
  for (int s = 0; s < 256; ++s) distance += uint64_t(histogram[size_t(s)]) * uint64_t(std::abs(s - 128));
  const Coding coding = choose_coding(histogram, entropy_q16(histogram.data(), 256), n, 0, low_bits, true, (distance << 8) / n);
  if (coding.mode == Mode::kPacked) {
    const int32_t smallest = minimum + (first_symbol(histogram) << low_bits);
    out.signed_varint(smallest);
    write_packed(n, coding.width, [&](size_t i) { return uint32_t(int32_t(codes[i]) - smallest); }, out);
  } else {
    out.signed_varint(minimum);
    write_symbols(kernels, coding, symbols, n, threads, scratch.slots, out);
    const uint32_t mask = (1u << low_bits) - 1;
    write_bits(n, low_bits, [&](size_t i) { return uint32_t(int32_t(codes[i]) - minimum) & mask; }, out);
  }
  write_outliers({}, out);
  return coding.mode;
}

CodeReader::CodeReader(Reader& in, uint64_t n)
    : n_(n), minimum_(in.signed_varint("smallest code")), sequence_(in, n) {
  expect(minimum_ >= -32768 && minimum_ <= 32767, "smallest code: outside int16");
  wide_ = sequence_.mode() == Mode::kPacked ? sequence_.width() > 8 : sequence_.low_bits() > 0;
  expect(wide_ || (minimum_ >= -256 && minimum_ <= 127), "smallest code: too far out for narrow codes");
  expect(sequence_.width() <= 16 && sequence_.low_bits() <= 8, "codes: wider than 16 bits");
  const uint64_t count = in.varint("outliers");
  expect(count <= n && count <= in.left(), "outliers: more than there are codes or bytes");
  outliers_.reserve(size_t(count));
  uint64_t next = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t gap = in.varint("outlier position");
    expect(gap < n && next + gap < n, "outlier position: beyond the codes");
    const int64_t code = in.signed_varint("outlier code");
    expect(code >= (wide_ ? -32768 : -128) && code <= (wide_ ? 32767 : 127), "outlier code: out of range");
    outliers_.push_back({next + gap, uint32_t(int32_t(code))});
    next += gap + 1;
  }
}

template <typename Code>
CodeReader::Piece CodeReader::decode(const Kernels& kernels, size_t piece, uint8_t* symbols, Code* codes) const {
  const uint64_t first = first_code(piece);
  const size_t count = size_t(std::min<uint64_t>(piece_codes(), n_ - first));
  if (packed()) {
    for (size_t i = 0; i < count; ++i) codes[i] = Code(int64_t(sequence_.raw(first + i)) + minimum_);
    return {first, count};
  }
  const size_t m = sequence_.decode_chunk(kernels, piece, symbols);
  if constexpr (sizeof(Code) == 1) {
    kernels.ungroup(symbols, m << sequence_.log_group(), sequence_.log_group(), int(minimum_), codes);
  } else {
    const int low_bits = sequence_.low_bits();
    for (size_t i = 0; i < count; ++i)
      codes[i] = Code(int64_t(uint32_t(symbols[i]) << low_bits | sequence_.raw(first + i)) + minimum_);
  }
  return {first, count};
}

template CodeReader::Piece CodeReader::decode<int8_t>(const Kernels&, size_t, uint8_t*, int8_t*) const;
template CodeReader::Piece CodeReader::decode<int16_t>(const Kernels&, size_t, uint8_t*, int16_t*) const;

}  // namespace laconic
