// Any values, there and back: within the bound, and with the same bytes from every kernel and thread count.
//
//   kind uint8   flags uint8   blocks uint8   window uint8   rows uint16   cols uint16
//   pattern uint8   bound float32   payload: the values, as `pattern` reads them
//
// The payload repeats until all blocks are full, so that a short input can be a larger block.
#include <cmath>
#include <limits>

#include "agreement.h"

namespace {

using laconic::Block;
using laconic::Kind;
using laconic::Relative;

struct Case {
  std::vector<Block> blocks;  // all alike
  std::vector<float> x;
};

enum Pattern : uint8_t { kBits, kSmall, kWide, kSpecial };  // the third bit: shuffled instead of repeated

float special(uint8_t which) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float table[16] = {0.0f,     -0.0f,    inf,      -inf,     NAN,     -NAN,     1e-45f,  -1e-45f,
                               3.4e38f,  -3.4e38f, 1.2e-38f, -1.2e-38f, 4194304, -4194304, 8388609, 0.5f};
  return table[which & 15];
}

float read_value(const std::vector<uint8_t>& payload, size_t i, Pattern pattern, float unit) {
  if (pattern == kBits) {
    float value;
    std::memcpy(&value, payload.data() + 4 * i, 4);
    return value;
  }
  if (pattern == kWide) return float(int16_t(payload[2 * i] | payload[2 * i + 1] << 8)) * unit;
  if (pattern == kSpecial && payload[i] >= 240) return special(payload[i]);
  return float(int8_t(payload[i])) * unit;
}

std::vector<float> read_values(const std::vector<uint8_t>& payload, size_t n, uint8_t selector, float bound) {
  const auto pattern = Pattern(selector & 3);
  const float unit = bound * float(1 + (selector >> 3)) * 0.25f;
  const size_t known = payload.size() / (pattern == kBits ? 4 : pattern == kWide ? 2 : 1);
  std::vector<float> x(n);
  for (size_t i = 0; known && i < n; ++i) {
    const size_t from = selector & 4 ? size_t(uint32_t(i) * 2654435761u >> 7) : i;
    x[i] = read_value(payload, from % known, pattern, unit);
  }
  return x;
}

Case read_case(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  Block block{};
  block.kind = Kind(in.byte() % 10);
  const uint8_t flags = in.byte();
  const size_t count = 1 + in.byte() % 3;
  block.window = 1 + in.byte() % 255;
  const fuzz::Shape shape = fuzz::take_shape(in, 8);
  block.rows = shape.rows / count;
  block.cols = shape.cols;
  const uint8_t pattern = in.byte();
  const float wished = std::fabs(in.fixed<float>()), bound = std::isfinite(wished) && wished > 0 ? wished : 0.01f;
  const Relative relative = flags & 1 ? Relative::kToRange : flags & 16 ? Relative::kToRms : Relative::kNo;
  block.bound = {double(bound), relative, (flags & 2) != 0, uint64_t(flags) << 40 | flags};
  block.lz_penalty = flags & 4 ? 0.5 : 0.0;
  block.huffman_penalty = flags & 8 ? 0.5 : 0.0;
  return {std::vector<Block>(count, block), read_values(in.rest(), count * block.rows * block.cols, pattern, bound)};
}

// The bytes of all blocks, and offsets.
std::vector<uint8_t> encode(const laconic::Kernels& kernels, const Case& c, int threads, int fill,
                            std::vector<int64_t>& offsets) {
  size_t room = 0;
  for (const Block& b : c.blocks) room += laconic::block_max_bytes(b);
  std::vector<uint8_t> out(room, uint8_t(fill));
  offsets.assign(c.blocks.size() + 1, -1);
  laconic::encode_blocks(kernels, c.blocks.data(), c.blocks.size(), c.x.data(), out.data(), offsets.data(), threads);
  for (size_t i = 0; i < c.blocks.size(); ++i) {
    const int64_t size = offsets[i + 1] - offsets[i];
    fuzz::require(size >= 0 && size_t(size) <= laconic::block_max_bytes(c.blocks[i]), "a block keeps to its room");
  }
  return std::vector<uint8_t>(out.begin(), out.begin() + offsets.back());
}

// sqrt(mean square) of the finite values: lane j of eight sums those at j, j + 8, ...
double root_mean_square(const float* x, size_t n) {
  double lane[8] = {}, finite = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) continue;
    lane[i % 8] += double(x[i]) * double(x[i]);
    ++finite;
  }
  const double low = (lane[0] + lane[1]) + (lane[2] + lane[3]), high = (lane[4] + lane[5]) + (lane[6] + lane[7]);
  return finite > 0 ? std::sqrt((low + high) / finite) : 0.0;
}

// The largest error the block allows, in double.
double allowed(const Block& block, const float* x, size_t n) {
  if (block.bound.relative == Relative::kNo) return block.bound.bound;
  if (block.bound.relative == Relative::kToRms) return block.bound.bound * root_mean_square(x, n);
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) continue;
    low = std::min(low, double(x[i]));
    high = std::max(high, double(x[i]));
  }
  return low <= high ? block.bound.bound * (high - low) : 0.0;
}

void require_within(const Block& block, const float* x, const float* y) {
  const size_t n = block.rows * block.cols;
  const double bound = allowed(block, x, n);
  for (size_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) fuzz::require(std::isnan(y[i]), "NaN stays NaN");
    else if (std::isinf(x[i])) fuzz::require(x[i] == y[i], "an infinity stays");
    else fuzz::require(std::fabs(double(x[i]) - double(y[i])) <= bound, "every value is within the bound");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Case c = read_case(data, size);
  std::vector<int64_t> offsets, others;
  const auto kernels = fuzz::every_kernels();
  const std::vector<uint8_t> bytes = encode(*kernels[0], c, 1, 0, offsets);
  for (const laconic::Kernels* k : kernels)
    for (const int threads : {1, 2}) {
      if (k == kernels[0] && threads == 1) continue;
      fuzz::require(encode(*k, c, threads, 0xff, others) == bytes, "same values, same bytes");
      fuzz::require(others == offsets, "same values, same offsets");
    }
  std::vector<float> y(c.x.size());
  for (const laconic::Kernels* k : kernels) {
    std::fill(y.begin(), y.end(), 12345.0f);
    laconic::decode_blocks(*k, c.blocks.data(), c.blocks.size(), bytes.data(), bytes.size(), offsets.data(), y.data(), 2);
    if (c.blocks[0].kind == Kind::kFloat32 || c.blocks[0].kind == Kind::kLossless)
      fuzz::require(y.empty() || !std::memcmp(y.data(), c.x.data(), y.size() * 4), "exact values stay as they are");
    if (c.blocks[0].kind >= Kind::kFloat16) continue;
    const size_t n = c.blocks[0].rows * c.blocks[0].cols;
    for (size_t i = 0; i < c.blocks.size(); ++i) require_within(c.blocks[i], c.x.data() + i * n, y.data() + i * n);
  }
  return 0;
}
