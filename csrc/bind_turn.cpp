// Turned rows, as Python sees them.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <vector>

#include "bind.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

constexpr size_t kAtOnce = 64;  // rows that are copied aside: `out` may be `x`

void py_turn_rows(const std::string& name, const Rows<const float>& x, const Row<const int64_t>& counts,
                  const Row<const bool>& turned, const Rows<const float>& axes, const Rows<float>& out) {
  const Kernels& kernels = kernels_named(name);
  const size_t rows = x.shape(0), cols = x.shape(1);
  check(cols > 0 && axes.shape(0) == cols && axes.shape(1) == cols, "axes: expected a square of the columns of x");
  check(out.shape(0) == rows && out.shape(1) == cols, "out: expected the shape of x");
  check(counts.shape(0) == turned.shape(0), "turned: expected one for each block");
  size_t total = 0;
  for (size_t b = 0; b < counts.shape(0); ++b) {
    check(counts.data()[b] >= 0 && uint64_t(counts.data()[b]) <= rows, "counts: out of range");
    total += size_t(counts.data()[b]);
  }
  check(total == rows, "counts: expected to add up to the rows");
  const nb::gil_scoped_release release;
  std::vector<float> aside(kAtOnce * cols);
  size_t at = 0;
  for (size_t b = 0; b < counts.shape(0); ++b) {
    for (size_t left = size_t(counts.data()[b]), some; left; left -= some, at += some * cols) {
      some = std::min(left, kAtOnce);
      if (!turned.data()[b]) {
        if (out.data() != x.data()) std::copy_n(x.data() + at, some * cols, out.data() + at);
        continue;
      }
      std::copy_n(x.data() + at, some * cols, aside.data());
      kernels.turn_rows(aside.data(), some, cols, axes.data(), out.data() + at);
    }
  }
}

}  // namespace

void define_turn(nb::module_& m) {
  m.def("turn_rows", &py_turn_rows, "kernels"_a, "x"_a.noconvert(), "counts"_a.noconvert(), "turned"_a.noconvert(),
        "axes"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace laconic
