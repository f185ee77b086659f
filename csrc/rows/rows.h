// Rows of tables, checked: nothing is read or written before every index is known to be inside.
// What does not fit is std::invalid_argument with the value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels.h"

namespace laconic {

template <typename T>
struct Matrix {
  T* data;
  size_t rows, cols;
};

// `data` may be nullptr where the operation says so.
struct Indices {
  const int64_t* data;
  size_t count;
};

template <typename T>
const RowKernels<T>& row_kernels(const Kernels& kernels) {
  if constexpr (std::is_same_v<T, float>) return kernels.float_rows;
  else return kernels.double_rows;
}

inline void expect(bool truth, const std::string& message) {
  if (!truth) throw std::invalid_argument(message);
}

inline void expect_equal(const char* what, size_t expected, size_t actual) {
  if (expected != actual)
    throw std::invalid_argument(std::string(what) + ": expected " + std::to_string(expected) + ", got " +
                                std::to_string(actual));
}

// Every entry is one of `rows` rows of the matrix called `of`.
inline void expect_rows(const Kernels& kernels, const char* name, const Indices& index, const char* of, size_t rows) {
  if (kernels.all_below(index.data, index.count, rows)) return;
  size_t i = 0;
  while (uint64_t(index.data[i]) < rows) ++i;
  throw std::invalid_argument(std::string(name) + "[" + std::to_string(i) + "]: expected a row of " + of + " below " +
                              std::to_string(rows) + ", got " + std::to_string(index.data[i]));
}

inline void expect_order(const Kernels& kernels, const Indices& order, const Indices& rows) {
  expect_equal("update_rows: length of order", rows.count, order.count);
  const size_t j = kernels.sorted_until(order.data, rows.data, rows.count);
  if (j < order.count)
    throw std::invalid_argument("update_rows: order[" + std::to_string(j) +
                                "]: expected what sorts rows stably, got " + std::to_string(order.data[j]));
}

template <typename T>
void expect_apart(const char* what, const T* a, size_t a_count, const T* b, size_t b_count) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  const bool apart = !a_count || !b_count || x + a_count * sizeof(T) <= y || y + b_count * sizeof(T) <= x;
  if (!apart) throw std::invalid_argument(std::string(what) + " share memory");
}

template <typename T>
void expect_apart(const char* what, const Matrix<T>& a, const Matrix<const T>& b) {
  expect_apart<T>(what, a.data, a.rows * a.cols, b.data, b.rows * b.cols);
}

// out[index[i]] += source[source_index[i]] for every i in order; no source_index: source[i].
template <typename T>
void add_rows(const Kernels& kernels, const Matrix<T>& out, const Indices& index, const Matrix<const T>& source,
              const Indices& source_index) {
  expect_equal("add_rows: columns of source", out.cols, source.cols);
  expect_equal(source_index.data ? "add_rows: length of source_index" : "add_rows: rows of source", index.count,
               source_index.data ? source_index.count : source.rows);
  expect_rows(kernels, "add_rows: index", index, "out", out.rows);
  if (source_index.data) expect_rows(kernels, "add_rows: source_index", source_index, "source", source.rows);
  expect_apart("add_rows: out and source", out, source);
  row_kernels<T>(kernels).add_rows(out.data, out.cols, index.data, index.count, source.data, source_index.data);
}

inline void expect_offsets(const Indices& offsets, size_t count) {
  for (size_t b = 0; b < offsets.count; ++b) {
    const int64_t from = b ? offsets.data[b - 1] : 0, to = offsets.data[b];
    if (to < from || uint64_t(to) > count)
      throw std::invalid_argument("sum_bags: offsets[" + std::to_string(b) + "]: expected " + std::to_string(from) +
                                  ".." + std::to_string(count) + ", got " + std::to_string(to));
  }
}

