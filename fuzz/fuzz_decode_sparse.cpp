// Any bytes as two parts of a sparse tensor: words uint16, unit, size of the first index uint16, its values' share;
// the rest is two indices and one list of values. Whatever they are, the sum is one, or refused, and what is
// compacted again means the same.
#include <cstring>
#include <limits>

#include "bytes.h"
#include "input.h"
#include "sparse.h"

namespace {

using laconic::SparsePart;

struct Case {
  std::vector<uint8_t> first, second;
  std::vector<float> values;
  size_t split, words, unit;
};

Case take(fuzz::Input& in) {
  Case c;
  c.words = in.word() + (in.byte() & 1 ? 30000 : 0);
  c.unit = size_t(1) << in.byte() % 7;
  const size_t cut = in.word(), share = in.byte(), count = in.word() % 4096;
  std::vector<uint8_t> rest = in.rest();
  const size_t at = std::min(cut, rest.size());
  c.first.assign(rest.begin(), rest.begin() + long(at));
  c.second.assign(rest.begin() + long(at), rest.end());
  c.values.assign(count, 1.5f);
  c.split = count * share / 255;
  return c;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  Case c = take(in);
  const SparsePart<float> parts[2] = {
      {c.first.data(), c.first.size(), c.values.data(), c.split},
      {c.second.data(), c.second.size(), c.values.data() + c.split, c.values.size() - c.split}};
  std::vector<float> dense(c.words), again(c.words);
  std::vector<uint8_t> index(laconic::sparse_index_room(c.words, c.unit));
  std::vector<float> sums(std::min(c.words, c.values.size()));
  bool placed = true, compacted = true;
  laconic::SparseSize total{};
  try {
    laconic::place_sum(parts, 2, c.words, c.unit, dense.data());
  } catch (const laconic::FormatError&) {
    placed = false;
  }
  try {
    total = laconic::compact_sum(parts, 2, c.words, c.unit, index.data(), sums.data());
  } catch (const laconic::FormatError&) {
    compacted = false;
  }
  fuzz::require(placed == compacted, "what can be placed can be compacted");
  if (!placed) return 0;
  const SparsePart<float> sum{index.data(), total.index_bytes, sums.data(), total.words};
  laconic::place_sum(&sum, 1, c.words, c.unit, again.data());
  fuzz::require(!c.words || !std::memcmp(dense.data(), again.data(), c.words * sizeof(float)),
                "a compacted sum is the sum");
  return 0;
}
