// Huffman streams: symbols to bits, most significant bit first.
//
//   symbols   0 1 2 3 | 4 5 6 7 | ...      quads of neighbours take turns:
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
    CarefulReader reader{stream, stream + sizes[k], bit[k] - start[k]};
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
