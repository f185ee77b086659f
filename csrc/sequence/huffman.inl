// Huffman streams: symbols to bits, most significant bit first.
//
//   symbols   0 1 2 3 | 4 5 6 7 | ...      quads of neighbors take turns:
//   stream    0         1         ... 5 0  quad q goes to stream q mod 6
//
// Six dependency chains hide the latency of the table look-up. All that a chain carries from
// one quad to the next is its position in bits: a decoder that keeps the bits themselves and
// refills them runs out of registers, and is slower.

static inline uint64_t load_be(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return __builtin_bswap64(v);
}

static size_t encode_stream(const uint8_t* symbols, size_t n, const uint32_t* codes, size_t first,
                            size_t stride, uint8_t* out) {
  uint8_t* const start = out;
  uint64_t acc = 0;  // filled from the top
  unsigned used = 0;
  const auto put = [&](uint64_t bits, unsigned length) {
    used += length;
    acc |= bits << (64 - used);
    const uint64_t swapped = __builtin_bswap64(acc);
    std::memcpy(out, &swapped, 8);
    out += used >> 3;
    acc <<= used & ~7u;
    used &= 7;
  };
  size_t i = first;
  for (; i + kQuad <= n; i += stride) {
    // lengths sit in the low bits, where sums of entries add them and shifts take them
    const uint64_t a = codes[symbols[i]], b = codes[symbols[i + 1]];
    const uint64_t c = codes[symbols[i + 2]], d = codes[symbols[i + 3]];
    const uint64_t ab = (a >> 8) << (b & 63) | b >> 8;
    const uint64_t cd = (c >> 8) << (d & 63) | d >> 8;
    put(ab << ((c + d) & 63) | cd, unsigned(a + b + c + d) & 63);
  }
  for (; i < n; ++i) put(codes[symbols[i]] >> 8, codes[symbols[i]] & 63);  // the one partial quad
  return size_t(out - start) + (used ? 1 : 0);
}

static void huffman_encode(const uint8_t* symbols, size_t n, const uint32_t* codes, int streams,
                           uint8_t* out, size_t* sizes) {
  for (int k = 0; k < streams; ++k) {
    sizes[k] = encode_stream(symbols, n, codes, size_t(k * kQuad), size_t(streams * kQuad), out);
    out += sizes[k];
  }
}

// A stream read without looking beyond what is readable. Codes that end inside the stream do not depend on what follows it,
// and a position beyond its end is noticed.
struct CarefulReader {
  const uint8_t* in;
  const uint8_t* readable_end;  // bytes from here on count as zero
  uint64_t bit;

  uint32_t window(int size) const {
    const uint64_t at = bit >> 3, all = uint64_t(readable_end - in), left = all < at ? 0 : all - at;
    uint32_t bits = 0;
    if (left >= 4) {
      std::memcpy(&bits, in + at, 4);
      bits = __builtin_bswap32(bits);
    } else {
      for (uint64_t k = 0; k < 4; ++k) bits = bits << 8 | (k < left ? in[at + k] : 0u);
    }
    return (bits << (bit & 7)) >> (32 - size);
  }

  uint8_t next(const uint16_t* table, int log_size) {
    const uint16_t entry = table[window(log_size)];
    bit += entry & 15;
    return uint8_t(entry >> 8);
  }

  // `count` symbols, by runs while whole ones are left.
  void take(const uint32_t* runs, const uint8_t* lengths, uint8_t* out, size_t count) {
    while (count) {
      const uint32_t entry = runs[window(kMaxCodeLength)];
      const size_t whole = entry >> 30;
      if (whole > count) {
        *out++ = uint8_t(entry);
        bit += lengths[uint8_t(entry)];
        --count;
        continue;
      }
      for (size_t k = 0; k < whole; ++k) *out++ = uint8_t(entry >> 8 * k);
      bit += entry >> 24 & 63;
      count -= whole;
    }
  }
};

// Four symbols from `bit` on; returns the position after them. Eight bytes must be readable there:
// seven bits before the first symbol and four codes of twelve are less.
static inline uint64_t decode_quad(const uint8_t* in, uint64_t bit, const uint16_t* table, unsigned shift,
                                   uint8_t* out) {
  uint64_t bits = load_be(in + (bit >> 3)) << (bit & 7);
  const uint16_t a = table[bits >> shift];
  bits <<= a & 63;
  const uint16_t b = table[bits >> shift];
  bits <<= b & 63;
  const uint16_t c = table[bits >> shift];
  bits <<= c & 63;
  const uint16_t d = table[bits >> shift];
  out[0] = uint8_t(a >> 8);
  out[1] = uint8_t(b >> 8);
  out[2] = uint8_t(c >> 8);
  out[3] = uint8_t(d >> 8);
  return bit + (unsigned(a + b + c + d) & 63);  // the lengths are in the low bits
}

