#include "embedding_bag.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

#include "parallel.h"

namespace laconic {
namespace {

constexpr size_t kSamplesOfTask = 64;

void check_offsets(const BagRequest& r, size_t bags) {
  bool ascending = r.offsets[0] >= 0;
  for (size_t b = 0; b < bags; ++b) ascending &= r.offsets[b] <= r.offsets[b + 1];
  if (ascending && size_t(r.offsets[bags]) <= r.count) return;
  throw std::invalid_argument("embedding_bags: offsets must ascend from 0 or more to at most " +
                              std::to_string(r.count) + ", the number of ids");
}

}  // namespace

size_t row_bytes(RowFormat format, size_t dim) {
  switch (format) {
    case RowFormat::kFloat32: return 4 * dim;
    case RowFormat::kFloat16: return 2 * dim;
    case RowFormat::kInt8: return dim + 8;
    case RowFormat::kInt4: return (dim + 1) / 2 + 4;
    default: return (dim + 3) / 4 + 4;
  }
}

void RowTables::add(const uint8_t* data, size_t rows, RowFormat format) {
  const size_t width = row_bytes(format, dim_), bytes = rows * width;
  auto table = std::shared_ptr<Table>(new Table{HugeArray<uint8_t>(bytes), rows, width, format});
  if (bytes) std::memcpy(table->data.data(), data, bytes);
  tables_.push_back(std::move(table));
}

int64_t embedding_bags(const Kernels& kernels, const RowTables& tables, const BagRequest& r, int threads) {
  const size_t count = tables.count(), bags = count * r.samples;
  check_offsets(r, bags);
  const int64_t* ids = r.ids;
  std::vector<int64_t> known;  // a copy, where unknown ids are to be replaced
  for (size_t t = 0; t < count; ++t) {
    const auto begin = size_t(r.offsets[t * r.samples]), end = size_t(r.offsets[(t + 1) * r.samples]);
    const size_t rows = tables[t].rows;
    if (kernels.all_below(r.ids + begin, end - begin, rows)) continue;
    const int64_t instead = r.unknown ? r.unknown[t] : -1;
    for (size_t i = begin; i < end; ++i) {
      if (uint64_t(r.ids[i]) < rows) continue;
      if (uint64_t(instead) >= rows) return int64_t(i);
      if (known.empty()) known.assign(r.ids, r.ids + r.count);
      known[i] = instead;
    }
  }
  if (!known.empty()) ids = known.data();
  const size_t parts = threads > 1 ? (r.samples + kSamplesOfTask - 1) / kSamplesOfTask : 1;
  const size_t samples = parts > 1 ? kSamplesOfTask : r.samples;
  parallel_for(count * parts, threads, [&](size_t task) {
    const size_t t = task / parts, first = task % parts * samples;
    const RowTables::Table& table = tables[t];
    const size_t last = t * r.samples + std::min(first + samples, r.samples);
    kernels.pool_bags({&table.data[0], table.row_bytes, tables.dim(), table.format, ids,
                       r.offsets + t * r.samples + first, last - t * r.samples - first, size_t(r.offsets[last]),
                       r.weights, r.mean, r.out + first * r.stride + t * tables.dim(), r.stride, 0});
  });
  return -1;
}

}  // namespace laconic
