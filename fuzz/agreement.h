// One block, decoded in every way there is: all accept it with the same values, or all refuse it alike.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bytes.h"
#include "input.h"

namespace fuzz {

// What the values were, as bits, or why there are none.
struct Outcome {
  std::string refusal;  // empty: accepted
  std::unique_ptr<uint8_t[]> values;
  size_t size;
};

// decode(kernels, bytes, readable, offsets, out, threads) as in batch.h. `fill` is what the
// output holds before: a value that nobody writes differs between two fills.
template <typename Value, typename Decode>
Outcome outcome(const laconic::Kernels& kernels, const std::vector<uint8_t>& buffer, size_t size, size_t count,
                int fill, int threads, const Decode& decode) {
  Outcome o{{}, std::unique_ptr<uint8_t[]>(new uint8_t[count * sizeof(Value)]), count * sizeof(Value)};
  std::memset(o.values.get(), fill, o.size);
  const int64_t offsets[2] = {0, int64_t(size)};
  try {
    decode(kernels, buffer.data(), buffer.size(), offsets, reinterpret_cast<Value*>(o.values.get()), threads);
  } catch (const laconic::FormatError& error) {
    o.refusal = error.what();
    require(!o.refusal.empty(), "a refusal says why");
  }
  return o;
}

inline void require_same(const Outcome& a, const Outcome& b, const char* promise) {
  require(a.refusal == b.refusal, promise);
  if (a.refusal.empty()) require(!std::memcmp(a.values.get(), b.values.get(), a.size), promise);
}

template <typename Value, typename Decode>
void require_agreement(const std::vector<uint8_t>& block, size_t count, const Decode& decode) {
  const auto kernels = every_kernels();
  const laconic::Kernels& best = *kernels.back();
  const size_t size = block.size();
  const Outcome first = outcome<Value>(*kernels[0], block, size, count, 0x55, 1, decode);
  require_same(first, outcome<Value>(best, block, size, count, 0xaa, 1, decode), "all kernels decode alike");
  if (count >= kWorthThreads)
    require_same(first, outcome<Value>(best, block, size, count, 0xaa, 2, decode), "threads change nothing");
  std::vector<uint8_t> followed(block);  // fast paths may look at the neighbour
  followed.resize(size + 64, 0xff);
  require_same(first, outcome<Value>(best, followed, size, count, 0xaa, 1, decode), "what follows a block is ignored");
}

// A block of floats of one kind; the header is rows and cols.
inline void decode_floats(laconic::Kind kind, Input& in) {
  const Shape shape = take_shape(in, 64);  // what a byte of Huffman streams can hold
  const laconic::Block block{kind, shape.rows, shape.cols, {1.0, laconic::Relative::kNo, false, 0}, 1, 0.0, 0.0};
  require_agreement<float>(in.rest(), shape.rows * shape.cols,
                           [&](const laconic::Kernels& kernels, const uint8_t* bytes, size_t readable,
                               const int64_t* offsets, float* out, int threads) {
                             laconic::decode_blocks(kernels, &block, 1, bytes, readable, offsets, out, threads);
                           });
}

}  // namespace fuzz