// Tables of what windows of 11, 10, ... 0 bits hold: that of b bits begins at 1 << b. From the one of 11 bits come the
// shorter ones: the same where it fits, else what `otherwise` says; an empty entry is 0.
static void shorten(uint32_t* windows, const uint32_t* otherwise) {
  for (uint32_t bits = kMaxCodeLength - 2, n = kRuns / 4; n; --bits, n /= 2) {
    const uint32_t* __restrict const longer = windows + 2 * n;
    const uint32_t* __restrict const other = otherwise + n;
    uint32_t* __restrict const out = windows + n;
    for (uint32_t i = 0; i < n; ++i) {  // without a branch: nobody can foresee it
      const uint32_t entry = longer[2 * i], keep = 0u - uint32_t((entry >> 24 & 63) <= bits);
      out[i] = (entry & keep) | (other[i] & ~keep);
    }
  }
}

// Windows of `width` bits: the code they start with, and what the rest of the window holds according to `rests`.
static void fill_windows(const CanonicalOrder& order, int width, const uint32_t* rests, uint32_t* __restrict out) {
  uint32_t* const end = out + (size_t(1) << width);
  for (size_t i = 0; i < order.count && order.codes[i].length <= width; ++i) {
    const auto [symbol, length] = order.codes[i];
    const size_t span = size_t(1) << (width - length);
    const uint32_t entry = 1u << 30 | uint32_t(length) << 24 | symbol;
    const uint32_t* __restrict const rest = rests + span;
    if (span == 1) *out = entry;
    else
      for (size_t k = 0; k < span; ++k) out[k] = entry + (rest[k] & 0xff000000u) + ((rest[k] & 0xffffu) << 8);
    out += span;
  }
  while (out < end) *out++ = 0;
}

static bool fill_runs(const CanonicalOrder& order, uint32_t* runs) {
  uint32_t sum = 0;  // of lengths under the code's own distribution, in 2^-12
  for (size_t i = 0; i < order.count; ++i) sum += uint32_t(order.codes[i].length) << (kMaxCodeLength - order.codes[i].length);
  if (sum > kMaxCodeLength / 2 << kMaxCodeLength) return false;

  uint32_t none[kRuns / 2], one[kRuns], two[kRuns];  // symbols at most
  std::memset(none, 0, sizeof(none));
  fill_windows(order, kMaxCodeLength - 1, none, one + kRuns / 2);
  shorten(one, none);
  fill_windows(order, kMaxCodeLength - 1, one, two + kRuns / 2);
  shorten(two, one);
  fill_windows(order, kMaxCodeLength, two, runs);
  return true;
}

// Up to three symbols a look-up, for codes that are short. Every stream is written by itself to its part,
// because nobody knows how many symbols a look-up yields; `counts` says how many there are.
// Stops where one stream's end, in symbols or bytes, may be near; `done` and `bit` tell how far each came.
template <int streams>
static void decode_runs(const uint8_t* in, const uint8_t* readable_end, const uint32_t* runs,
                        uint8_t* const* parts, const size_t* counts, size_t* done, uint64_t* bit) {
  constexpr unsigned shift = 64u - unsigned(kMaxCodeLength);
  constexpr int kSideBySide = 3;  // of which every step is taken
  // The highest byte of an entry, loaded once more: there are ports for three loads in a cycle, but for two shifts.
  const uint8_t* const tops = reinterpret_cast<const uint8_t*>(runs) + 3;
  constexpr size_t kLookUps = 4, kMost = 3 * kLookUps, kBytes = (7 + kLookUps * kMaxCodeLength) / 8;
  for (;;) {
    size_t rounds = ~size_t(0);
    for (int k = 0; k < streams; ++k) {
      const uint64_t left = uint64_t(readable_end - in) - (bit[k] >> 3);
      const size_t room = counts[k] - done[k];
      const size_t by_bytes = left < 8 ? 0 : size_t(left - 8) / kBytes;
      const size_t by_symbols = room < 4 ? 0 : (room - 4) / kMost;  // an entry is written as four bytes
      const size_t safe = by_bytes < by_symbols ? by_bytes : by_symbols;
      rounds = safe < rounds ? safe : rounds;
    }
    if (!rounds) return;
    uint8_t* out[streams];
    uint64_t at[streams];
    for (int k = 0; k < streams; ++k) {
      out[k] = parts[k] + done[k];
      at[k] = bit[k];
    }
    for (; rounds; --rounds)
#pragma GCC unroll 6
      for (int first = 0; first < streams; first += kSideBySide) {
        uint64_t bits[kSideBySide];  // the lowest is not needed for codes; shifted along, it tells how many bits they took
#pragma GCC unroll 6
        for (int k = 0; k < kSideBySide; ++k)
          bits[k] = load_be(in + (at[first + k] >> 3)) << (at[first + k] & 7) | 1;
#pragma GCC unroll 4
        for (size_t i = 0; i < kLookUps; ++i)
#pragma GCC unroll 6
          for (int k = 0; k < kSideBySide; ++k) {
            const uint64_t index = bits[k] >> shift;
            const uint32_t entry = runs[index];
            std::memcpy(out[first + k], &entry, 4);  // little-endian; what is not a symbol is overwritten later
            out[first + k] += entry >> 30;
            bits[k] <<= tops[4 * index] & 63;
          }
#pragma GCC unroll 6
        for (int k = 0; k < kSideBySide; ++k) at[first + k] += uint64_t(__builtin_ctzll(bits[k]));
      }
    for (int k = 0; k < streams; ++k) {
      done[k] = size_t(out[k] - parts[k]);
      bit[k] = at[k];
    }
  }
}

