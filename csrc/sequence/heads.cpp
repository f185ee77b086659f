#include "heads.h"

#include <algorithm>
#include <string>

#include "bytes.h"

namespace laconic {
namespace {

void decode_head(Reader& reader, size_t count, int64_t* numbers) {
  const uint8_t* bits = reader.take((count + 7) / 8, "bits");
  if (count % 8) expect(bits[count / 8] >> (count % 8) == 0, "bits: more of them than numbers");
  for (size_t k = 0; k < count; ++k) {
    if (!(bits[k / 8] >> (k % 8) & 1)) {
      numbers[k] = 0;
      continue;
    }
    const uint64_t value = reader.varint("number");
    expect(value != 0, "number: 0 has no bit");
    numbers[k] = int64_t(value);
  }
  expect(reader.left() == 0, "head: bytes after its end");
}

}  // namespace

void encode_heads(const int64_t* numbers, size_t heads, size_t count, uint8_t* out, int64_t* offsets) {
  uint8_t* at = out;
  offsets[0] = 0;
  for (size_t i = 0; i < heads; ++i, numbers += count) {
    uint8_t* bits = at;
    const size_t bytes = (count + 7) / 8;
    std::fill_n(bits, bytes, uint8_t(0));
    Writer writer(at + bytes, 10 * count);
    for (size_t k = 0; k < count; ++k) {
      if (numbers[k] == 0) continue;
      bits[k / 8] = uint8_t(bits[k / 8] | 1u << (k % 8));
      writer.varint(uint64_t(numbers[k]));
    }
    at += bytes + writer.size();
    offsets[i + 1] = at - out;
  }
}

void decode_heads(const uint8_t* in, size_t size, const int64_t* offsets, size_t heads, size_t count,
                  int64_t* numbers) {
  for (size_t i = 0; i < heads; ++i) {
    const int64_t start = offsets[i], end = offsets[i + 1];
    const std::string where = "head " + std::to_string(i) + ": ";
    if (start < 0 || start > end || uint64_t(end) > size)
      throw FormatError(where + "offsets " + std::to_string(start) + ".." + std::to_string(end) +
                        " are not inside the buffer of " + std::to_string(size) + " bytes");
    try {
      Reader reader(in + start, size_t(end - start), in + size);
      decode_head(reader, count, numbers + i * count);
    } catch (const FormatError& error) {
      throw FormatError(where + error.what());
    }
  }
}

}  // namespace laconic
