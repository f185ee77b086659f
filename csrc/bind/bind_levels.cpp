// Levels, as Python sees them.
#include <nanobind/stl/string.h>

#include <limits>

#include "bind.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

// counts[l] values of layer l, side by side; they fill `values`.
void check_layers(const Row<const int64_t>& counts, const Row<int32_t>& bases, size_t values) {
  check(counts.shape(0) == bases.shape(0), "bases: expected one for each layer");
  size_t total = 0;
  for (size_t l = 0; l < counts.shape(0); ++l) {
    check(counts.data()[l] >= 0 && uint64_t(counts.data()[l]) <= kMaxBlock, "counts: out of range");
    total += size_t(counts.data()[l]);
  }
  check(total == values, "counts: expected to add up to the values");
}

void py_to_levels(const Kernels& kernels, const Row<const float>& x, const Row<const int64_t>& counts,
                  const Row<float>& levels, const Row<int32_t>& bases) {
  check_layers(counts, bases, x.shape(0));
  check(levels.shape(0) == x.shape(0), "levels: expected as many as values");
  const nb::gil_scoped_release release;
  size_t at = 0;
  for (size_t l = 0; l < counts.shape(0); ++l) {
    const size_t n = size_t(counts.data()[l]);
    const int32_t base = bases.data()[l] = kernels.level_base(x.data() + at, n);
    if (base == kNoLevels) std::fill_n(levels.data() + at, n, 0.0f);
    else kernels.to_levels(x.data() + at, n, base, levels.data() + at);
    at += n;
  }
}

void py_from_levels(const Kernels& kernels, const Row<const float>& levels, const Row<const int64_t>& counts,
                    const Row<int32_t>& bases, const Row<float>& out) {
  check_layers(counts, bases, levels.shape(0));
  check(levels.shape(0) == out.shape(0), "out: expected as many values as levels");
  for (size_t l = 0; l < bases.shape(0); ++l)
    check(bases.data()[l] >= kNoLevels && bases.data()[l] < 1024, "bases: out of range");
  const nb::gil_scoped_release release;
  size_t at = 0;
  for (size_t l = 0; l < counts.shape(0); ++l) {
    const size_t n = size_t(counts.data()[l]);
    if (bases.data()[l] == kNoLevels) std::fill_n(out.data() + at, n, std::numeric_limits<float>::quiet_NaN());
    else kernels.from_levels(levels.data() + at, n, bases.data()[l], out.data() + at);
    at += n;
  }
}

}  // namespace

void define_levels(KernelsClass& kernels) {
  kernels.def("to_levels", &py_to_levels, "x"_a.noconvert(), "counts"_a.noconvert(), "levels"_a.noconvert(),
        "bases"_a.noconvert());
  kernels.def("from_levels", &py_from_levels, "levels"_a.noconvert(), "counts"_a.noconvert(),
        "bases"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace laconic
