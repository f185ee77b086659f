#include "rows_block.h"

#include <algorithm>
#include <cstring>

#include "parallel.h"

namespace laconic {
namespace {

constexpr size_t kShare = size_t(1) << 18;            // values per parallel task
constexpr uint32_t kMaxRepeated = uint32_t(1) << 23;  // what 8 + 15 bits can number

// How the rows of a block are told apart, if naming each row's double costs less than repeating it.
struct References {
  bool worthwhile = false;
  Coding flags, indices;
};

template <typename Code>
CodeCounts count(const Code* codes, size_t n, int low_bits) {
  if constexpr (sizeof(Code) == 1) return count_codes(codes, n);
  else return count_codes(codes, n, low_bits);
}

template <typename Code>
void gather(const Code* codes, size_t cols, const std::vector<uint32_t>& rows, std::vector<Code>& out) {
  if (out.size() < rows.size() * cols) out.resize(rows.size() * cols);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(&out[i * cols], &codes[size_t(rows[i]) * cols], cols * sizeof(Code));
}

uint64_t estimated_bits(const CodeCounts& counts) {
  return counts.entropy_q16 / counts.counted * counts.total >> 16;
}

// Two estimates must agree, because each is fooled by something: what the repeated rows would cost
// as distinct ones do (too much where they are the emptier ones), and the entropies of all codes and of the
// distinct rows' codes (of large blocks only samples, too coarse where little repeats).
References choose_references(const Distinct& d, size_t rows, size_t cols, const CodeCounts& all,
                             const CodeCounts& distinct, std::vector<uint8_t>& symbols) {
  References r;
  r.indices = choose_for_values(d.indices.data(), d.indices.size(), d.repeated, symbols);
  uint64_t bits = r.indices.bits;
  if (d.single) {
    r.flags = choose_for_values(d.flags.data(), rows, 2, symbols);
    bits += r.flags.bits;
  }
  const uint64_t saved = (rows - d.first.size()) * cols * (distinct.entropy_q16 / distinct.counted) >> 16;
  r.worthwhile = saved > bits && estimated_bits(distinct) + bits < estimated_bits(all);
  return r;
}

template <typename Code>
Form write_block(const Kernels& kernels, size_t rows, size_t cols, const Lattice& lattice, int threads,
                 Scratch& scratch, std::vector<Code>& codes, std::vector<Code>& gathered, Writer& out) {
  Code* source = codes.data();
  size_t n = rows * cols;
  const Distinct& d = scratch.distinct;
  References references;
  CodeCounts counts = count(source, n, lattice.low_bits);
  if (rows > 1) {
    const size_t distinct =
        find_distinct(reinterpret_cast<const uint8_t*>(source), rows, cols * sizeof(Code), scratch.distinct);
    if (distinct < rows && d.repeated <= kMaxRepeated) {
      gather(source, cols, d.first, gathered);
      const CodeCounts distinct_counts = count(gathered.data(), distinct * cols, lattice.low_bits);
      references = choose_references(d, rows, cols, counts, distinct_counts, scratch.symbols);
      if (references.worthwhile) counts = distinct_counts;
    }
  }
  out.byte(0);  // the form, known at the end
  write_header(lattice.grid, out);
  if (references.worthwhile) {
    source = gathered.data();
    n = d.first.size() * cols;
    out.varint(d.repeated);
    out.varint(d.single);
    if (d.single)
      write_values(kernels, references.flags, d.flags.data(), rows, scratch.symbols, scratch.slots, out);
    write_values(kernels, references.indices, d.indices.data(), d.indices.size(), scratch.symbols, scratch.slots, out);
  }
  Mode mode;
  if constexpr (sizeof(Code) == 1)
    mode = write_codes(kernels, counts, source, n, threads, scratch, out);
  else
    mode = write_codes(kernels, counts, source, n, lattice.low_bits, threads, scratch, out);
  write_patches(scratch.patches, out);
  return references.worthwhile ? Form::kDeduplicated : mode == Mode::kPacked ? Form::kPacked : Form::kEntropy;
}

// Of the first n, lowest first.
size_t count_bits(const uint8_t* bytes, size_t n) {
  size_t count = 0, i = 0;
  for (; i + 64 <= n; i += 64) {
    uint64_t word;
    std::memcpy(&word, bytes + i / 8, 8);
    count += size_t(__builtin_popcountll(word));
  }
  for (; i < n; ++i) count += bytes[i / 8] >> (i % 8) & 1u;
  return count;
}

// Fills scratch.refs: for every row the number of its distinct row. Returns how many are distinct.
uint64_t read_references(Reader& in, const Kernels& kernels, size_t rows, Scratch& scratch) {
  const uint64_t repeated = in.varint("repeated rows"), single = in.varint("single rows");
  expect(repeated >= 1 && repeated <= rows && single < rows && repeated + single < rows,
         "distinct rows: not fewer than the rows");
  auto& refs = scratch.refs;
  auto& indices = scratch.distinct.indices;
  auto& singles = scratch.symbols;
  if (refs.size() < rows) refs.resize(rows);
  if (indices.size() < rows + 8) indices.resize(rows + 8);  // some more, read but not used
  if (single) {
    SequenceReader(kernels, in, rows).bits(singles, indices, "single-row flags");
    expect(count_bits(singles.data(), rows) == single,
           "single-row flags: their number is not the number of single rows");
  }
  uint32_t* const numbers = single ? indices.data() : refs.data();
  SequenceReader(kernels, in, rows - single).values(numbers, uint32_t(repeated), "row references");
  if (single) kernels.merge_references(singles.data(), indices.data(), rows, uint32_t(repeated), refs.data());
  return repeated + single;
}

template <typename Code>
void dequantize(const Kernels& kernels, const Code* codes, size_t n, const GridHeader& h, float* out) {
  if constexpr (sizeof(Code) == 1) kernels.dequantize8(codes, n, h.step, h.base, out);
  else kernels.dequantize16(codes, n, h.step, h.base, out);
}

template <typename Code>
void expand(const Kernels& kernels, const Code* codes, const uint32_t* refs, size_t rows, size_t cols,
            const GridHeader& h, float* out) {
  if constexpr (sizeof(Code) == 1) kernels.expand8(codes, refs, rows, cols, h.step, h.base, out);
  else kernels.expand16(codes, refs, rows, cols, h.step, h.base, out);
}

void place_outliers(const CodeReader& reader, const GridHeader& h, float* out) {
  for (const Patch& o : reader.outliers()) out[o.index] = float(int32_t(o.bits) + h.base) * h.step;
}

// No references: every piece goes straight to the output.
template <typename Code>
void decode_plain(const Kernels& kernels, const CodeReader& reader, const GridHeader& h, int threads, float* out) {
  const size_t room = reader.piece_codes();
  parallel_for(reader.pieces(), threads, [&](size_t piece) {
    static thread_local std::vector<uint8_t> symbols(kChunkSymbols);
    static thread_local std::vector<Code> codes;
    if (codes.size() < room) codes.resize(room);
    const CodeReader::Piece p = reader.decode(kernels, piece, symbols.data(), codes.data());
    dequantize(kernels, codes.data(), p.count, h, out + p.first);
  });
  place_outliers(reader, h, out);
}

template <typename Code>
void decode_shared(const Kernels& kernels, const CodeReader& reader, const GridHeader& h, uint64_t distinct,
                   size_t rows, size_t cols, int threads, const std::vector<uint32_t>& refs,
                   std::vector<Code>& codes, float* out) {
  // one piece may write up to a group of 8 codes past the end
  if (codes.size() < distinct * cols + 8) codes.resize(distinct * cols + 8);
  parallel_for(reader.pieces(), threads, [&](size_t piece) {
    static thread_local std::vector<uint8_t> symbols(kChunkSymbols);
    reader.decode(kernels, piece, symbols.data(), codes.data() + reader.first_code(piece));
  });
  for (const Patch& o : reader.outliers()) codes[o.index] = Code(int32_t(o.bits));
  const size_t share = std::max<size_t>(1, kShare / cols);
  parallel_for((rows + share - 1) / share, threads, [&](size_t part) {
    const size_t first = part * share, count = std::min(share, rows - first);
    expand(kernels, codes.data(), refs.data() + first, count, cols, h, out + first * cols);
  });
}

// From the symbols of an open block to its values.
template <typename Code>
void place_codes(const Kernels& kernels, const OpenBlock& open) {
  Code codes[8 * kManyStreams + 64];  // a symbol holds at most eight
  open.codes->place(kernels, open.symbols, codes);
  const GridHeader& h = open.header;
  if (open.shared) {
    for (const Patch& o : open.codes->outliers()) codes[o.index] = Code(int32_t(o.bits));
    expand(kernels, codes, open.refs.data(), open.rows, open.cols, h, open.out);
  } else {
    dequantize(kernels, codes, open.rows * open.cols, h, open.out);
    place_outliers(*open.codes, h, open.out);
  }
}

}  // namespace

size_t encode_rows(const Kernels& kernels, const float* x, size_t rows, size_t cols, const BoundSpec& bound,
                   int threads, Scratch& scratch, uint8_t* out) {
  const size_t n = rows * cols;
  const Quantized q = quantize_block(kernels, x, n, bound, threads, scratch, out);
  if (q.finished) return q.size;
  Writer writer(out, max_block_bytes(n));
  const Form form =
      q.lattice.low_bits == 0
          ? write_block(kernels, rows, cols, q.lattice, threads, scratch, scratch.codes8, scratch.distinct8, writer)
          : write_block(kernels, rows, cols, q.lattice, threads, scratch, scratch.codes16, scratch.distinct16, writer);
  if (writer.overflowed()) return write_stored(x, n, out);
  out[0] = uint8_t(form);
  return writer.size();
}

bool open_rows(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end, size_t rows,
               size_t cols, int threads, Scratch& scratch, float* out, OpenBlock& open) {
  const size_t n = rows * cols;
  Reader in(block, size, readable_end);
  if (!n) {
    expect(size == 0, "block: bytes for an empty shape");
    return false;
  }
  const uint8_t byte = in.byte("form");
  expect(byte <= uint8_t(Form::kDeduplicated), "form: outside 0..4");
  const Form form = Form(byte);
  if (!read_plain_form(form, in, n, out)) {
    const GridHeader header = read_header(in);
    const bool shared = form == Form::kDeduplicated;
    const uint64_t distinct = shared ? read_references(in, kernels, rows, scratch) : rows;
    const CodeReader& reader = open.codes.emplace(in, kernels, distinct * cols);
    expect(shared || (form == Form::kPacked) == reader.packed(), "form: it does not match the code sequence");
    const auto stream = n <= kShare ? reader.lone_stream(open.symbols) : std::nullopt;  // more rows are for several threads
    if (stream) {
      open.stream = *stream;
      open.in = in;
      open.header = header;
      open.shared = shared;
      if (shared) open.refs.swap(scratch.refs);
      open.rows = rows;
      open.cols = cols;
      open.out = out;
      return true;
    }
    if (shared && reader.wide())
      decode_shared(kernels, reader, header, distinct, rows, cols, threads, scratch.refs, scratch.distinct16, out);
    else if (shared)
      decode_shared(kernels, reader, header, distinct, rows, cols, threads, scratch.refs, scratch.distinct8, out);
    else if (reader.wide())
      decode_plain<int16_t>(kernels, reader, header, threads, out);
    else
      decode_plain<int8_t>(kernels, reader, header, threads, out);
    apply_patches(in, n, out);
  }
  expect(in.left() == 0, "block: bytes after its end");
  return false;
}

void close_rows(const Kernels& kernels, OpenBlock& open) {
  if (open.codes->wide()) place_codes<int16_t>(kernels, open);
  else place_codes<int8_t>(kernels, open);
  apply_patches(*open.in, open.rows * open.cols, open.out);
  expect(open.in->left() == 0, "block: bytes after its end");
}

void decode_rows(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end,
                 size_t rows, size_t cols, int threads, Scratch& scratch, float* out) {
  OpenBlock open;
  if (!open_rows(kernels, block, size, readable_end, rows, cols, threads, scratch, out, open)) return;
  const Stream& s = open.stream;
  expect(kernels.huffman_decode(s.in, &s.size, 1, readable_end, s.decoder, s.symbols, s.n),
         "stream: it does not end where its size says");
  close_rows(kernels, open);
}

}  // namespace laconic