// The same for a stream by itself, which waits for every look-up: the bits that follow are loaded before it is known how
// many of them are wanted.
static void decode_run(const uint8_t* in, const uint8_t* readable_end, const uint32_t* runs, uint8_t* part, size_t count,
                       size_t* done, uint64_t* bit) {
  constexpr unsigned shift = 64u - unsigned(kMaxCodeLength);
  const uint8_t* const tops = reinterpret_cast<const uint8_t*>(runs) + 3;
  constexpr size_t kLookUps = 4, kMost = 3 * kLookUps, kBytes = (7 + kLookUps * kMaxCodeLength) / 8;
  uint8_t* out = part + *done;
  uint64_t at = *bit;
  for (;;) {
    const uint64_t left = uint64_t(readable_end - in) - (at >> 3);
    const size_t room = count - size_t(out - part);
    const size_t by_bytes = left < 16 ? 0 : size_t(left - 16) / kBytes;
    const size_t by_symbols = room < 4 ? 0 : (room - 4) / kMost;  // an entry is written as four bytes
    size_t rounds = by_bytes < by_symbols ? by_bytes : by_symbols;
    if (!rounds) break;
    uint64_t bits = load_be(in + (at >> 3)) << (at & 7) | in[(at >> 3) + 8] >> (8 - (at & 7));
    for (; rounds; --rounds) {
      const uint64_t following = load_be(in + (at >> 3) + 8) << (at & 7);
      unsigned taken = 0;
#pragma GCC unroll 4
      for (size_t i = 0; i < kLookUps; ++i) {
        const uint64_t index = bits >> shift;
        const uint32_t entry = runs[index];
        const unsigned length = tops[4 * index] & 63;
        std::memcpy(out, &entry, 4);  // little-endian; what is not a symbol is overwritten later
        out += entry >> 30;
        bits <<= length;
        taken += length;
      }
      bits |= following >> (64 - taken);  // a look-up takes a bit or more
      at += taken;
    }
  }
  *done = size_t(out - part);
  *bit = at;
}

template <int streams>
static bool decode_streams(const uint8_t* in, const size_t* sizes, const uint8_t* readable_end,
                           const HuffmanDecoder& decoder, uint8_t* symbols, size_t n) {
  constexpr size_t kRound = size_t(streams) * kQuad;
  constexpr size_t kRoundBytes = (7 + kQuad * kMaxCodeLength) / 8;  // most a stream advances per round
  const uint16_t* const table = decoder.table;
  const unsigned shift = 64u - unsigned(decoder.log_size);
  uint64_t start[streams], bit[streams];
  size_t at = 0;
  for (int k = 0; k < streams; ++k) {
    start[k] = bit[k] = 8 * at;
    at += sizes[k];
  }
  size_t i = 0;
  for (;;) {
    size_t rounds = (n - i) / kRound;
    for (int k = 0; k < streams; ++k) {
      const uint64_t left = uint64_t(readable_end - in) - (bit[k] >> 3);  // positions stay inside, see below
      const size_t safe = left < 8 ? 0 : size_t(left - 8) / kRoundBytes;
      rounds = safe < rounds ? safe : rounds;
    }
    if (!rounds) break;
    for (uint8_t* out = symbols + i; rounds; --rounds, i += kRound, out += kRound)
      for (int k = 0; k < streams; ++k) bit[k] = decode_quad(in, bit[k], table, shift, out + k * kQuad);
  }
  for (int k = 0; k < streams; ++k) {
    const uint8_t* stream = in + start[k] / 8;
    CarefulReader reader{stream, readable_end, bit[k] - start[k]};
    for (size_t q = i + size_t(k) * kQuad; q < n; q += kRound)
      for (size_t s = q; s < q + kQuad && s < n; ++s) symbols[s] = reader.next(table, decoder.log_size);
    if ((reader.bit + 7) / 8 != sizes[k]) return false;
  }
  return true;
}

