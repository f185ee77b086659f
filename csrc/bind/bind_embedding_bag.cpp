// Embedding bags as Python sees them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "bind.h"
#include "embedding_bag.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

void add_table(RowTables& tables, const Rows<const uint8_t>& rows, int format) {
  check(format >= 0 && format <= 4, "RowTables.add: format must be 0 to 4");
  check(rows.shape(1) == row_bytes(RowFormat(format), tables.dim()), "RowTables.add: rows have the wrong size");
  const nb::gil_scoped_release release;
  tables.add(rows.data(), rows.shape(0), RowFormat(format));
}

void share_table(RowTables& tables, const RowTables& other, size_t table) {
  check(table < other.count(), "RowTables.share: no such table");
  check(tables.dim() == other.dim(), "RowTables.share: tables of another dimension");
  tables.share(other, table);
}

int64_t py_embedding_bags(const Kernels& kernels, const RowTables& tables, const RowBags& bags,
                          const std::optional<Row<const int64_t>>& unknown,
                          const nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>& out, size_t first,
                          int threads) {
  const auto& [ids, offsets, weights, mean] = bags;
  const size_t samples = out.shape(0), count = tables.count(), dim = tables.dim();
  check(out.shape(1) == first + count && out.shape(2) == dim, "embedding_bags: out has the wrong shape");
  check(offsets.shape(0) == count * samples + 1, "embedding_bags: offsets must have tables * samples + 1 entries");
  check(!weights || weights->shape(0) == ids.shape(0), "embedding_bags: expected one weight for every id");
  check(!weights || !mean, "embedding_bags: a weighted mean is not defined");
  check(!unknown || unknown->shape(0) == count, "embedding_bags: expected one unknown row for every table");
  const nb::gil_scoped_release release;
  static const float kNone = 0;
  const float* const w = !weights ? nullptr : weights->shape(0) ? weights->data() : &kNone;
  return embedding_bags(kernels, tables,
                        {ids.data(), ids.shape(0), offsets.data(), samples, w, mean, unknown ? unknown->data() : nullptr,
                         out.data() + first * dim, out.shape(1) * dim},
                        threads);
}

}  // namespace

void define_embedding_bag(nb::module_& m, KernelsClass& kernels) {
  nb::class_<RowTables>(m, "RowTables")
      .def("add", &add_table, "rows"_a.noconvert(), "format"_a)
      .def("share", &share_table, "other"_a, "table"_a);
  kernels.def("row_tables", [](const Kernels&, size_t dim) { return new RowTables(dim); }, "dim"_a,
              nb::rv_policy::take_ownership);
  kernels.def("embedding_bags", &py_embedding_bags, "tables"_a, "bags"_a.noconvert(),
        "unknown"_a.noconvert().none(), "out"_a.noconvert(), "first"_a, "threads"_a);
}

}  // namespace laconic
