// Quantizing tables as Python sees it.
#include <nanobind/stl/string.h>

#include <string>

#include "bind.h"
#include "embedding_bag.h"
#include "quantize_rows.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

int64_t py_quantize_rows(const Kernels& kernels, const Rows<const float>& x, int format, int method,
                         const Rows<uint8_t>& out, int threads) {
  check(x.shape(1) > 0, "quantize_rows: rows have no numbers");
  check(format >= 2 && format <= 4, "quantize_rows: format must be 2 to 4");
  check(method >= 0 && method <= 2, "quantize_rows: method must be 0 to 2");
  check(out.shape(0) == x.shape(0) && out.shape(1) == row_bytes(RowFormat(format), x.shape(1)),
        "quantize_rows: out has the wrong shape");
  const nb::gil_scoped_release release;
  return quantize_rows(kernels, x.data(), x.shape(0), x.shape(1), RowFormat(format), RangeMethod(method), out.data(),
                       threads);
}

}  // namespace

void define_quantize_rows(KernelsClass& kernels) {
  kernels.def("quantize_rows", &py_quantize_rows, "x"_a.noconvert(), "format"_a, "method"_a,
        "out"_a.noconvert(), "threads"_a);
}

}  // namespace laconic
