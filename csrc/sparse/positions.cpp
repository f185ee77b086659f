#include "positions.h"

#include <cstring>

#include "bytes.h"

namespace laconic {
namespace {

// Low bits of a place that are written as they are; the rest is written in unary.
int low_bits(size_t places, size_t taken) {
  int low = 0;
  while ((taken << (low + 1)) <= places) ++low;
  return low;
}

struct Form {
  bool bitmap;
  int low;
  size_t low_bytes, high_bytes;  // a bitmap has only the latter

  Form(size_t places, size_t taken) {
    low = low_bits(places, taken);
    low_bytes = (taken * size_t(low) + 7) / 8;
    high_bytes = (taken + ((places - 1) >> low) + 7) / 8;
    bitmap = (places + 7) / 8 <= low_bytes + high_bytes;
    if (bitmap) low_bytes = 0, high_bytes = (places + 7) / 8;
  }
};

// The eight bytes from `in + at`, as many as there are.
uint64_t load(const uint8_t* in, size_t at, size_t size) {
  uint64_t word = 0;
  if (at + 8 <= size) std::memcpy(&word, in + at, 8);
  else if (at < size) std::memcpy(&word, in + at, size - at);
  return word;
}

void encode_elias_fano(const uint64_t* bits, size_t places, const Form& form, uint8_t* out) {
  uint8_t* const high = out + form.low_bytes;
  std::memset(high, 0, form.high_bytes);
  const uint64_t mask = (uint64_t(1) << form.low) - 1;
  uint64_t pending = 0;
  int filled = 0;
  size_t i = 0;
  uint8_t* low = out;
  for (size_t w = 0; w * 64 < places; ++w)
    for (uint64_t rest = bits[w]; rest; rest &= rest - 1, ++i) {
      const size_t place = w * 64 + size_t(__builtin_ctzll(rest));
      const size_t unary = (place >> form.low) + i;
      high[unary / 8] = uint8_t(high[unary / 8] | 1u << unary % 8);
      pending |= (place & mask) << filled;
      filled += form.low;
      if (filled >= 48) {  // six whole bytes
        std::memcpy(low, &pending, 6);
        low += 6;
        pending >>= 48;
        filled -= 48;
      }
    }
  std::memcpy(low, &pending, size_t(filled + 7) / 8);
}

void decode_bitmap(const uint8_t* in, size_t size, size_t places, size_t taken, uint16_t* out) {
  size_t i = 0;
  for (size_t at = 0; at < size; at += 8)
    for (uint64_t rest = load(in, at, size); rest; rest &= rest - 1) {
      const size_t place = at * 8 + size_t(__builtin_ctzll(rest));
      expect(i < taken && place < places, "positions: a bitmap of other places than were announced");
      out[i++] = uint16_t(place);
    }
  expect(i == taken, "positions: a bitmap of fewer places than were announced");
}

void decode_elias_fano(const uint8_t* in, size_t places, size_t taken, const Form& form, uint16_t* out) {
  const uint8_t* const high = in + form.low_bytes;
  const uint64_t mask = (uint64_t(1) << form.low) - 1;
  size_t i = 0;
  int64_t before = -1;
  for (size_t at = 0; at < form.high_bytes; at += 8)
    for (uint64_t rest = load(high, at, form.high_bytes); rest; rest &= rest - 1, ++i) {
      expect(i < taken, "positions: more places than were announced");
      const size_t bit = i * size_t(form.low);
      const uint64_t low = load(in, bit / 8, form.low_bytes) >> bit % 8 & mask;
      const size_t unary = at * 8 + size_t(__builtin_ctzll(rest));
      const int64_t place = int64_t(unary - i) << form.low | int64_t(low);
      expect(place > before && place < int64_t(places), "positions: places that do not ascend, or lie outside");
      before = place;
      out[i] = uint16_t(place);
    }
  expect(i == taken, "positions: fewer places than were announced");
  const size_t used = taken * size_t(form.low);
  expect(used % 8 == 0 || in[form.low_bytes - 1] >> used % 8 == 0, "positions: bits after the last place");
}

}  // namespace

size_t positions_bytes(size_t places, size_t taken) {
  if (taken == 0 || taken == places) return 0;
  const Form form(places, taken);
  return form.low_bytes + form.high_bytes;
}

void encode_positions(const uint64_t* bits, size_t places, size_t taken, uint8_t* out) {
  if (taken == 0 || taken == places) return;
  const Form form(places, taken);
  if (form.bitmap) std::memcpy(out, bits, form.high_bytes);
  else encode_elias_fano(bits, places, form, out);
}

void decode_positions(const uint8_t* in, size_t places, size_t taken, uint16_t* out) {
  if (taken == places)
    for (size_t i = 0; i < taken; ++i) out[i] = uint16_t(i);
  if (taken == 0 || taken == places) return;
  const Form form(places, taken);
  if (form.bitmap) decode_bitmap(in, form.high_bytes, places, taken, out);
  else decode_elias_fano(in, places, taken, form, out);
}

}  // namespace laconic
