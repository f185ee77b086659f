// Huffman streams: symbols to bits, most significant bit first.
//
//   symbols   0 1 2 3 | 4 5 6 7 | ...      quads of neighbours take turns:
//   stream    0         1         ... 5 0  quad q goes to stream q mod 6
//
// Six dependency chains hide the latency of the table look-up. A decoder
// register carries its own count of used bits: a marker 1 enters below the last
// bit and every shift moves it up, so count = ctz.

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

// A stream read with no assumption about what follows it.
struct CarefulReader {
  const uint8_t* in;
  const uint8_t* end;  // bytes from here on count as zero
  uint64_t bit;

  uint8_t next(const HuffmanDecoder& decoder) {
    const uint64_t at = bit >> 3, size = uint64_t(end - in);
    uint32_t window = 0;
    for (uint64_t k = 0; k < 3; ++k) window = window << 8 | (at + k < size ? in[at + k] : 0u);
    const uint32_t index = (window << (8 + (bit & 7))) >> (32 - decoder.log_size);
    const uint16_t entry = decoder.table[index];
    bit += entry & 15;
    return uint8_t(entry >> 8);
  }
};

template <int streams>
static bool decode_streams(const uint8_t* in, const size_t* sizes, const uint8_t* readable_end,
                           const HuffmanDecoder& decoder, uint8_t* symbols, size_t n) {
  constexpr size_t kRound = size_t(streams) * kQuad;
  constexpr size_t kRoundBytes = (7 + kQuad * kMaxCodeLength) / 8;  // most a stream advances per round
  const uint8_t* start[streams];
  const uint8_t* ip[streams];
  uint64_t bits[streams];
  const uint8_t* at = in;
  bool fast = true;
  for (int k = 0; k < streams; ++k) {
    start[k] = ip[k] = at;
    if (readable_end - at < 8) fast = false;
    else bits[k] = load_be(at) | 1;
    at += sizes[k];
  }
  const uint16_t* const table = decoder.table;
  const unsigned shift = 64u - unsigned(decoder.log_size);
  size_t i = 0;
  uint64_t position[streams] = {};
  if (fast) {
    for (;;) {
      size_t rounds = (n - i) / kRound;
      for (int k = 0; k < streams; ++k) {
        const size_t left = size_t(readable_end - ip[k]);
        const size_t safe = left < 8 ? 0 : (left - 8) / kRoundBytes;
        rounds = safe < rounds ? safe : rounds;
      }
      if (!rounds) break;
      for (uint8_t* out = symbols + i; rounds; --rounds, out += kRound) {
        // unrolled by hand: a loop over streams leaves `bits` in memory
#define LACONIC_TAKE(k, q)                            \
  if (k < streams) {                                  \
    const uint16_t e = table[bits[k % streams] >> shift]; \
    bits[k % streams] <<= e & 63;                     \
    out[k * kQuad + q] = uint8_t(e >> 8);             \
  }
#define LACONIC_TAKE_EACH(q) \
  LACONIC_TAKE(0, q) LACONIC_TAKE(1, q) LACONIC_TAKE(2, q) LACONIC_TAKE(3, q) LACONIC_TAKE(4, q) LACONIC_TAKE(5, q)
#define LACONIC_REFILL(k)                                              \
  if (k < streams) {                                                   \
    const unsigned used = unsigned(__builtin_ctzll(bits[k % streams])); \
    ip[k % streams] += used >> 3;                                      \
    bits[k % streams] = (load_be(ip[k % streams]) | 1) << (used & 7);  \
  }
        LACONIC_TAKE_EACH(0) LACONIC_TAKE_EACH(1) LACONIC_TAKE_EACH(2) LACONIC_TAKE_EACH(3)
        LACONIC_REFILL(0) LACONIC_REFILL(1) LACONIC_REFILL(2) LACONIC_REFILL(3) LACONIC_REFILL(4) LACONIC_REFILL(5)
#undef LACONIC_TAKE
#undef LACONIC_TAKE_EACH
#undef LACONIC_REFILL
        i += kRound;
      }
    }
    for (int k = 0; k < streams; ++k)
      position[k] = uint64_t(ip[k] - start[k]) * 8 + uint64_t(__builtin_ctzll(bits[k]));
  }
  for (int k = 0; k < streams; ++k) {
    CarefulReader reader{start[k], start[k] + sizes[k], position[k]};
    for (size_t q = i + size_t(k) * kQuad; q < n; q += kRound)
      for (size_t s = q; s < q + kQuad && s < n; ++s) symbols[s] = reader.next(decoder);
    if ((reader.bit + 7) / 8 != sizes[k]) return false;
  }
  return true;
}

static bool huffman_decode(const uint8_t* in, const size_t* sizes, int streams, const uint8_t* readable_end,
                           const HuffmanDecoder& decoder, uint8_t* symbols, size_t n) {
  return streams == 1 ? decode_streams<1>(in, sizes, readable_end, decoder, symbols, n)
                      : decode_streams<kStreams>(in, sizes, readable_end, decoder, symbols, n);
}
