#include "numbers.h"

#include <algorithm>
#include <cstring>

#include "packed_bits.h"

namespace laconic {
namespace {

// Least significant bit first.
class BitWriter {
 public:
  explicit BitWriter(Writer& out) : out_(out) {}

  // The lowest `width` bits, at most 61.
  void put(uint64_t bits, int width) {
    while (width > 0) {
      const int part = std::min(width, 32);
      acc_ |= (bits & ((uint64_t(1) << part) - 1)) << used_;
      bits >>= part;
      width -= part;
      used_ += part;
      if (used_ >= 32) {
        const uint32_t word = uint32_t(acc_);
        out_.fixed(word);
        acc_ >>= 32;
        used_ -= 32;
      }
    }
  }

  void finish() {
    for (; used_ > 0; used_ -= 8, acc_ >>= 8) out_.byte(uint8_t(acc_));
  }

 private:
  Writer& out_;
  uint64_t acc_ = 0;
  int used_ = 0;
};

// Reads what was counted beforehand, so it cannot run past the end.
class BitReader {
 public:
  BitReader(const uint8_t* in, size_t size) : in_(in), size_(size) {}

  uint64_t take(int width) {
    const int first = std::min(width, 32);
    uint64_t value = window(first);
    if (width > 32) value |= window(width - 32) << 32;
    return value;
  }

 private:
  uint64_t window(int width) {
    uint64_t v = 0;
    const size_t at = size_t(bit_ >> 3);
    std::memcpy(&v, in_ + at, std::min<size_t>(8, size_ - at));
    v = v >> (bit_ & 7) & ((uint64_t(1) << width) - 1);
    bit_ += uint64_t(width);
    return v;
  }

  const uint8_t* in_;
  size_t size_;
  uint64_t bit_ = 0;
};

int raw_bits_of(uint32_t symbol) { return symbol < 16 ? 0 : int((symbol - 16) / 4) + 2; }

}  // namespace

Coding choose_for_numbers(const uint64_t* numbers, size_t n, std::vector<uint8_t>& symbols) {
  if (symbols.size() < n) symbols.resize(n);
  uint64_t raw = 0, sum = 0;
  for (size_t i = 0; i < n; ++i) {
    const Classed k = classify(numbers[i]);
    symbols[i] = k.symbol;
    raw += uint64_t(k.raw_bits);
    sum += k.symbol;
  }
  Coding coding = choose_coding(symbols.data(), n, 0, 0, n ? (sum << 8) / n : 0);
  coding.bits += raw;
  return coding;
}

void write_numbers(const Kernels& kernels, const Coding& coding, const uint64_t* numbers, size_t n,
                   std::vector<uint8_t>& symbols, std::vector<uint8_t>& slots, Writer& out) {
  for (size_t i = 0; i < n; ++i) symbols[i] = classify(numbers[i]).symbol;
  if (coding.mode == Mode::kPacked) {
    out.byte(uint8_t(coding.width << 2));
    pack_bits(symbols.data(), n, coding.width, out);
  } else {
    write_symbols(kernels, coding, symbols.data(), 0, n, 1, slots, out);
  }
  BitWriter raw(out);
  for (size_t i = 0; i < n; ++i) raw.put(numbers[i], classify(numbers[i]).raw_bits);
  raw.finish();
}

void read_numbers(Reader& in, const Kernels& kernels, uint64_t* numbers, size_t n, std::vector<uint32_t>& classes) {
  const SequenceReader sequence(kernels, in, n);
  expect(!sequence.log_group() && !sequence.low_bits(), "sequence kind: classes come one to a symbol");
  if (classes.size() < n) classes.resize(n);
  sequence.values(classes.data(), 256, "class");
  uint64_t bits = 0;
  for (size_t i = 0; i < n; ++i) bits += uint64_t(raw_bits_of(classes[i]));
  const size_t size = size_t((bits + 7) / 8);
  BitReader raw(in.take(size, "raw bits"), size);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t symbol = classes[i];
    const int width = raw_bits_of(classes[i]);
    numbers[i] = width ? (4 | (symbol & 3)) << width | raw.take(width) : symbol;
  }
}

}  // namespace laconic
