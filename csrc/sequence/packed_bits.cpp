#include "packed_bits.h"

#include <algorithm>
#include <cstring>
#include <iterator>

// Eight values of width w are w bytes. In a word that holds values in lanes, neighbors move together, then pairs of
// neighbors, until no gaps are left; and back:
//
//   0000dddd 0000cccc 0000bbbb 0000aaaa     lanes of 8 bits, w = 4
//   00000000 ddddcccc 00000000 bbbbaaaa     of 16
//   00000000 00000000 ddddcccc bbbbaaaa     of 32
namespace laconic {
namespace {

constexpr size_t kGroup = 8;

// Lanes of `lane` bits, of which `used` are used: the upper one of each two moves down to the lower one.
template <int lane>
uint64_t close_gaps(uint64_t x, int used) {
  constexpr uint64_t kLower = ~uint64_t(0) / ((uint64_t(1) << lane) + 1);  // every second lane
  return (x & kLower) | (x & ~kLower) >> (lane - used);
}

template <int lane>
uint64_t open_gaps(uint64_t x, int used) {
  // the first bit of every second lane
  constexpr uint64_t kFirst = ~uint64_t(0) / ((uint64_t(1) << lane) + 1) / ((uint64_t(1) << lane) - 1);
  const uint64_t lower = kFirst * ((uint64_t(1) << used) - 1);
  return (x & lower) | (x << (lane - used) & lower << lane);
}

// Eight values as 8 * width bits.
struct Bits {
  uint64_t low, high;
};

Bits group_of(const uint8_t* values, int width) {
  uint64_t x;
  std::memcpy(&x, values, 8);
  return {close_gaps<32>(close_gaps<16>(close_gaps<8>(x, width), 2 * width), 4 * width), 0};
}

Bits group_of(const uint16_t* values, int width) {
  uint64_t half[2];
  std::memcpy(half, values, 16);
  for (uint64_t& x : half) x = close_gaps<32>(close_gaps<16>(x, width), 2 * width);
  const int used = 4 * width;
  if (used == 64) return {half[0], half[1]};
  return {half[0] | half[1] << used, used ? half[1] >> (64 - used) : 0};
}

template <typename Value>
void pack_groups(const Value* values, size_t n, int width, Writer& out) {
  const size_t size = (n * size_t(width) + 7) / 8, step = size_t(width);
  uint8_t* to = out.reserve(size);
  if (!to) return;
  size_t i = 0, left = size;
  for (; i + kGroup <= n && left >= sizeof(Bits); i += kGroup, to += step, left -= step) {
    const Bits bits = group_of(values + i, width);
    std::memcpy(to, &bits, 8 * sizeof(Value));  // little-endian; what is not ours yet is written again
  }
  for (; i < n; i += kGroup, to += step, left -= std::min(step, left)) {
    Value last[kGroup] = {};
    std::copy_n(values + i, std::min(kGroup, n - i), last);
    const Bits bits = group_of(last, width);
    std::memcpy(to, &bits, std::min(step, left));
  }
}

template <typename Narrow>
void pack_narrowed(const uint32_t* values, size_t n, int width, Writer& out) {
  Narrow part[4096];  // a multiple of a group
  for (size_t start = 0; start < n; start += std::size(part)) {
    const size_t count = std::min(std::size(part), n - start);
    for (size_t i = 0; i < count; ++i) part[i] = Narrow(values[start + i]);
    pack_groups(part, count, width, out);
  }
}

}  // namespace

void pack_bits(const uint8_t* values, size_t n, int width, Writer& out) { pack_groups(values, n, width, out); }

void pack_bits(const uint16_t* values, size_t n, int width, Writer& out) { pack_groups(values, n, width, out); }

void pack_bits(const uint32_t* values, size_t n, int width, Writer& out) {
  if (width <= 8) return pack_narrowed<uint8_t>(values, n, width, out);
  if (width <= 16) return pack_narrowed<uint16_t>(values, n, width, out);
  const size_t size = (n * size_t(width) + 7) / 8;
  uint8_t* to = out.reserve(size);
  if (!to) return;
  uint64_t acc = 0;
  int used = 0;
  for (size_t i = 0; i < n; ++i) {
    acc |= uint64_t(values[i]) << used;
    for (used += width; used >= 8; used -= 8, acc >>= 8) *to++ = uint8_t(acc);
  }
  if (used) *to = uint8_t(acc);
}

void unpack_bits(const uint8_t* raw, size_t size, int width, size_t n, int minimum, int8_t* codes) {
  constexpr uint64_t kOnes = ~uint64_t(0) / 255, kTops = kOnes << 7;
  const uint64_t added = kOnes * uint8_t(minimum);
  for (size_t i = 0; i < n; i += kGroup, raw += width) {
    uint64_t x = 0;
    if (size >= 8) std::memcpy(&x, raw, 8);
    else std::memcpy(&x, raw, size);
    size -= std::min(size, size_t(width));
    x = open_gaps<8>(open_gaps<16>(open_gaps<32>(x, 4 * width), 2 * width), width);
    x = ((x & ~kTops) + (added & ~kTops)) ^ ((x ^ added) & kTops);  // byte by byte, no carry between them
    std::memcpy(codes + i, &x, 8);
  }
}

}  // namespace laconic
