// Entries of matrices by their bits, as Python sees them.
#include <nanobind/stl/string.h>

#include "bind.h"
#include "bit_rows.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

// Rows may be apart: some columns of a larger matrix.
template <typename T>
using Apart = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

template <typename T>
BitMatrix<T> matrix_of(const Apart<T>& x) {
  const size_t rows = x.shape(0), cols = x.shape(1);
  check(cols == 0 || rows <= kMaxBlock / cols, "bits: more than 2^32 - 1 entries");
  if (rows == 0 || cols == 0) return {x.data(), rows, cols, cols};
  check(cols <= 1 || x.stride(1) == 1, "x: expected the entries of a row to be neighbors");
  check(rows <= 1 || x.stride(0) >= int64_t(cols), "x: expected rows that lie apart");
  return {x.data(), rows, cols, rows <= 1 ? cols : size_t(x.stride(0))};
}

void check_room(size_t bytes, size_t rows, size_t cols) {
  check(bytes == rows * bit_row_bytes(cols), "bits: expected a bit for each entry, rows of whole bytes");
}

// The bits, which belong to so many values.
template <typename T>
const uint8_t* checked(const Row<const uint8_t>& bits, const BitMatrix<T>& matrix, size_t values) {
  check_room(bits.shape(0), matrix.rows, matrix.cols);
  check(count_row_bits(bits.data(), matrix.rows, matrix.cols) == values, "values: expected one for each bit that is set");
  return bits.data();
}

size_t py_choose(const Kernels& kernels, const Apart<const float>& x, double keep, int method,
                 const Row<uint8_t>& bits, const Row<float>& values) {
  const auto from = matrix_of(x);
  check(keep > 0 && keep <= 1, "choose_bits: keep must be above 0 and at most 1");
  check(method == 0 || method == 1, "choose_bits: method must be 0 or 1");
  check_room(bits.shape(0), from.rows, from.cols);
  check(values.shape(0) >= from.rows * from.cols, "choose_bits: values need room for every entry");
  const nb::gil_scoped_release release;
  return choose_bits(kernels, from, keep, ThresholdMethod(method), bits.data(), values.data());
}

size_t py_count(const Kernels&, const Row<const uint8_t>& bits, size_t rows, size_t cols) {
  check(cols == 0 || rows <= kMaxBlock / cols, "bits: more than 2^32 - 1 entries");
  check_room(bits.shape(0), rows, cols);
  const nb::gil_scoped_release release;
  return count_row_bits(bits.data(), rows, cols);
}

void py_take(const Kernels&, const Row<const uint8_t>& bits, const Apart<const float>& x, const Row<float>& values) {
  const auto from = matrix_of(x);
  const uint8_t* const of = checked(bits, from, values.shape(0));
  const nb::gil_scoped_release release;
  take_bits(of, from, values.data());
}

void py_put(const Kernels&, const Row<const uint8_t>& bits, const Row<const float>& values, const Apart<float>& x) {
  const auto to = matrix_of(x);
  const uint8_t* const of = checked(bits, to, values.shape(0));
  const nb::gil_scoped_release release;
  put_bits(of, values.data(), to);
}

void py_add(const Kernels&, const Row<const uint8_t>& bits, const Row<const float>& values, const Apart<float>& x) {
  const auto to = matrix_of(x);
  const uint8_t* const of = checked(bits, to, values.shape(0));
  const nb::gil_scoped_release release;
  add_bits(of, values.data(), to);
}

}  // namespace

void define_bit_rows(KernelsClass& kernels) {
  kernels.def("choose_bits", &py_choose, "x"_a.noconvert(), "keep"_a, "method"_a, "bits"_a.noconvert(),
        "values"_a.noconvert());
  kernels.def("count_bits", &py_count, "bits"_a.noconvert(), "rows"_a, "cols"_a);
  kernels.def("take_bits", &py_take, "bits"_a.noconvert(), "x"_a.noconvert(), "values"_a.noconvert());
  kernels.def("put_bits", &py_put, "bits"_a.noconvert(), "values"_a.noconvert(), "x"_a.noconvert());
  kernels.def("add_bits", &py_add, "bits"_a.noconvert(), "values"_a.noconvert(), "x"_a.noconvert());
}

}  // namespace laconic
