#include "lossless.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "coding.h"
#include "packed_bits.h"
#include "parallel.h"
#include "quantized_block.h"
#include "sequence.h"

namespace laconic {
namespace {

enum class LosslessForm : uint8_t { kFull = 2, kSparse = 3 };  // beside constant and stored

constexpr size_t kPiece = 1024;       // words that are packed or spread at a time, in cache
constexpr size_t kSegment = 1 << 14;  // words per parallel task, a multiple of kPiece and 64
constexpr uint64_t kRestBits = 24;    // of a word without its exponent

size_t segments_of(size_t n) { return (n + kSegment - 1) / kSegment; }
size_t segment_size(size_t n, size_t s) { return std::min(kSegment, n - s * kSegment); }

size_t count_bits(const uint8_t* bits, size_t n) {
  size_t count = 0;
  for (size_t at = 0; at < (n + 7) / 8; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bits + at, std::min<size_t>(8, (n + 7) / 8 - at));
    count += size_t(__builtin_popcountll(word));
  }
  return count;
}

// starts[s] is how many of the words before segment s are not zero; the last entry is of all.
std::vector<size_t> count_segments(const uint8_t* bits, size_t n, int threads) {
  std::vector<size_t> starts(segments_of(n) + 1);
  parallel_for(segments_of(n), threads, [&](size_t s) {
    starts[s + 1] = count_bits(bits + s * kSegment / 8, segment_size(n, s));
  });
  for (size_t s = 1; s < starts.size(); ++s) starts[s] += starts[s - 1];
  return starts;
}

// As choose_for_values for values below 2, which already are eight to a symbol.
Coding choose_for_bits(const uint8_t* bits, size_t n, size_t set) {
  Histogram histogram{};
  const size_t symbols = (n + 7) / 8;
  count_symbols(bits, symbols, histogram);
  Coding packed;
  packed.width = 1;
  packed.bits = n + 8;
  const Coding coded = choose_coding(histogram, symbols, 3, 0, false, (uint64_t(set) << 8) / n);
  return coded.bits < packed.bits ? coded : packed;
}

void write_bits(const Kernels& kernels, const Coding& coding, const uint8_t* bits, size_t n, int threads,
                std::vector<uint8_t>& slots, Writer& out) {
  if (coding.mode != Mode::kPacked) return write_symbols(kernels, coding, bits, 0, (n + 7) / 8, threads, slots, out);
  out.byte(1 << 2);
  out.bytes(bits, (n + 7) / 8);
}

// How far exponents are below the largest one, given 255 minus each of them.
void write_exponents(const Kernels& kernels, const uint8_t* inverted, size_t n, int threads, Scratch& scratch,
                     Writer& out) {
  Histogram all{}, ranks{};
  count_symbols(inverted, n, all);
  size_t first = 0;
  while (!all[first]) ++first;
  std::copy(all.begin() + std::ptrdiff_t(first), all.end(), ranks.begin());
  uint64_t sum = 0;
  for (size_t rank = 0; rank < 256; ++rank) sum += uint64_t(ranks[rank]) * rank;
  const Coding coding = choose_coding(ranks, n, 0, 0, false, (sum << 8) / n);
  out.byte(uint8_t(255 - first));
  if (coding.mode != Mode::kPacked)
    return write_symbols(kernels, coding, inverted, uint8_t(first), n, threads, scratch.slots, out);
  out.byte(uint8_t(coding.width << 2));
  if (!coding.width) return;
  auto& values = scratch.refs;
  if (values.size() < n) values.resize(n);
  for (size_t i = 0; i < n; ++i) values[i] = uint32_t(inverted[i] - first);
  pack_bits(values.data(), n, coding.width, out);
}

// Words that are not zero, split; `starts` is empty where all are.
void split_all(const Kernels& kernels, const uint32_t* words, size_t n, const uint8_t* bits,
               const std::vector<size_t>& starts, int threads, uint8_t* rest, uint8_t* inverted) {
  parallel_for(segments_of(n), threads, [&](size_t s) {
    const size_t first = s * kSegment, size = segment_size(n, s);
    if (starts.empty()) return kernels.split_words(words + first, size, rest + 3 * first, inverted + first);
    uint32_t packed[kPiece + 8];
    size_t at = starts[s];
    for (size_t i = first; i < first + size; i += kPiece) {
      const size_t count = kernels.pack_words(words + i, std::min(kPiece, first + size - i), bits + i / 8, packed);
      kernels.split_words(packed, count, rest + 3 * at, inverted + at);
      at += count;
    }
  });
}

void join_all(const Kernels& kernels, const uint8_t* rest, const uint8_t* ranks, uint8_t top, size_t n,
              const uint8_t* bits, const std::vector<size_t>& starts, int threads, uint32_t* words) {
  parallel_for(segments_of(n), threads, [&](size_t s) {
    const size_t first = s * kSegment, size = segment_size(n, s);
    if (starts.empty()) return kernels.join_words(rest + 3 * first, ranks + first, size, top, words + first);
    uint32_t packed[kPiece + 8] = {};
    size_t at = starts[s];
    for (size_t i = first; i < first + size; i += kPiece) {
      const size_t here = std::min(kPiece, first + size - i), count = count_bits(bits + i / 8, here);
      kernels.join_words(rest + 3 * at, ranks + at, count, top, packed);
      at += kernels.spread_words(packed, bits + i / 8, here, words + i);
    }
  });
}

// One rank a byte, whatever the sequence is.
void read_ranks(Reader& in, const Kernels& kernels, size_t n, int threads, Scratch& scratch) {
  const SequenceReader sequence(kernels, in, n);
  expect(!sequence.log_group() && !sequence.low_bits(), "sequence kind: exponents come one to a symbol");
  auto& ranks = scratch.symbols;
  if (ranks.size() < n) ranks.resize(n);
  if (sequence.mode() != Mode::kPacked) {
    parallel_for(sequence.chunks(), threads,
                 [&](size_t c) { sequence.decode_chunk(c, ranks.data() + c * kChunkSymbols); });
    return;
  }
  if (scratch.refs.size() < n) scratch.refs.resize(n);
  sequence.values(scratch.refs.data(), 256, "exponent");
  std::copy_n(scratch.refs.begin(), n, ranks.begin());
}

}  // namespace

