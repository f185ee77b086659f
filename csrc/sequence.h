// A sequence of small integers on the wire: packed, or Huffman-coded in independent chunks.
// docs/formats/sequence.md is the normative text.
#pragma once

#include <cstdint>
#include <vector>

#include "bytes.h"
#include "huffman_code.h"
#include "kernels.h"

namespace laconic {

inline constexpr size_t kChunkSymbols = 32768;
inline constexpr size_t kManyStreams = 384;  // symbols from which a chunk has six streams
inline constexpr size_t kByteSizes = 1008;   // symbols up to which stream sizes fit a byte: 42 quads of 12-bit codes
// Stream sizes, six paddings and the slack of the encoder included; fits 16 bits.
inline constexpr size_t kMaxChunkBytes = kChunkSymbols * kMaxCodeLength / 8 + 64;

enum class Mode : uint8_t { kPacked = 0, kStatic = 1, kCustom = 2 };

// Which code, and what it will cost.
struct Coding {
  Mode mode = Mode::kPacked;
  int width = 0;           // packed: bits per value
  int log_group = 0;       // Huffman: log2 of values per symbol
  int low_bits = 0;        // Huffman: raw bits below the symbol
  Shape shape = Shape::kRanked;
  int level = 0;
  uint64_t bits = 0;       // the cost, headers included
  Lengths lengths{};       // custom
};

// Counts symbols. Four counters each: neighbours are often equal, and would wait for each other.
class SymbolCounter {
 public:
  void add(const uint8_t* symbols, size_t n);
  void total(Histogram& histogram) const;

 private:
  uint32_t lanes_[4][256] = {};
};

// The cheapest code for n symbols with this histogram and entropy. `mean_q8` is the mean
// distance of a digit from its centre. Packed is considered for log_group 0 only.
Coding choose_coding(const Histogram& histogram, uint64_t entropy_q16, uint64_t n, int log_group, int low_bits,
                     bool centred, uint64_t mean_q8);

// Writes all that follows from `coding` for `n` symbols, which are the bytes given minus `minimum`,
// modulo 256: subtracting it in the table saves a pass over the bytes.
void write_symbols(const Kernels& kernels, const Coding& coding, const uint8_t* bytes, uint8_t minimum, size_t n,
                   int threads, std::vector<uint8_t>& slots, Writer& out);

// Unsigned values below `limit`: the cheapest of packed, one value per symbol, and as many
// values per symbol as fit; then the bytes.
Coding choose_for_values(const uint32_t* values, size_t n, uint32_t limit, std::vector<uint8_t>& scratch);
void write_values(const Kernels& kernels, const Coding& coding, const uint32_t* values, size_t n,
                  std::vector<uint8_t>& scratch, std::vector<uint8_t>& slots, Writer& out);

void pack_bits(const uint32_t* values, size_t n, int width, Writer& out);

// A parsed sequence; chunks decode in any order.
class SequenceReader {
 public:
  // `n` values; throws FormatError unless everything fits together.
  SequenceReader(Reader& in, uint64_t n);

  Mode mode() const { return mode_; }
  int log_group() const { return log_group_; }
  int low_bits() const { return low_bits_; }
  int width() const { return width_; }
  size_t chunks() const { return chunks_.size(); }
  size_t symbols() const { return symbols_; }

  // Symbols of chunk c, at most kChunkSymbols of them; returns how many.
  size_t decode_chunk(const Kernels& kernels, size_t c, uint8_t* symbols) const;

  // Low bits of value i, or, packed, the value.
  uint32_t raw(uint64_t i) const;

  // All values, each below `limit`.
  void values(const Kernels& kernels, uint32_t* out, uint32_t limit, const char* field) const;

 private:
  struct Chunk {
    const uint8_t* data;
    size_t size;
  };
  void read_code(Reader& in);
  void add_raw(uint32_t* out) const;  // shifts the low bits in

  uint64_t n_;
  size_t symbols_ = 0;
  Mode mode_;
  int log_group_ = 0, low_bits_ = 0, width_ = 0;
  std::vector<Chunk> chunks_;
  HuffmanDecoder decoder_{};
  std::vector<uint16_t> table_;
  const uint8_t* raw_ = nullptr;
  size_t raw_size_ = 0;
  const uint8_t* readable_end_;
};

}  // namespace laconic
