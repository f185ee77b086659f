// What code_section.cpp wrote, read again.
#include <algorithm>

#include "code_section.h"
#include "numbers.h"

namespace laconic {

CodeReader::CodeReader(Reader& in, const Kernels& kernels, uint64_t n)
    : n_(n), minimum_(in.signed_varint("smallest code")), sequence_(kernels, in, n) {
  expect(minimum_ >= -32768 && minimum_ <= 32767, "smallest code: outside int16");
  expect(sequence_.width() <= 16 && sequence_.low_bits() <= 8, "codes: wider than 16 bits");
  wide_ = packed() ? minimum_ < -128 || minimum_ + (1 << sequence_.width()) > 128 : sequence_.low_bits() > 0;
  expect(wide_ || (minimum_ >= -256 && minimum_ <= 127), "smallest code: too far out for narrow codes");
  read_outliers(in, kernels);
}

void CodeReader::read_outliers(Reader& in, const Kernels& kernels) {
  const uint64_t count = in.varint("outliers");
  expect(count <= n_ && !(wide_ && count), "outliers: more than there are codes, or beside wide codes");
  expect(count / 8 <= in.left(), "outliers: more than eight for every byte left");  // each takes a bit or more
  outliers_.reserve(size_t(count));
  if (count < kFewOutliers) {
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t gap = in.varint("outlier position");
      add_outlier(gap, in.varint("outlier code"));
    }
    return;
  }
  std::vector<uint64_t> gaps(count);
  std::vector<uint32_t> codes(count);
  read_numbers(in, kernels, gaps.data(), size_t(count), codes);
  SequenceReader(kernels, in, count).values(codes.data(), 256, "outlier code");
  for (uint64_t i = 0; i < count; ++i) add_outlier(gaps[i], codes[i]);
}

void CodeReader::add_outlier(uint64_t gap, uint64_t code) {
  const uint64_t next = outliers_.empty() ? 0 : outliers_.back().index + 1;
  expect(gap < n_ && next + gap < n_, "outlier position: beyond the codes");
  expect(code < 256, "outlier code: outside int8");
  outliers_.push_back({next + gap, uint32_t(code >> 1) ^ (0u - uint32_t(code & 1))});
}

void CodeReader::place(const Kernels& kernels, const uint8_t* symbols, int8_t* codes) const {
  kernels.ungroup(symbols, sequence_.symbols() << sequence_.log_group(), sequence_.log_group(), int(minimum_), codes);
}

void CodeReader::place(const Kernels&, const uint8_t* symbols, int16_t* codes) const {
  uint32_t values[kManyStreams];
  std::copy_n(symbols, n_, values);
  sequence_.append_raw(0, size_t(n_), values);
  for (size_t i = 0; i < n_; ++i) codes[i] = int16_t(int32_t(values[i]) + int32_t(minimum_));
}

template <typename Code>
CodeReader::Piece CodeReader::decode(const Kernels& kernels, size_t piece, uint8_t* symbols, Code* codes) const {
  const uint64_t first = first_code(piece);
  const size_t count = size_t(std::min<uint64_t>(piece_codes(), n_ - first));
  if (packed() && sequence_.width() == 0) {
    std::fill_n(codes, count, Code(minimum_));
    return {first, count};
  }
  if constexpr (sizeof(Code) == 1)
    if (packed()) {
      sequence_.unpack(first, count, int(minimum_), codes);
      return {first, count};
    }
  static thread_local std::vector<uint32_t> values(kChunkSymbols);  // packed ones and wide ones are not grouped
  if (packed()) {
    std::fill_n(values.begin(), count, 0u);
    sequence_.append_raw(first, count, values.data());
    for (size_t i = 0; i < count; ++i) codes[i] = Code(int32_t(values[i]) + int32_t(minimum_));
    return {first, count};
  }
  const size_t m = sequence_.decode_chunk(piece, symbols);
  if constexpr (sizeof(Code) == 1) {
    kernels.ungroup(symbols, m << sequence_.log_group(), sequence_.log_group(), int(minimum_), codes);
  } else {
    std::copy_n(symbols, count, values.begin());
    sequence_.append_raw(first, count, values.data());
    for (size_t i = 0; i < count; ++i) codes[i] = Code(int32_t(values[i]) + int32_t(minimum_));
  }
  return {first, count};
}

template CodeReader::Piece CodeReader::decode<int8_t>(const Kernels&, size_t, uint8_t*, int8_t*) const;
template CodeReader::Piece CodeReader::decode<int16_t>(const Kernels&, size_t, uint8_t*, int16_t*) const;

}  // namespace laconic