size_t encode_lossless(const Kernels& kernels, const float* x, size_t n, int threads, Scratch& scratch, uint8_t* out) {
  if (!n) return 0;
  if (!std::memcmp(x, x + 1, (n - 1) * 4)) return write_constant(bits_of(x[0]), out);
  const auto* const words = reinterpret_cast<const uint32_t*>(x);
  auto& bits = scratch.numbers;
  if (bits.size() < (n + 63) / 64) bits.resize((n + 63) / 64);
  parallel_for(segments_of(n), threads, [&](size_t s) {
    kernels.nonzero_bits32(words + s * kSegment, segment_size(n, s), bits.data() + s * kSegment / 64);
  });
  const auto* const mask = reinterpret_cast<const uint8_t*>(bits.data());
  std::vector<size_t> starts = count_segments(mask, n, threads);
  size_t count = starts.back();
  Writer to(out, max_block_bytes(n));
  Coding coding;
  const bool sparse = count < n && (coding = choose_for_bits(mask, n, count)).bits < kRestBits * (n - count);
  to.byte(uint8_t(sparse ? LosslessForm::kSparse : LosslessForm::kFull));
  if (sparse) {
    write_bits(kernels, coding, mask, n, threads, scratch.slots, to);
  } else {
    starts.clear();
    count = n;
  }
  auto& inverted = scratch.symbols;
  if (inverted.size() < count) inverted.resize(count);
  if (uint8_t* const rest = to.reserve(3 * count)) {
    split_all(kernels, words, n, mask, starts, threads, rest, inverted.data());
    write_exponents(kernels, inverted.data(), count, threads, scratch, to);
  }
  return to.overflowed() ? write_stored(x, n, out) : to.size();
}

void decode_lossless(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end, size_t n,
                     int threads, Scratch& scratch, float* out) {
  Reader in(block, size, readable_end);
  if (!n) return expect(size == 0, "block: bytes for an empty shape");
  const uint8_t form = in.byte("form");
  expect(form <= uint8_t(LosslessForm::kSparse), "form: outside 0..3");
  if (!read_plain_form(Form(form), in, n, out)) {
    std::vector<size_t> starts;
    size_t count = n;
    auto& mask = scratch.other;
    if (LosslessForm(form) == LosslessForm::kSparse) {
      SequenceReader(kernels, in, n).bits(mask, scratch.refs, "nonzero flags");
      if (n % 8) mask[n / 8] = uint8_t(mask[n / 8] & ((1u << n % 8) - 1));
      starts = count_segments(mask.data(), n, threads);
      count = starts.back();
    }
    const uint8_t* const rest = in.take(3 * uint64_t(count), "signs and mantissas");
    const uint8_t top = in.byte("largest exponent");
    read_ranks(in, kernels, count, threads, scratch);
    expect(in.left() == 0, "block: bytes after its end");
    join_all(kernels, rest, scratch.symbols.data(), top, n, mask.data(), starts, threads,
             reinterpret_cast<uint32_t*>(out));
    return;
  }
  expect(in.left() == 0, "block: bytes after its end");
}

}  // namespace laconic
