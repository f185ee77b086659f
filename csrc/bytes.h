// Reading and writing the bytes of a block, never past its ends.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace laconic {

// The bytes are not what the format says; the message names the field.
struct FormatError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void expect(bool truth, const char* message) {
  if (!truth) throw FormatError(message);
}

class Reader {
 public:
  Reader(const uint8_t* data, size_t size, const uint8_t* readable_end)
      : at_(data), end_(data + size), readable_end_(readable_end) {}

  size_t left() const { return size_t(end_ - at_); }

  // Bytes up to here belong to somebody, if not to this block: fast paths may look at them.
  const uint8_t* readable_end() const { return readable_end_; }

  const uint8_t* take(uint64_t size, const char* field) {
    if (size > left()) too_short(size, field);
    const uint8_t* p = at_;
    at_ += size;
    return p;
  }

  uint8_t byte(const char* field) { return *take(1, field); }

  template <typename T>
  T fixed(const char* field) {
    T value;
    std::memcpy(&value, take(sizeof(T), field), sizeof(T));
    return value;
  }

  // Little-endian base 128; at most ten bytes, no needless last zero.
  uint64_t varint(const char* field) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const uint8_t b = byte(field);
      const uint64_t part = b & 127u;
      if (shift == 63 && part > 1) break;
      value |= part << shift;
      if (b < 128) {
        if (b == 0 && shift) break;
        return value;
      }
    }
    throw FormatError(std::string(field) + ": not a 64-bit varint in its shortest form");
  }

  int64_t signed_varint(const char* field) {
    const uint64_t z = varint(field);
    return int64_t(z >> 1) ^ -int64_t(z & 1);
  }

 private:
  // Apart, so that what happens all the time is small enough to be inlined.
  [[noreturn, gnu::noinline]] void too_short(uint64_t size, const char* field) const {
    throw FormatError(std::string(field) + ": needs " + std::to_string(size) + " bytes, the block has " +
                      std::to_string(left()) + " left");
  }

  const uint8_t* at_;
  const uint8_t* end_;
  const uint8_t* readable_end_;
};

// Writes until the room is used up, then only remembers that it was too little.
class Writer {
 public:
  Writer(uint8_t* out, size_t capacity) : start_(out), at_(out), end_(out + capacity) {}

  bool overflowed() const { return overflowed_; }
  size_t size() const { return size_t(at_ - start_); }

  void bytes(const void* data, size_t size) {
    if (overflowed_ || size > size_t(end_ - at_)) {
      overflowed_ = true;
      return;
    }
    if (size) std::memcpy(at_, data, size);
    at_ += size;
  }

  // Room for `size` bytes to fill in later, or nullptr if there is none.
  uint8_t* reserve(size_t size) {
    if (overflowed_ || size > size_t(end_ - at_)) {
      overflowed_ = true;
      return nullptr;
    }
    at_ += size;
    return at_ - size;
  }

  // The next `size` bytes, if there are so many; to be followed by advance().
  uint8_t* peek(size_t size) { return !overflowed_ && size <= size_t(end_ - at_) ? at_ : nullptr; }
  void advance(size_t size) { at_ += size; }

  void byte(uint8_t b) { bytes(&b, 1); }

  template <typename T>
  void fixed(T value) { bytes(&value, sizeof(T)); }

  void varint(uint64_t value) {
    uint8_t b[10];
    size_t n = 0;
    for (; value > 127; value >>= 7) b[n++] = uint8_t(value | 128);
    b[n++] = uint8_t(value);
    bytes(b, n);
  }

  void signed_varint(int64_t value) { varint((uint64_t(value) << 1) ^ uint64_t(value >> 63)); }

 private:
  uint8_t* start_;
  uint8_t* at_;
  uint8_t* end_;
  bool overflowed_ = false;
};

}  // namespace laconic
