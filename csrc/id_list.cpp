#include "id_list.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "bytes.h"
#include "sequence.h"

namespace laconic {
namespace {

// How ids become unsigned numbers.
enum class Form : uint8_t {
  kStored = 0,       // not at all
  kAscending = 1,    // difference to the one before, never negative
  kDifferences = 2,  // difference to the one before, sign in the lowest bit
  kOffsets = 3,      // difference to the smallest
};

// A number below 16 is its own class. A larger one of b bits has class 16 + 4 (b - 5) + its
// two bits below the first, and b - 3 raw bits: 256 classes reach 2^64.
struct Classed {
  uint8_t symbol;
  int raw_bits;
};

Classed classify(uint64_t v) {
  if (v < 16) return {uint8_t(v), 0};
  const int b = 64 - __builtin_clzll(v);
  return {uint8_t(16 + 4 * (b - 5) + int(v >> (b - 3) & 3)), b - 3};
}

uint64_t number(Form form, const int64_t* ids, size_t i, int64_t smallest) {
  if (form == Form::kOffsets) return uint64_t(ids[i]) - uint64_t(smallest);
  const uint64_t d = uint64_t(ids[i]) - uint64_t(ids[i - 1]);
  return form == Form::kAscending ? d : d << 1 ^ uint64_t(int64_t(d) >> 63);
}

struct Candidate {
  Form form = Form::kStored;
  size_t first = 0;  // index of the first id that has a number
  Coding coding;
  uint64_t bits = UINT64_MAX;
};

Candidate consider(Form form, const int64_t* ids, size_t n, int64_t smallest, std::vector<uint8_t>& symbols) {
  Candidate c;
  c.form = form;
  c.first = form == Form::kOffsets ? 0 : 1;
  symbols.resize(std::max(symbols.size(), n));
  uint64_t raw = 0, sum = 0;
  for (size_t i = c.first; i < n; ++i) {
    const Classed k = classify(number(form, ids, i, smallest));
    symbols[i - c.first] = k.symbol;
    raw += uint64_t(k.raw_bits);
    sum += k.symbol;
  }
  const size_t m = n - c.first;
  SymbolCounter counter;
  counter.add(symbols.data(), m);
  Histogram histogram;
  counter.total(histogram);
  c.coding = choose_coding(histogram, entropy_q16(histogram.data(), 256), m, 0, 0, false, m ? (sum << 8) / m : 0);
  c.bits = c.coding.bits + raw;
  return c;
}

// Least significant bit first.
class BitWriter {
 public:
  explicit BitWriter(Writer& out) : out_(out) {}
  void put(uint64_t bits, int width) {
    while (width > 0) {
      const int part = std::min(width, 32);
      acc_ |= (bits & ((uint64_t(1) << part) - 1)) << used_;
      bits >>= part;
      width -= part;
      for (used_ += part; used_ >= 8; used_ -= 8, acc_ >>= 8) out_.byte(uint8_t(acc_));
    }
  }
  void finish() {
    if (used_) out_.byte(uint8_t(acc_));
  }

 private:
  Writer& out_;
  uint64_t acc_ = 0;
  int used_ = 0;
};

class BitReader {
 public:
  BitReader(const uint8_t* in, size_t size) : in_(in), bits_(uint64_t(size) * 8) {}
  uint64_t take(int width) {
    expect(uint64_t(width) <= bits_ - at_, "raw bits: the block ends inside them");
    uint64_t value = 0;
    for (int got = 0; got < width;) {
      const int shift = int(at_ & 7), part = std::min(8 - shift, width - got);
      value |= uint64_t(in_[at_ >> 3] >> shift & ((1 << part) - 1)) << got;
      got += part;
      at_ += uint64_t(part);
    }
    return value;
  }
  uint64_t left() const { return bits_ - at_; }

