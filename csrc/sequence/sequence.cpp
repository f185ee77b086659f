#include "sequence.h"

#include <algorithm>

#include "packed_bits.h"
#include "parallel.h"

namespace laconic {
namespace {

constexpr size_t kWorthRuns = 8192;  // symbols from which a table of runs saves more time than it takes

void write_lengths(const CanonicalOrder& by_symbol, Writer& out) {
  uint8_t live[32] = {}, nibbles[128] = {};
  for (size_t i = 0; i < by_symbol.count; ++i) {
    const auto [symbol, length] = by_symbol.codes[i];
    live[symbol / 8] = uint8_t(live[symbol / 8] | 1u << (symbol % 8));
    nibbles[i / 2] = uint8_t(nibbles[i / 2] | length << (i % 2 * 4));
  }
  const uint8_t last = by_symbol.codes[by_symbol.count - 1].symbol;
  out.byte(last);
  out.bytes(live, size_t(last) / 8 + 1);
  out.bytes(nibbles, (by_symbol.count + 1) / 2);
}

// One chunk: stream sizes but the last, then the streams. Sizes take one byte where none can need two.
size_t encode_chunk(const Kernels& kernels, const uint8_t* symbols, size_t n, const uint32_t* codes, uint8_t* out) {
  size_t sizes[kStreams];
  if (n < kManyStreams) {
    kernels.huffman_encode(symbols, n, codes, 1, out, sizes);
    return sizes[0];
  }
  const size_t header = (kStreams - 1) * (n <= kByteSizes ? 1 : 2);
  kernels.huffman_encode(symbols, n, codes, kStreams, out + header, sizes);
  size_t total = header + sizes[kStreams - 1];
  for (size_t k = 0; k < kStreams - 1; ++k) {
    total += sizes[k];
    if (n <= kByteSizes) {
      out[k] = uint8_t(sizes[k]);
    } else {
      const uint16_t size = uint16_t(sizes[k]);
      std::memcpy(out + 2 * k, &size, 2);
    }
  }
  return total;
}

}  // namespace

void write_symbols(const Kernels& kernels, const Coding& coding, const uint8_t* bytes, uint8_t minimum, size_t n,
                   int threads, std::vector<uint8_t>& slots, Writer& out) {
  out.byte(uint8_t(uint8_t(coding.mode) | coding.log_group << 2 | coding.low_bits << 4));
  uint32_t by_byte[256];
  const uint32_t* codes = by_byte;
  if (coding.mode == Mode::kStatic) {
    out.byte(uint8_t(uint8_t(coding.shape) << 4 | coding.level));
    const auto& by_symbol = static_codes(coding.log_group, coding.shape)[size_t(coding.level)].codes;
    if (minimum) std::rotate_copy(by_symbol.begin(), by_symbol.end() - minimum, by_symbol.end(), by_byte);
    else codes = by_symbol.data();
  } else {
    const CanonicalOrder by_symbol = live_codes(coding.lengths);
    write_lengths(by_symbol, out);
    canonical_codes(by_symbol, minimum, by_byte);
  }
  const size_t chunks = (n + kChunkSymbols - 1) / kChunkSymbols;
  uint8_t* directory = out.reserve(2 * chunks);
  const auto encode = [&](size_t c, uint8_t* to) {
    const size_t start = c * kChunkSymbols;
    return encode_chunk(kernels, bytes + start, std::min(kChunkSymbols, n - start), codes, to);
  };
  const auto enter = [&](size_t c, size_t size) {
    const uint16_t field = uint16_t(size);
    std::memcpy(directory + 2 * c, &field, 2);
  };
  // Straight to their place; by several threads, and where the room left is smaller than a chunk may become, some at a
  // time into slots and from there in order.
  const size_t batch = threads > 1 ? std::min(size_t(threads) * 4, chunks) : 1;
  for (size_t first = 0; first < chunks && !out.overflowed(); first += batch) {
    const size_t most = max_chunk_bytes(std::min(kChunkSymbols, n - first * kChunkSymbols));
    if (uint8_t* to = batch == 1 ? out.peek(most) : nullptr) {
      const size_t size = encode(first, to);
      enter(first, size);
      out.advance(size);
      continue;
    }
    const size_t count = std::min(batch, chunks - first), room = max_chunk_bytes(kChunkSymbols);
    if (slots.size() < batch * room) slots.resize(batch * room);
    std::vector<size_t> sizes(batch);
    parallel_for(count, threads, [&](size_t k) { sizes[k] = encode(first + k, slots.data() + k * room); });
    for (size_t k = 0; k < count; ++k) {
      enter(first + k, sizes[k]);
      out.bytes(slots.data() + k * room, sizes[k]);
    }
  }
}

void write_values(const Kernels& kernels, const Coding& coding, const uint32_t* values, size_t n,
                  std::vector<uint8_t>& scratch, std::vector<uint8_t>& slots, Writer& out) {
  if (coding.mode == Mode::kPacked) {
    out.byte(uint8_t(coding.width << 2));
    pack_bits(values, n, coding.width, out);
    return;
  }
  const size_t m = group_values(values, n, coding.log_group, coding.low_bits, scratch);
  write_symbols(kernels, coding, scratch.data(), 0, m, 1, slots, out);
  if (coding.low_bits) {
    std::vector<uint32_t> low(values, values + n);
    for (auto& v : low) v &= (1u << coding.low_bits) - 1;
    pack_bits(low.data(), n, coding.low_bits, out);
  }
}

void SequenceReader::read_code(Reader& in) {
  if (mode_ == Mode::kStatic) {
    const uint8_t id = in.byte("static code");
    expect((id >> 4) < kShapes, "static code: no such shape");
    decoder_ = static_codes(log_group_, Shape(id >> 4))[id & 15].decoder();
    return;
  }
  const size_t last = in.byte("last symbol");
  const uint8_t* live = in.take(last / 8 + 1, "live symbols");
  expect(live[last / 8] >> (last % 8) == 1, "live symbols: the last symbol is not the last live one");
  CanonicalOrder codes;
  codes.count = 0;
  for (size_t byte = 0; byte <= last / 8; ++byte)
    for (unsigned bits = live[byte]; bits; bits &= bits - 1)
      codes.codes[codes.count++].symbol = uint8_t(8 * byte + unsigned(__builtin_ctz(bits)));
  const uint8_t* nibbles = in.take((codes.count + 1) / 2, "code lengths");
  uint32_t sum = 0, beyond = 0;
  for (size_t k = 0; k < codes.count; ++k) {
    const uint32_t length = nibbles[k / 2] >> (k % 2 * 4) & 15;
    codes.codes[k].length = uint8_t(length);
    beyond |= uint32_t(length - 1 >= uint32_t(kMaxCodeLength));
    sum += 1u << kMaxCodeLength >> length;
  }
  expect(!beyond, "code lengths: outside 1..12");
  expect(sum == 1u << kMaxCodeLength, "code lengths: they do not form a complete prefix code");
  const CanonicalOrder order = canonical_order(codes);
  if (symbols_ >= kWorthRuns) {
    runs_.reset(new uint32_t[kRuns]);  // uninitialized, unlike a vector
    if (kernels_.fill_runs(order, runs_.get())) {
      for (size_t k = 0; k < codes.count; ++k) lengths_[codes.codes[k].symbol] = codes.codes[k].length;
      decoder_ = {nullptr, 0, runs_.get(), lengths_};
      return;
    }
  }
  const int log_size = fill_decoder(order, table_);
  decoder_ = {table_, log_size, nullptr, nullptr};
}

SequenceReader::SequenceReader(const Kernels& kernels, Reader& in, uint64_t n)
    : kernels_(kernels), n_(n), readable_end_(in.readable_end()) {
  const uint8_t kind = in.byte("sequence kind");
  expect((kind & 3) <= 2, "sequence kind: mode 3 does not exist");
  mode_ = Mode(kind & 3);
  if (mode_ == Mode::kPacked) {
    width_ = kind >> 2;
    expect(width_ <= 32, "sequence kind: packed width above 32");
    raw_size_ = size_t((uint64_t(width_) * n + 7) / 8);
    raw_ = in.take(raw_size_, "packed values");
    return;
  }
  log_group_ = kind >> 2 & 3;
  low_bits_ = kind >> 4;
  expect(!(log_group_ && low_bits_), "sequence kind: groups of digits have no low bits");
  symbols_ = size_t((n + (uint64_t(1) << log_group_) - 1) >> log_group_);
  read_code(in);
  chunks_ = (symbols_ + kChunkSymbols - 1) / kChunkSymbols;
  const uint8_t* directory = in.take(2 * uint64_t(chunks_), "chunk sizes");
  if (chunks_ > 1) later_chunks_.resize(chunks_ - 1);
  for (size_t c = 0; c < chunks_; ++c) {
    chunk(c).size = size_t(directory[2 * c] | directory[2 * c + 1] << 8);
    chunk(c).data = in.take(chunk(c).size, "chunk");
  }
  raw_size_ = size_t((uint64_t(low_bits_) * n + 7) / 8);
  raw_ = in.take(raw_size_, "low bits");
}

size_t SequenceReader::decode_chunk(size_t c, uint8_t* symbols) const {
  const size_t n = std::min(kChunkSymbols, symbols_ - c * kChunkSymbols);
  const uint8_t* data = chunk(c).data;
  size_t left = chunk(c).size, sizes[kStreams];
  int streams = 1;
  if (n >= kManyStreams) {
    streams = kStreams;
    const size_t field = n <= kByteSizes ? 1 : 2, header = (kStreams - 1) * field;
    expect(left >= header, "stream sizes: the chunk is too short for them");
    const uint8_t* at = data;
    data += header;
    left -= header;
    for (size_t k = 0; k < kStreams - 1; ++k, at += field) {
      sizes[k] = field == 1 ? at[0] : size_t(at[0] | at[1] << 8);
      expect(sizes[k] <= left, "stream sizes: they exceed the chunk");
      left -= sizes[k];
    }
  }
  sizes[streams - 1] = left;
  expect(kernels_.huffman_decode(data, sizes, streams, readable_end_, decoder_, symbols, n),
         "stream: it does not end where its size says");
  return n;
}

std::optional<Stream> SequenceReader::lone_stream(uint8_t* symbols) const {
  if (mode_ == Mode::kPacked || !symbols_ || symbols_ >= kManyStreams) return std::nullopt;
  return Stream{first_chunk_.data, first_chunk_.size, decoder_, symbols, symbols_};
}

void SequenceReader::append_raw(uint64_t first, size_t count, uint32_t* values) const {
  const int width = mode_ == Mode::kPacked ? width_ : low_bits_;
  if (!width) return;
  const size_t at = size_t(first * uint64_t(width) / 8);
  kernels_.append_bits(raw_ + at, raw_size_ - at, width, values, count);
}

void SequenceReader::unpack(uint64_t first, size_t count, int minimum, int8_t* codes) const {
  const size_t at = size_t(first * uint64_t(width_) / 8);
  unpack_bits(raw_ + at, raw_size_ - at, width_, count, minimum, codes);
}

namespace {

// Digits of whole symbols, then of the last one.
template <int log_group>
void ungroup_values(const uint8_t* symbols, size_t n, uint32_t* out) {
  constexpr size_t group = size_t(1) << log_group;
  constexpr int digit = 8 >> log_group;
  constexpr uint32_t mask = (1u << digit) - 1;
  size_t i = 0;
  for (; i + group <= n; i += group, ++symbols)
    for (size_t k = 0; k < group; ++k) out[i + k] = uint32_t(*symbols) >> int(k) * digit & mask;
  for (size_t k = 0; i + k < n; ++k) out[i + k] = uint32_t(*symbols) >> int(k) * digit & mask;
}

}  // namespace

void SequenceReader::values(uint32_t* out, uint32_t limit, const char* field) const {
  if (mode_ == Mode::kPacked) {
    std::fill_n(out, n_, 0u);
  } else {
    static thread_local std::vector<uint8_t> symbols(kChunkSymbols);
    constexpr decltype(&ungroup_values<0>) by_group[] = {ungroup_values<0>, ungroup_values<1>, ungroup_values<2>,
                                                         ungroup_values<3>};
    for (size_t c = 0; c < chunks(); ++c) {
      const size_t m = decode_chunk(c, symbols.data());
      const uint64_t first = uint64_t(c) * kChunkSymbols << log_group_;
      const uint64_t count = std::min<uint64_t>(uint64_t(m) << log_group_, n_ - first);
      by_group[log_group_](symbols.data(), size_t(count), out + first);
    }
  }
  const int width = mode_ == Mode::kPacked ? width_ : low_bits_;
  if (width) kernels_.append_bits(raw_, raw_size_, width, out, size_t(n_));
  const int bits = mode_ == Mode::kPacked ? width_ : (8 >> log_group_) + low_bits_;
  if (uint64_t(1) << bits <= limit) return;  // no value of so few bits can reach it
  uint32_t beyond = 0;
  for (uint64_t i = 0; i < n_; ++i) beyond |= uint32_t(out[i] >= limit);
  if (beyond)
    throw FormatError(std::string(field) + ": " + std::to_string(*std::max_element(out, out + n_)) + " is not below " +
                      std::to_string(limit));
}

void SequenceReader::bits(std::vector<uint8_t>& out, std::vector<uint32_t>& scratch, const char* field) const {
  const size_t size = size_t((n_ + 7) / 8);
  if (mode_ != Mode::kPacked && log_group_ == 3) {
    if (out.size() < symbols_) out.resize(symbols_);
    for (size_t c = 0; c < chunks(); ++c) decode_chunk(c, out.data() + c * kChunkSymbols);
    return;
  }
  if (out.size() < size) out.resize(size);
  if (mode_ == Mode::kPacked && width_ == 1) {
    std::copy_n(raw_, size, out.data());
    return;
  }
  if (scratch.size() < n_) scratch.resize(n_);
  values(scratch.data(), 2, field);
  std::fill_n(out.data(), size, uint8_t(0));
  for (size_t i = 0; i < n_; ++i) out[i / 8] = uint8_t(out[i / 8] | scratch[i] << (i % 8));
}

}  // namespace laconic
