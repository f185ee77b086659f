// A fuzzer's bytes, split: first the few that describe a shape, then the payload.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "batch.h"

namespace fuzz {

// What must hold for every input; libFuzzer keeps the one for which it does not.
inline void require(bool truth, const char* promise) {
  if (truth) return;
  std::fprintf(stderr, "fuzz: broken promise: %s\n", promise);
  std::abort();
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  size_t left() const { return size_t(end_ - at_); }
  uint8_t byte() { return at_ < end_ ? *at_++ : uint8_t(0); }
  size_t word() {
    const size_t low = byte();
    return low | size_t(byte()) << 8;
  }
  template <typename T>
  T fixed() {
    T value{};
    const size_t size = std::min(sizeof(T), left());
    if (size) std::memcpy(&value, at_, size);
    at_ += size;
    return value;
  }

  // The payload in a heap buffer of exactly its size, so that one byte too far is seen.
  std::vector<uint8_t> rest() const { return std::vector<uint8_t>(at_, end_); }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

inline constexpr size_t kWorthThreads = size_t(1) << 16;    // values from which a second thread starts
inline constexpr size_t kMaxValues = kWorthThreads + 10000;  // and more than one chunk

struct Shape {
  size_t rows, cols;
};

// rows uint16, cols uint16; fewer rows where that is more than `per_byte` values for a byte of
// payload, because a large shape costs time.
inline Shape take_shape(Input& in, size_t per_byte) {
  const size_t rows = in.word(), cols = in.word(), most = std::min(kMaxValues, 256 + per_byte * in.left());
  return {cols ? std::min(rows, most / cols) : rows, cols};
}

inline std::vector<const laconic::Kernels*> every_kernels() {
  std::vector<const laconic::Kernels*> all{laconic::scalar_kernels()};
  if (laconic::avx2_kernels()) all.push_back(laconic::avx2_kernels());
  return all;
}

}  // namespace fuzz
