#include "sc24_blocks.h"

#include <algorithm>
#include <cstring>

#include "bytes.h"
#include "parallel.h"
#include "quantized_block.h"
#include "sequence.h"

namespace laconic {
namespace {

constexpr size_t kWindowRows = 2048;  // rows that are searched and decoded on their own
constexpr size_t kMaxMatch = 255;

// Longest run of rows from `at` that also starts 1..window rows earlier; nearest on a tie.
struct Match {
  size_t distance = 0, length = 0;
};

Match find_match(const int8_t* rows, const uint64_t* keys, size_t at, size_t end, size_t first, size_t cols,
                 size_t window) {
  Match best;
  const size_t farthest = std::min(window, at - first);
  for (size_t distance = 1; distance <= farthest; ++distance) {
    size_t length = 0;
    while (at + length < end && length < kMaxMatch && keys[at + length] == keys[at + length - distance] &&
           !std::memcmp(rows + (at + length) * cols, rows + (at + length - distance) * cols, cols))
      ++length;
    if (length > best.length) best = {distance, length};
  }
  return best;
}

// A literal row is 0 and its codes; a match is its distance and its length.
void write_rows(const int8_t* codes, size_t rows, size_t cols, size_t window, Scratch& scratch, Writer& out) {
  auto& keys = scratch.distinct.hashes;
  keys.resize(rows);
  for (size_t i = 0; i < rows; ++i) keys[i] = hash_row(reinterpret_cast<const uint8_t*>(codes) + i * cols, cols);
  for (size_t first = 0; first < rows; first += kWindowRows) {
    const size_t end = std::min(rows, first + kWindowRows);
    for (size_t i = first; i < end;) {
      const Match match = find_match(codes, keys.data(), i, end, first, cols, window);
      out.byte(uint8_t(match.distance));
      if (match.length) {
        out.byte(uint8_t(match.length));
        i += match.length;
      } else {
        out.bytes(codes + i * cols, cols);
        ++i;
      }
      if (out.overflowed()) return;
    }
  }
}

void read_rows(Reader& in, const Kernels& kernels, size_t rows, size_t cols, const GridHeader& h, float* out) {
  for (size_t i = 0; i < rows;) {
    const size_t inside = i % kWindowRows, distance = in.byte("distance");
    if (distance == 0) {
      const auto* codes = reinterpret_cast<const int8_t*>(in.take(cols, "literal row"));
      kernels.dequantize8(codes, cols, h.step, h.base, out + i * cols);
      ++i;
      continue;
    }
    const size_t length = in.byte("match length");
    expect(distance <= inside, "distance: before the first row of its window");
    expect(length >= 1 && length <= std::min(rows - i, kWindowRows - inside), "match length: beyond the window");
    for (size_t k = 0; k < length; ++k, ++i) std::memcpy(out + i * cols, out + (i - distance) * cols, cols * 4);
  }
}

// The block up to its codes; wide codes are not these encoders' business, so they are stored.
bool start_block(const Quantized& q, const float* x, size_t n, Form form, Writer& writer, uint8_t* out, size_t* size) {
  if (q.finished || q.lattice.low_bits) {
    *size = q.finished ? q.size : write_stored(x, n, out);
    return false;
  }
  writer.byte(uint8_t(form));
  write_header(q.lattice.grid, writer);
  return true;
}

// For symbols that are the bytes minus 128.
Coding huffman_coding(const uint8_t* bytes, size_t n) {
  Histogram histogram{};
  count_symbols(bytes, n, histogram);
  Histogram counts;
  std::rotate_copy(histogram.begin(), histogram.begin() + 128, histogram.end(), counts.begin());
  if (std::count(counts.begin(), counts.end(), 0u) == 255) counts[counts[0] ? 1 : 0] = 1;  // a code needs two symbols
  Coding coding;
  coding.mode = Mode::kCustom;
  coding.lengths = code_lengths(counts);
  return coding;
}

}  // namespace

size_t encode_vector_lz(const Kernels& kernels, const float* x, size_t rows, size_t cols, const BoundSpec& bound,
                        int window, Scratch& scratch, uint8_t* out) {
  const size_t n = rows * cols;
  const Quantized q = quantize_block(kernels, x, n, bound, 1, scratch, out);
  Writer writer(out, max_block_bytes(n));
  size_t size;
  if (!start_block(q, x, n, Form::kVectorLz, writer, out, &size)) return size;
  write_rows(scratch.codes8.data(), rows, cols, size_t(window), scratch, writer);
  write_patches(scratch.patches, writer);
  return writer.overflowed() ? write_stored(x, n, out) : writer.size();
}

size_t encode_huffman(const Kernels& kernels, const float* x, size_t rows, size_t cols, const BoundSpec& bound,
                      int threads, Scratch& scratch, uint8_t* out) {
  const size_t n = rows * cols;
  const Quantized q = quantize_block(kernels, x, n, bound, threads, scratch, out);
  Writer writer(out, max_block_bytes(n));
  size_t size;
  if (!start_block(q, x, n, Form::kHuffman, writer, out, &size)) return size;
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(scratch.codes8.data());
  write_symbols(kernels, huffman_coding(bytes, n), bytes, 128, n, threads, scratch.slots, writer);
  write_patches(scratch.patches, writer);
  return writer.overflowed() ? write_stored(x, n, out) : writer.size();
}

size_t encode_hybrid(const Kernels& kernels, const float* x, size_t rows, size_t cols, const BoundSpec& bound,
                     int window, double lz_penalty, double huffman_penalty, int threads, Scratch& scratch,
                     uint8_t* out) {
  const size_t n = rows * cols;
  if (!n) return 0;
  auto& other = scratch.other;
  if (other.size() < max_block_bytes(n)) other.resize(max_block_bytes(n));
  const size_t lz = encode_vector_lz(kernels, x, rows, cols, bound, window, scratch, out);
  const size_t huffman = encode_huffman(kernels, x, rows, cols, bound, threads, scratch, other.data());
  const double raw = double(n) * 4.0;
  if (double(lz) / raw + lz_penalty <= double(huffman) / raw + huffman_penalty) return lz;
  std::memcpy(out, other.data(), huffman);
  return huffman;
}

void decode_sc24(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end,
                 size_t rows, size_t cols, int threads, Scratch&, float* out) {
  const size_t n = rows * cols;
  Reader in(block, size, readable_end);
  if (!n) return expect(size == 0, "block: bytes for an empty shape");
  const Form form = Form(in.byte("form"));
  if (!read_plain_form(form, in, n, out)) {
    expect(form == Form::kVectorLz || form == Form::kHuffman, "form: not one of 0, 1, 5, 6");
    const GridHeader header = read_header(in);
    if (form == Form::kVectorLz) {
      read_rows(in, kernels, rows, cols, header, out);
    } else {
      const SequenceReader sequence(kernels, in, n);
      expect(sequence.mode() == Mode::kCustom && !sequence.log_group() && !sequence.low_bits(),
             "sequence kind: not plain Huffman");
      parallel_for(sequence.chunks(), threads, [&](size_t c) {
        static thread_local std::vector<uint8_t> symbols(kChunkSymbols);
        const size_t m = sequence.decode_chunk(c, symbols.data());
        int8_t* codes = reinterpret_cast<int8_t*>(symbols.data());
        kernels.ungroup(symbols.data(), m, 0, -128, codes);
        kernels.dequantize8(codes, m, header.step, header.base, out + c * kChunkSymbols);
      });
    }
    apply_patches(in, n, out);
  }
  expect(in.left() == 0, "block: bytes after its end");
}

}  // namespace laconic
