// A sequence of small integers on the wire: packed, or Huffman-coded in independent chunks.
// docs/formats/sequence.md is the normative text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bytes.h"
#include "coding.h"
#include "kernels.h"

namespace laconic {

// Writes all that follows from `coding` for `n` symbols, which are the bytes given minus `minimum`,
// modulo 256: subtracting it in the table saves a pass over the bytes.
void write_symbols(const Kernels& kernels, const Coding& coding, const uint8_t* bytes, uint8_t minimum, size_t n,
                   int threads, std::vector<uint8_t>& slots, Writer& out);

// Values as choose_for_values decided.
void write_values(const Kernels& kernels, const Coding& coding, const uint32_t* values, size_t n,
                  std::vector<uint8_t>& scratch, std::vector<uint8_t>& slots, Writer& out);

// A parsed sequence; chunks decode in any order.
class SequenceReader {
 public:
  // `n` values; throws FormatError unless everything fits together.
  SequenceReader(const Kernels& kernels, Reader& in, uint64_t n);
  SequenceReader(const SequenceReader&) = delete;  // the decoder points into it

  Mode mode() const { return mode_; }
  int log_group() const { return log_group_; }
  int low_bits() const { return low_bits_; }
  int width() const { return width_; }
  size_t chunks() const { return chunks_; }
  size_t symbols() const { return symbols_; }

  // Symbols of chunk c, at most kChunkSymbols of them; returns how many.
  size_t decode_chunk(size_t c, uint8_t* symbols) const;

  // Its symbols, which the caller decodes, if they are one stream by itself; `symbols` has room for kManyStreams.
  std::optional<Stream> lone_stream(uint8_t* symbols) const;

  // Puts below each of `values` the low bits, or, packed, the values, of as many from `first` on, which is a multiple of 8.
  void append_raw(uint64_t first, size_t count, uint32_t* values) const;
  // Packed with 1 to 8 bits: as many values from `first` on, which is a multiple of 8, plus `minimum`, modulo 256; whole
  // groups of 8 are written.
  void unpack(uint64_t first, size_t count, int minimum, int8_t* codes) const;

  // All values, each below `limit`.
  void values(uint32_t* out, uint32_t limit, const char* field) const;

  // All values, each below 2, eight to a byte, the first lowest; what the last byte has beyond them is anything.
  void bits(std::vector<uint8_t>& out, std::vector<uint32_t>& scratch, const char* field) const;

 private:
  struct Chunk {
    const uint8_t* data;
    size_t size;
  };
  void read_code(Reader& in);

  const Kernels& kernels_;
  uint64_t n_;
  size_t symbols_ = 0;
  Mode mode_;
  int log_group_ = 0, low_bits_ = 0, width_ = 0;
  Chunk& chunk(size_t c) { return c ? later_chunks_[c - 1] : first_chunk_; }
  const Chunk& chunk(size_t c) const { return c ? later_chunks_[c - 1] : first_chunk_; }

  // Short sequences get along without memory of their own: one chunk, and a table of single symbols.
  size_t chunks_ = 0;
  Chunk first_chunk_;
  std::vector<Chunk> later_chunks_;
  HuffmanDecoder decoder_{};
  uint16_t table_[kDecoderRoom];
  std::unique_ptr<uint32_t[]> runs_;
  uint8_t lengths_[256];  // beside runs_
  const uint8_t* raw_ = nullptr;
  size_t raw_size_ = 0;
  const uint8_t* readable_end_;
};

}  // namespace laconic
