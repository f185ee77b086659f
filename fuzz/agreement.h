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
  std::vector<uint8_t> followed(block);  // fast paths may look at the neighbor
  followed.resize(size + 64, 0xff);
  require_same(first, outcome<Value>(best, followed, size, count, 0xaa, 1, decode), "what follows a block is ignored");
}

// A block decodes alike by itself and among its equals, of which some are decoded side by side.
inline void require_company_changes_nothing(const laconic::Block& block, const std::vector<uint8_t>& bytes) {
  constexpr size_t kCopies = laconic::kAbreast + 1;
  const size_t count = block.rows * block.cols, size = count * sizeof(float);
  const laconic::Kernels& best = *every_kernels().back();
  const Outcome alone = outcome<float>(best, bytes, bytes.size(), count, 0x55, 1,
                                       [&](const laconic::Kernels& kernels, const uint8_t* in, size_t readable,
                                           const int64_t* offsets, float* out, int threads) {
                                         laconic::decode_blocks(kernels, &block, 1, in, readable, offsets, out, threads);
                                       });
  std::vector<uint8_t> buffer;
  std::vector<int64_t> offsets{0};
  for (size_t k = 0; k < kCopies; ++k) {
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
    offsets.push_back(int64_t(buffer.size()));
  }
  const std::vector<laconic::Block> blocks(kCopies, block);
  const std::unique_ptr<uint8_t[]> values(new uint8_t[kCopies * size]);
  std::string refusal;
  try {
    laconic::decode_blocks(best, blocks.data(), kCopies, buffer.data(), buffer.size(), offsets.data(),
                           reinterpret_cast<float*>(values.get()), 1);
  } catch (const laconic::FormatError& error) {
    refusal = error.what();
  }
  require(refusal == (alone.refusal.empty() ? "" : "block 0: " + alone.refusal), "company changes no refusal");
  for (size_t k = 0; k < kCopies && refusal.empty(); ++k)
    require(!std::memcmp(values.get() + k * size, alone.values.get(), size), "company changes no value");
}

// A block of floats of one kind; the header is rows and cols.
inline void decode_floats(laconic::Kind kind, Input& in) {
  const Shape shape = take_shape(in, 64);  // what a byte of Huffman streams can hold
  const laconic::Block block{kind, shape.rows, shape.cols, {1.0, laconic::Relative::kNo, false, 0}, 1, 0.0, 0.0};
  const std::vector<uint8_t> bytes = in.rest();
  require_agreement<float>(bytes, shape.rows * shape.cols,
                           [&](const laconic::Kernels& kernels, const uint8_t* at, size_t readable,
                               const int64_t* offsets, float* out, int threads) {
                             laconic::decode_blocks(kernels, &block, 1, at, readable, offsets, out, threads);
                           });
  if (shape.rows * shape.cols <= 4096) require_company_changes_nothing(block, bytes);
}

}  // namespace fuzz
