// The codes of a block: which digits form a symbol, which codes are left out, and the bytes.
#pragma once

#include "scratch.h"
#include "sequence.h"

namespace laconic {

constexpr uint64_t kFewOutliers = 16;  // below that many, each is written by itself

// What the choice of a form rests on: all codes of a small block, runs of a large one.
struct CodeCounts {
  Histogram by_code{};   // index: code + 128; wide codes: their high part
  uint64_t counted = 0, total = 0;
  uint64_t entropy_q16 = 0;
  int low = 0, high = 0, median = 0;
};
CodeCounts count_codes(const int8_t* codes, size_t n);
CodeCounts count_codes(const int16_t* codes, size_t n, int low_bits);

// Writes minimum, sequence and outliers; narrow codes are overwritten.
// Returns the mode, which decides the form of a block without duplicates.
Mode write_codes(const Kernels& kernels, const CodeCounts& counts, int8_t* codes, size_t n, int threads,
                 Scratch& scratch, Writer& out);
Mode write_codes(const Kernels& kernels, const CodeCounts& counts, const int16_t* codes, size_t n, int low_bits,
                 int threads, Scratch& scratch, Writer& out);

class CodeReader {
 public:
  CodeReader(Reader& in, const Kernels& kernels, uint64_t n);

  bool wide() const { return wide_; }
  bool packed() const { return sequence_.mode() == Mode::kPacked; }

  // The codes come in independent pieces of at most piece_codes(). A piece may write up to
  // seven codes more than it has, if it is the last: a group is always written whole.
  struct Piece {
    uint64_t first;
    size_t count;
  };
  size_t piece_codes() const { return kChunkSymbols << sequence_.log_group(); }
  size_t pieces() const { return size_t((n_ + piece_codes() - 1) / piece_codes()); }
  uint64_t first_code(size_t piece) const { return uint64_t(piece) * piece_codes(); }
  template <typename Code>
  Piece decode(const Kernels& kernels, size_t piece, uint8_t* symbols, Code* codes) const;

  // All codes in one stream that the caller decodes, if they are; then place() makes codes of its symbols: int16_t if they
  // are wide, otherwise int8_t, and as many as whole groups have.
  std::optional<Stream> lone_stream(uint8_t* symbols) const { return sequence_.lone_stream(symbols); }
  void place(const Kernels& kernels, const uint8_t* symbols, int8_t* codes) const;
  void place(const Kernels& kernels, const uint8_t* symbols, int16_t* codes) const;

  const std::vector<Patch>& outliers() const { return outliers_; }

 private:
  void read_outliers(Reader& in, const Kernels& kernels);
  void add_outlier(uint64_t gap, uint64_t code);

  uint64_t n_;
  int64_t minimum_;
  SequenceReader sequence_;
  bool wide_;
  std::vector<Patch> outliers_;  // bits: the code
};

}  // namespace laconic
