// First values of rows, as Python sees them.
#include "bind.h"
#include "first_rows.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

void py_first_rows(const Kernels&, const Rows<float>& out, const Row<const int64_t>& rows, uint64_t seed,
                   uint32_t table) {
  const size_t count = rows.shape(0);
  check(out.shape(0) == count, "out must have as many rows as are asked for");
  for (size_t i = 0; i < count; ++i)
    if (rows.data()[i] < 0 || rows.data()[i] >= kFirstRowsChunk << 32)
      throw nb::value_error(("expected rows from 0 to 2^48 - 1, got " + std::to_string(rows.data()[i])).c_str());
  const nb::gil_scoped_release release;
  first_rows(out.data(), out.shape(1), rows.data(), count, seed, table);
}

}  // namespace

void define_first_rows(KernelsClass& kernels) {
  kernels.def("first_rows", &py_first_rows, "out"_a.noconvert(), "rows"_a.noconvert(), "seed"_a, "table"_a);
}

}  // namespace laconic