 private:
  const uint8_t* in_;
  uint64_t bits_, at_ = 0;
};

size_t store(const int64_t* ids, size_t n, uint8_t* out) {
  Writer writer(out, ids_max_bytes(n));
  writer.varint(n);
  writer.byte(uint8_t(Form::kStored));
  writer.bytes(ids, n * 8);
  return writer.size();
}

void write_numbers(const Kernels& kernels, const Candidate& c, const int64_t* ids, size_t n, int64_t smallest,
                   Scratch& scratch, Writer& out) {
  const size_t m = n - c.first;
  auto& symbols = scratch.symbols;
  for (size_t i = c.first; i < n; ++i) symbols[i - c.first] = classify(number(c.form, ids, i, smallest)).symbol;
  if (c.coding.mode == Mode::kPacked) {
    scratch.refs.assign(symbols.begin(), symbols.begin() + std::ptrdiff_t(m));
    out.byte(uint8_t(c.coding.width << 2));
    pack_bits(scratch.refs.data(), m, c.coding.width, out);
  } else {
    write_symbols(kernels, c.coding, symbols.data(), m, 1, scratch.slots, out);
  }
  BitWriter raw(out);
  for (size_t i = c.first; i < n; ++i) {
    const uint64_t v = number(c.form, ids, i, smallest);
    raw.put(v, classify(v).raw_bits);
  }
  raw.finish();
}

}  // namespace

size_t encode_ids(const Kernels& kernels, const int64_t* ids, size_t n, Scratch& scratch, uint8_t* out) {
  if (n == 0) return store(ids, n, out);
  const int64_t smallest = *std::min_element(ids, ids + n);
  Candidate best;
  if (std::is_sorted(ids, ids + n)) {
    best = consider(Form::kAscending, ids, n, smallest, scratch.symbols);
  } else {
    best = consider(Form::kDifferences, ids, n, smallest, scratch.symbols);
    const Candidate offsets = consider(Form::kOffsets, ids, n, smallest, scratch.symbols);
    if (offsets.bits < best.bits) best = offsets;
  }
  Writer writer(out, ids_max_bytes(n));
  writer.varint(n);
  writer.byte(uint8_t(best.form));
  writer.signed_varint(best.form == Form::kOffsets ? smallest : ids[0]);
  write_numbers(kernels, best, ids, n, smallest, scratch, writer);
  const bool worse = writer.overflowed() || writer.size() > 8 * n;
  return worse ? store(ids, n, out) : writer.size();
}

uint64_t count_ids(const uint8_t* block, size_t size) {
  Reader in(block, size, block + size);
  return in.varint("count");
}

void decode_ids(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end, size_t n,
                Scratch& scratch, int64_t* out) {
  Reader in(block, size, readable_end);
  const uint64_t count = in.varint("count");
  if (count != n)
    throw FormatError("count: the block has " + std::to_string(count) + " ids, expected " + std::to_string(n));
  const uint8_t byte = in.byte("form");
  expect(byte <= uint8_t(Form::kOffsets), "form: outside 0..3");
  const Form form = Form(byte);
  if (form == Form::kStored) {
    const uint8_t* stored = in.take(uint64_t(n) * 8, "stored ids");
    if (n) std::memcpy(out, stored, n * 8);
    return expect(in.left() == 0, "block: bytes after its end");
  }
  expect(n > 0, "form: an empty list is stored");
  const uint64_t reference = uint64_t(in.signed_varint("reference"));
  const size_t first = form == Form::kOffsets ? 0 : 1, m = n - first;
  auto& symbols = scratch.refs;
  symbols.resize(std::max(symbols.size(), m));
  const SequenceReader sequence(in, m);
  expect(!sequence.log_group() && !sequence.low_bits(), "sequence kind: classes come one to a symbol");
  sequence.values(kernels, symbols.data(), 256, "class");
  const size_t raw_size = in.left();
  BitReader raw(in.take(raw_size, "raw bits"), raw_size);
  if (first) out[0] = int64_t(reference);
  uint64_t previous = reference;
  for (size_t i = 0; i < m; ++i) {
    uint64_t v = symbols[i];
    if (v >= 16) {
      const int b = int((v - 16) / 4) + 5;
      v = (4 | (v & 3)) << (b - 3) | raw.take(b - 3);
    }
    if (form == Form::kDifferences) v = v >> 1 ^ (0 - (v & 1));
    const uint64_t id = (form == Form::kOffsets ? reference : previous) + v;
    out[first + i] = int64_t(previous = id);
  }
  expect(raw.left() < 8, "block: bytes after its end");
}

}  // namespace laconic
