#include "huffman_code.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace laconic {
namespace {

// Ratio of neighboring digits' weights, in 2^-32, for scales that grow by sqrt(2).
// Laplace and ranked: exp(-1/s), s = 2^(level/2 - 3); normal: exp(-1/(2 s^2)), s = 2^(level/2 - 1.5).
constexpr uint64_t kGeometric[kLevels] = {
       1440801,   15004422,   78665070,  253857248,  581260615, 1044178424, 1580030169, 2117713904,
    2605029347, 3015876649, 3344923893, 3599040369, 3790295335, 3931635878, 4034748382, 4109287957};
constexpr uint64_t kGaussian[kLevels] = {
      78665070,  581260615, 1580030169, 2605029347, 3344923893, 3790295335, 4034748382, 4162825044,
    4228380000, 4261543595, 4278222805, 4286586875, 4290775039, 4292870656, 4293918848, 4294443040};
constexpr uint64_t kNegligible = 20;  // symbols below total / 2^20 are left out

uint64_t scale(uint64_t a, uint64_t b) { return a * b >> 32; }

StaticCode make_static_code(int log_group, Shape shape, int level, uint64_t* mean_q8) {
  const int width = 8 >> log_group, digits = 1 << width, group = 1 << log_group;
  const int center = shape == Shape::kRanked ? 0 : digits / 2;
  std::array<uint64_t, 257> by_distance{};
  uint64_t weight = 0xffffffffu;
  uint64_t ratio = shape == Shape::kNormal ? kGaussian[level] : kGeometric[level];
  const uint64_t growth = shape == Shape::kNormal ? scale(ratio, ratio) : 0;
  for (auto& w : by_distance) {
    w = weight;
    weight = scale(weight, ratio);
    if (growth) ratio = scale(ratio, growth);
  }
  uint64_t sum = 0, moment = 0;
  for (int d = 0; d < digits; ++d) {
    const uint64_t distance = uint64_t(std::abs(d - center));
    sum += by_distance[distance];
    moment += by_distance[distance] * distance;
  }
  Histogram counts{};
  uint64_t total = 0;
  for (int symbol = 0; symbol < 256; ++symbol) {
    uint64_t w = 0xffffffffu;
    for (int k = 0; k < group; ++k) {
      const int digit = (symbol >> (k * width)) & (digits - 1);
      w = scale(w, by_distance[size_t(std::abs(digit - center))]);
    }
    total += counts[size_t(symbol)] = uint32_t(w);
  }
  for (auto& c : counts)
    if (c < total >> kNegligible) c = 0;
  StaticCode code;
  code.lengths = code_lengths(counts);
  for (size_t s = 0; s < 256; ++s) {
    code.short_lengths[s] = code.lengths[s];
    code.missing[s] = code.lengths[s] ? 0 : -1;
  }
  const CanonicalOrder by_symbol = live_codes(code.lengths), order = canonical_order(by_symbol);
  canonical_codes(by_symbol, 0, code.codes.data());
  code.table.resize(kDecoderRoom);
  code.log_size = fill_decoder(order, code.table.data());
  code.runs.resize(kRuns);
  code.has_runs = scalar_kernels()->fill_runs(order, code.runs.data());
  *mean_q8 = (moment << 8) / sum;
  return code;
}

}  // namespace

uint64_t entropy_q16(const uint32_t* counts, size_t n) {
  uint64_t total = 0, sum = 0;
  for (size_t i = 0; i < n; ++i) {
    total += counts[i];
    sum += entropy_term(counts[i]);
  }
  return total ? total * log2_q16(total) - sum : 0;
}

Span live_span(const Histogram& histogram) {
  constexpr size_t kStride = 16;
  const auto some = [&](size_t from) {
    uint32_t any = 0;
    for (size_t k = 0; k < kStride; ++k) any |= histogram[from + k];
    return any != 0;
  };
  Span span{0, 255};
  while (span.first < 256 && !some(span.first)) span.first += kStride;
  if (span.first == 256) return {255, 255};
  while (!histogram[span.first]) ++span.first;
  while (!some(span.last + 1 - kStride)) span.last -= kStride;
  while (!histogram[span.last]) --span.last;
  return span;
}

namespace {

// Sorts count << 8 | symbol, which ascend by symbol.
void sort_leaves(uint64_t* leaves, size_t n) {
  if (n <= 24) {
    std::sort(leaves, leaves + n);
    return;
  }
  // Most counts of a small block are small: how many leaves have each tells where they belong.
  constexpr uint64_t kClip = 255;
  uint64_t sorted[256];
  uint32_t start[kClip + 2] = {};
  for (size_t i = 0; i < n; ++i) ++start[std::min(leaves[i] >> 8, kClip) + 1];
  for (size_t c = 1; c <= kClip; ++c) start[c + 1] += start[c];
  for (size_t i = 0; i < n; ++i) sorted[start[std::min(leaves[i] >> 8, kClip)]++] = leaves[i];
  std::sort(sorted + start[kClip - 1], sorted + n);  // those whose counts were clipped
  std::copy_n(sorted, n, leaves);
}

}  // namespace

