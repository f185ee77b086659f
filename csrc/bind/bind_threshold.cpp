// Thresholding as Python sees it.
#include <nanobind/stl/string.h>

#include "bind.h"
#include "threshold_rows.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

size_t py_threshold_rows(const Kernels& kernels, const Rows<const float>& x, double keep, int method,
                         const Row<int64_t>& places, const Row<float>& values) {
  const size_t rows = x.shape(0), cols = x.shape(1);
  check(cols == 0 || rows <= kMaxBlock / cols, "threshold_rows: more than 2^32 - 1 entries");
  check(keep > 0 && keep <= 1, "threshold_rows: keep must be above 0 and at most 1");
  check(method == 0 || method == 1, "threshold_rows: method must be 0 or 1");
  check(places.shape(0) >= rows * cols && values.shape(0) >= rows * cols,
        "threshold_rows: places and values need room for every entry");
  const nb::gil_scoped_release release;
  return threshold_rows(kernels, x.data(), rows, cols, keep, ThresholdMethod(method), places.data(), values.data());
}

}  // namespace

void define_threshold(KernelsClass& kernels) {
  kernels.def("threshold_rows", &py_threshold_rows, "x"_a.noconvert(), "keep"_a, "method"_a,
        "places"_a.noconvert(), "values"_a.noconvert());
}

}  // namespace laconic