// out[b] = sum of weight[index[i]] over i in offsets[b]..offsets[b + 1]; no offsets: one i for each b.
template <typename T>
void sum_bags(const Kernels& kernels, const Matrix<T>& out, const Matrix<const T>& weight, const Indices& index,
              const Indices& offsets) {
  expect_equal("sum_bags: columns of weight", out.cols, weight.cols);
  if (offsets.data) {
    expect_equal("sum_bags: length of offsets", out.rows + 1, offsets.count);
    expect_offsets(offsets, index.count);
  } else {
    expect_equal("sum_bags: length of index", out.rows, index.count);
  }
  expect_rows(kernels, "sum_bags: index", index, "weight", weight.rows);
  expect_apart("sum_bags: out and weight", out, weight);
  row_kernels<T>(kernels).sum_bags(out.data, out.rows, out.cols, weight.data, index.data, index.count, offsets.data);
}

template <typename T>
void expect_state(bool wanted, const Matrix<T>& weight, const T* state, size_t count, const Matrix<const T>& grads) {
  expect(wanted == (state != nullptr), wanted ? "update_rows: state: expected one value a row, got None"
                                              : "update_rows: state: expected None for SGD, got an array");
  if (!wanted) return;
  expect_equal("update_rows: length of state", weight.rows, count);
  expect_apart<T>("update_rows: state and weight", state, count, weight.data, weight.rows * weight.cols);
  expect_apart<T>("update_rows: state and grads", state, count, grads.data, grads.rows * grads.cols);
}

// The noise of rounding that an update counts; parts of contributions are rows of figures.
template <typename T>
void expect_noise(const Kernels& kernels, const RowNoise<T>& noise, size_t variances, const Indices& parts,
                  size_t steps, size_t figures, const Matrix<T>& weight, const Matrix<const T>& grads,
                  const Indices& rows) {
  expect_equal("update_rows: length of noise.variance", weight.rows, variances);
  expect_equal("update_rows: length of noise.parts", rows.count, parts.count);
  expect_equal("update_rows: length of noise.grid_steps", rows.count, steps);
  expect_rows(kernels, "update_rows: noise.parts", parts, "noise.figures", figures);
  expect_apart<T>("update_rows: noise.variance and weight", noise.variance, variances, weight.data,
                  weight.rows * weight.cols);
  expect_apart<T>("update_rows: noise.variance and grads", noise.variance, variances, grads.data,
                  grads.rows * grads.cols);
}

// One step of an optimizer on the rows that have gradients; returns how many rows those are.
// `state` is one value for each row of weight, nullptr where the optimizer has none.
template <typename T>
size_t update_rows(const Kernels& kernels, const Matrix<T>& weight, T* state, size_t state_count,
                   const Indices& rows, const Indices& order, const Matrix<const T>& grads, const Indices& grad_index,
                   int optimizer, double rate, double epsilon, const RowNoise<T>* noise = nullptr) {
  expect(optimizer == int(Optimizer::kSgd) || optimizer == int(Optimizer::kRowwiseAdagrad),
         "update_rows: optimizer: expected 0 or 1, got " + std::to_string(optimizer));
  expect_state(optimizer != int(Optimizer::kSgd), weight, state, state_count, grads);
  expect(weight.cols > 0, "update_rows: columns of weight: expected at least 1, got 0");
  expect_equal("update_rows: columns of grads", weight.cols, grads.cols);
  expect_equal(grad_index.data ? "update_rows: length of grad_index" : "update_rows: rows of grads", rows.count,
               grad_index.data ? grad_index.count : grads.rows);
  expect_rows(kernels, "update_rows: rows", rows, "weight", weight.rows);
  if (grad_index.data) expect_rows(kernels, "update_rows: grad_index", grad_index, "grads", grads.rows);
  expect_order(kernels, order, rows);
  expect_apart("update_rows: weight and grads", weight, grads);
  std::vector<T> sum(weight.cols);
  return row_kernels<T>(kernels).update_rows({weight.data, state, weight.cols, rows.data, order.data, rows.count,
                                              grads.data, grad_index.data, Optimizer(optimizer), T(rate), T(epsilon),
                                              sum.data(), noise});
}

}  // namespace laconic
