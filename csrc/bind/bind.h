// What the files that bind native code to Python share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "kernels.h"

namespace laconic {

namespace nb = nanobind;

template <typename T>
using Row = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Rows = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The named tuples of laconic.kernels.operands.
template <typename T>
using RowTable = std::tuple<Rows<T>, std::optional<Row<T>>>;  // weight, state
template <typename T>  // variance, parts, grid_steps, figures, samples
using Noise = std::tuple<Row<T>, Row<const int64_t>, Row<const T>, Rows<double>, double>;
using UpdateSettings = std::tuple<int, double, double>;       // optimizer, lr, eps
template <typename T>  // index, index_bounds, values, value_bounds
using PackedParts = std::tuple<Row<const uint8_t>, Row<const int64_t>, Row<const T>, Row<const int64_t>>;
using LayerThresholds = std::tuple<Row<const int64_t>, Row<const float>>;  // bounds, thresholds
// ids, offsets, weights, mean
using RowBags = std::tuple<Row<const int64_t>, Row<const int64_t>, std::optional<Row<const float>>, bool>;

inline constexpr uint64_t kMaxBlock = 0xffffffffu;         // values of one block: counters have 32 bits
inline constexpr uint64_t kMaxValues = uint64_t(1) << 40;  // of one call

inline void check(bool truth, const char* message) {
  if (!truth) throw nb::value_error(message);
}

// The operations of laconic.kernels.api, each a method of the class that Python sees.
using KernelsClass = nb::class_<Kernels>;

// One function per file called bind_*.
void define_bit_rows(KernelsClass& kernels);
void define_dense(nb::module_& m, KernelsClass& kernels);
void define_embedding_bag(nb::module_& m, KernelsClass& kernels);
void define_first_rows(KernelsClass& kernels);
void define_heads(KernelsClass& kernels);
void define_levels(KernelsClass& kernels);
void define_sorted_keys(KernelsClass& kernels);
void define_packets(nb::module_& m);
void define_quantize_rows(KernelsClass& kernels);
void define_sketch(KernelsClass& kernels);
void define_sparse(KernelsClass& kernels);
void define_threshold(KernelsClass& kernels);

}  // namespace laconic