Lengths code_lengths(const Histogram& counts) {
  uint64_t leaves[257];  // count << 8 | symbol: sorted by count, then by symbol
  int n = 0;
  const Span span = live_span(counts);
  for (size_t s = span.first; s <= span.last; ++s) {
    leaves[n] = uint64_t(counts[s]) << 8 | s;
    n += counts[s] > 0;
  }
  sort_leaves(leaves, size_t(n));
  const auto weight = [&](int leaf) { return leaves[leaf] >> 8; };

  // Two queues: leaves, and inner nodes in the order of their making; a leaf goes first on a tie. The end of a queue
  // weighs more than everything.
  constexpr uint64_t kEnd = UINT64_MAX;
  uint64_t inner[256];
  int parents[512];  // of leaves, then of inner nodes
  leaves[n] = kEnd;
  int leaf = 0, node = 0;
  for (int made = 0; made < n - 1; ++made) {
    uint64_t sum = 0;
    inner[made] = kEnd;
    for (int child = 0; child < 2; ++child) {
      if (weight(leaf) <= inner[node]) {
        sum += weight(leaf);
        parents[leaf++] = made;
      } else {
        sum += inner[node];
        parents[n + node++] = made;
      }
    }
    inner[made] = sum;
  }
  int depth[256];
  depth[n - 2] = 0;
  for (int i = n - 3; i >= 0; --i) depth[i] = depth[parents[n + i]] + 1;

  int length[256];
  int64_t room = int64_t(1) << kMaxCodeLength;
  for (int i = 0; i < n; ++i) {
    length[i] = std::min(depth[parents[i]] + 1, kMaxCodeLength);
    room -= int64_t(1) << (kMaxCodeLength - length[i]);
  }
  // Too long codes were cut: lengthen the rarest others, then give back what is left over.
  for (int i = 0; room < 0; i = (i + 1) % n)
    if (length[i] < kMaxCodeLength) room += int64_t(1) << (kMaxCodeLength - ++length[i]);
  for (int i = n - 1; room > 0; i = i ? i - 1 : n - 1) {
    const int64_t gain = int64_t(1) << (kMaxCodeLength - length[i]);
    if (length[i] > 1 && gain <= room) {
      room -= gain;
      --length[i];
    }
  }
  Lengths lengths{};
  for (int i = 0; i < n; ++i) lengths[leaves[i] & 255] = uint8_t(length[i]);
  return lengths;
}

void canonical_codes(const CanonicalOrder& by_symbol, uint8_t minimum, uint32_t* codes) {
  uint32_t next[kMaxCodeLength + 2] = {}, count[kMaxCodeLength + 1] = {};
  for (size_t i = 0; i < by_symbol.count; ++i) ++count[by_symbol.codes[i].length];
  for (int l = 1; l <= kMaxCodeLength; ++l) next[l + 1] = (next[l] + count[l]) << 1;
  std::fill_n(codes, 256, 0u);
  for (size_t i = 0; i < by_symbol.count; ++i) {
    const auto [symbol, length] = by_symbol.codes[i];
    codes[uint8_t(symbol + minimum)] = next[length]++ << 8 | length;
  }
}

CanonicalOrder canonical_order(const CanonicalOrder& by_symbol) {
  uint32_t start[kMaxCodeLength + 2] = {};
  for (size_t i = 0; i < by_symbol.count; ++i) ++start[by_symbol.codes[i].length + 1];
  for (int l = 1; l <= kMaxCodeLength; ++l) start[l + 1] += start[l];
  CanonicalOrder order;
  order.count = by_symbol.count;
  for (size_t i = 0; i < by_symbol.count; ++i) order.codes[start[by_symbol.codes[i].length]++] = by_symbol.codes[i];
  return order;
}

CanonicalOrder live_codes(const Lengths& lengths) {
  CanonicalOrder codes;
  codes.count = 0;
  for (size_t first = 0; first < 256; first += 8) {
    uint64_t some;  // eight lengths
    std::memcpy(&some, &lengths[first], 8);
    for (; some; some &= ~(uint64_t(255) << (__builtin_ctzll(some) & ~7))) {
      const size_t symbol = first + size_t(__builtin_ctzll(some)) / 8;
      codes.codes[codes.count++] = {uint8_t(symbol), lengths[symbol]};
    }
  }
  return codes;
}

int fill_decoder(const CanonicalOrder& order, uint16_t* table) {
  const int log_size = order.codes[order.count - 1].length;
  uint16_t* at = table;
  for (size_t i = 0; i < order.count; ++i) {
    const auto [symbol, length] = order.codes[i];
    const size_t span = size_t(1) << (log_size - length);
    const uint64_t entries = (uint64_t(symbol) << 8 | length) * 0x0001000100010001u;  // four
    for (size_t k = 0; k < span; k += 4) std::memcpy(at + k, &entries, 8);  // too many are written over by the next
    at += span;
  }
  return log_size;
}

const StaticCodes& static_codes(int log_group, Shape shape) {
  static std::once_flag once[4][kShapes];
  static StaticCodes made[4][kShapes];
  StaticCodes& codes = made[size_t(log_group)][size_t(shape)];
  std::call_once(once[size_t(log_group)][size_t(shape)], [&] {
    for (int level = 0; level < kLevels; ++level)
      codes.codes[size_t(level)] = make_static_code(log_group, shape, level, &codes.means_q8[size_t(level)]);
  });
  return codes;
}

}  // namespace laconic