// What is left of a stream by itself: quads, and the last symbols with care. False if it does not end where it should.
static bool finish_quads(const Stream& s, const uint8_t* readable_end, size_t done, uint64_t bit) {
  constexpr size_t kBytes = (7 + kQuad * kMaxCodeLength) / 8;
  const unsigned shift = 64u - unsigned(s.decoder.log_size);
  for (;;) {
    const uint64_t left = uint64_t(readable_end - s.in) - (bit >> 3);
    const size_t safe = left < 8 ? 0 : size_t(left - 8) / kBytes + 1, quads = (s.n - done) / kQuad;
    size_t rounds = safe < quads ? safe : quads;
    if (!rounds) break;
    for (; rounds; --rounds, done += kQuad)
      bit = decode_quad(s.in, bit, s.decoder.table, shift, s.symbols + done);
  }
  CarefulReader reader{s.in, readable_end, bit};
  for (; done < s.n; ++done) s.symbols[done] = reader.next(s.decoder.table, s.decoder.log_size);
  return (reader.bit + 7) / 8 == s.size;
}

// Quads of all streams in their order.
static void interleave(uint8_t* const* parts, size_t n, uint8_t* symbols) {
  constexpr size_t kRound = size_t(kStreams) * kQuad;
  size_t i = 0, q = 0;
  for (; i + kRound <= n; q += kQuad, i += kRound)
    for (int k = 0; k < kStreams; ++k) std::memcpy(symbols + i + k * kQuad, parts[k] + q, kQuad);
  for (size_t s = i; s < n; ++s) symbols[s] = parts[(s - i) / kQuad][q + (s - i) % kQuad];
}

// What is left of a stream: by itself, and its end with care. False if it does not end where it should.
static bool finish_run(const uint8_t* in, size_t size, const uint8_t* readable_end, const HuffmanDecoder& decoder,
                       uint8_t* part, size_t count, size_t done, uint64_t bit) {
  decode_run(in, readable_end, decoder.runs, part, count, &done, &bit);
  CarefulReader reader{in, readable_end, bit};
  reader.take(decoder.runs, decoder.lengths, part + done, count - done);
  return (reader.bit + 7) / 8 == size;
}

template <int streams>
static bool decode_by_runs(const uint8_t* in, const size_t* sizes, const uint8_t* readable_end,
                           const HuffmanDecoder& decoder, uint8_t* symbols, size_t n) {
  constexpr size_t kRound = size_t(streams) * kQuad;
  uint8_t apart[streams == 1 ? 1 : streams][streams == 1 ? 1 : kChunkSymbols / size_t(streams) + 2 * kQuad];
  uint8_t* parts[streams];
  size_t counts[streams], done[streams] = {};
  uint64_t start[streams], bit[streams];
  size_t at = 0;
  for (int k = 0; k < streams; ++k) {
    parts[k] = streams == 1 ? symbols : apart[k];
    const size_t last = n % kRound, first = size_t(k) * kQuad;  // of the round that is not whole
    counts[k] = n / kRound * kQuad + (last <= first ? 0 : last - first < kQuad ? last - first : size_t(kQuad));
    start[k] = bit[k] = 8 * at;
    at += sizes[k];
  }
  if constexpr (streams > 1) decode_runs<streams>(in, readable_end, decoder.runs, parts, counts, done, bit);
  for (int k = 0; k < streams; ++k)
    if (!finish_run(in + start[k] / 8, sizes[k], readable_end, decoder, parts[k], counts[k], done[k], bit[k] - start[k]))
      return false;
  if (streams > 1) interleave(parts, n, symbols);
  return true;
}

constexpr size_t kWorthInterleaving = 1024;  // symbols from which runs, whose streams come apart, save more than that takes

static bool huffman_decode(const uint8_t* in, const size_t* sizes, int streams, const uint8_t* readable_end,
                           const HuffmanDecoder& decoder, uint8_t* symbols, size_t n) {
  if (streams == 1) {
    if (decoder.runs) return decode_by_runs<1>(in, sizes, readable_end, decoder, symbols, n);
    return finish_quads({in, *sizes, decoder, symbols, n}, readable_end, 0, 0);
  }
  const bool by_runs = decoder.runs && (n >= kWorthInterleaving || !decoder.table);
  return (by_runs ? decode_by_runs<kStreams> : decode_streams<kStreams>)(in, sizes, readable_end, decoder, symbols, n);
}
