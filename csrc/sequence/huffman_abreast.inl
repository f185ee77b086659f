// Streams of small blocks, each with a code of its own, decoded side by side: three chains instead of one.

static bool quads_abreast(const Stream* streams, const uint8_t* readable_end) {
  constexpr size_t kBytes = (7 + kQuad * kMaxCodeLength) / 8;
  uint64_t bit[kAbreast] = {};
  size_t done = 0;
  for (;;) {
    size_t rounds = ~size_t(0);
    for (size_t k = 0; k < kAbreast; ++k) {
      const uint64_t left = uint64_t(readable_end - streams[k].in) - (bit[k] >> 3);
      const size_t safe = left < 8 ? 0 : size_t(left - 8) / kBytes + 1, quads = (streams[k].n - done) / kQuad;
      rounds = std::min(rounds, std::min(safe, quads));
    }
    if (!rounds) break;
    for (; rounds; --rounds, done += kQuad)
#pragma GCC unroll 3
      for (size_t k = 0; k < kAbreast; ++k) {
        const HuffmanDecoder& d = streams[k].decoder;
        bit[k] = decode_quad(streams[k].in, bit[k], d.table, 64u - unsigned(d.log_size), streams[k].symbols + done);
      }
  }
  bool fine = true;
  for (size_t k = 0; k < kAbreast; ++k) fine &= finish_quads(streams[k], readable_end, done, bit[k]);
  return fine;
}

static bool runs_abreast(const Stream* streams, const uint8_t* readable_end) {
  constexpr unsigned shift = 64u - unsigned(kMaxCodeLength);
  constexpr size_t kLookUps = 4, kMost = 3 * kLookUps, kBytes = (7 + kLookUps * kMaxCodeLength) / 8;
  uint8_t* out[kAbreast];
  uint64_t at[kAbreast] = {};
  for (size_t k = 0; k < kAbreast; ++k) out[k] = streams[k].symbols;
  for (;;) {
    size_t rounds = ~size_t(0);
    for (size_t k = 0; k < kAbreast; ++k) {
      const uint64_t left = uint64_t(readable_end - streams[k].in) - (at[k] >> 3);
      const size_t room = streams[k].n - size_t(out[k] - streams[k].symbols);
      const size_t by_bytes = left < 8 ? 0 : size_t(left - 8) / kBytes;
      const size_t by_symbols = room < 4 ? 0 : (room - 4) / kMost;  // an entry is written as four bytes
      rounds = std::min(rounds, std::min(by_bytes, by_symbols));
    }
    if (!rounds) break;
    for (; rounds; --rounds) {
      uint64_t bits[kAbreast];  // the lowest tells how many were taken, see decode_runs
#pragma GCC unroll 3
      for (size_t k = 0; k < kAbreast; ++k) bits[k] = load_be(streams[k].in + (at[k] >> 3)) << (at[k] & 7) | 1;
#pragma GCC unroll 4
      for (size_t i = 0; i < kLookUps; ++i)
#pragma GCC unroll 3
        for (size_t k = 0; k < kAbreast; ++k) {
          const uint32_t entry = streams[k].decoder.runs[bits[k] >> shift];
          std::memcpy(out[k], &entry, 4);
          out[k] += entry >> 30;
          bits[k] <<= entry >> 24 & 63;
        }
#pragma GCC unroll 3
      for (size_t k = 0; k < kAbreast; ++k) at[k] += uint64_t(__builtin_ctzll(bits[k]));
    }
  }
  for (size_t k = 0; k < kAbreast; ++k) {
    const Stream& s = streams[k];
    if (!finish_run(s.in, s.size, readable_end, s.decoder, s.symbols, s.n, size_t(out[k] - s.symbols), at[k])) return false;
  }
  return true;
}

static bool huffman_decode_abreast(const Stream* streams, const uint8_t* readable_end) {
  return streams[0].decoder.runs ? runs_abreast(streams, readable_end) : quads_abreast(streams, readable_end);
}
