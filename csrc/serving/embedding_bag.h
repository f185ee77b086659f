// Embedding bags of all tables of a batch, straight from rows in few bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "huge_array.h"
#include "kernels.h"

namespace laconic {

// Bytes of a row of `dim` numbers.
size_t row_bytes(RowFormat format, size_t dim);

// Tables of one model, in memory of their own: huge pages, and nobody else's to unmap.
class RowTables {
 public:
  struct Table {
    HugeArray<uint8_t> data;
    size_t rows, row_bytes;
    RowFormat format;
  };

  explicit RowTables(size_t dim) : dim_(dim) {}

  // A copy; tables of one model may be shared with another that differs in some of them.
  void add(const uint8_t* data, size_t rows, RowFormat format);
  void share(const RowTables& other, size_t table) { tables_.push_back(other.tables_[table]); }

  size_t dim() const { return dim_; }
  size_t count() const { return tables_.size(); }
  const Table& operator[](size_t i) const { return *tables_[i]; }

 private:
  size_t dim_;
  std::vector<std::shared_ptr<Table>> tables_;
};

struct BagRequest {
  const int64_t* ids;
  size_t count;            // of ids
  const int64_t* offsets;  // tables * samples + 1; bag (t, b) is ids[offsets[t * samples + b]..next)
  size_t samples;
  const float* weights;    // one an id; nullptr: all 1
  bool mean;
  const int64_t* unknown;  // row for ids that table t does not have, below 0: refuse them; nullptr: refuse all
  float* out;              // bag (t, b) at out + b * stride + t * dim
  size_t stride;
};

// Fills `out`. Returns the place of the first id that is refused, nothing being filled then; or -1.
// std::invalid_argument where offsets do not ascend within the ids.
int64_t embedding_bags(const Kernels& kernels, const RowTables& tables, const BagRequest& request, int threads);

}  // namespace laconic
