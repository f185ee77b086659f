// Any bytes as heads of messages: count uint8, heads uint8, then the bytes, divided evenly. What is
// accepted has one way to be written.
#include "bytes.h"
#include "heads.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  const size_t count = in.byte(), heads = 1 + in.byte() % 4;
  const std::vector<uint8_t> block = in.rest();
  std::vector<int64_t> offsets(heads + 1), numbers(heads * count);
  for (size_t i = 0; i <= heads; ++i) offsets[i] = int64_t(block.size() * i / heads);
  try {
    laconic::decode_heads(block.data(), block.size(), offsets.data(), heads, count, numbers.data());
  } catch (const laconic::FormatError&) {
    return 0;
  }
  std::vector<uint8_t> out(heads * laconic::head_max_bytes(count));
  std::vector<int64_t> again(heads + 1);
  laconic::encode_heads(numbers.data(), heads, count, out.data(), again.data());
  out.resize(size_t(again[heads]));
  fuzz::require(again == offsets && out == block, "a head that was accepted is the one that is written");
  return 0;
}
