// Sparse tensors and their sums, as Python sees them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "bind.h"
#include "sparse.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

using Bytes = Row<uint8_t>;
using ConstLongs = Row<const int64_t>;

void check_unit(int64_t unit) {
  check(unit >= 1 && unit <= int64_t(kMostUnit) && (unit & (unit - 1)) == 0, "unit: expected 1, 2, 4, ... or 64");
}

// Ascending from 0 to `end`.
void check_bounds(const ConstLongs& bounds, size_t end) {
  check(bounds.shape(0) >= 1 && bounds.data()[0] == 0, "bounds: expected to begin with 0");
  for (size_t i = 1; i < bounds.shape(0); ++i)
    check(bounds.data()[i] >= bounds.data()[i - 1], "bounds: expected to ascend");
  check(size_t(bounds.data()[bounds.shape(0) - 1]) == end, "bounds: expected to end where the array does");
}

int64_t py_index_room(const Kernels&, int64_t words, int64_t unit) {
  check_unit(unit);
  check(words >= 0 && uint64_t(words) <= kMaxValues, "words: out of range");
  return int64_t(sparse_index_room(size_t(words), size_t(unit)));
}

// Segment s of x, from bounds[s] to bounds[s + 1], becomes a tensor of its own; sizes holds its bytes and words.
template <typename T>
void py_compact(const Kernels& kernels, const Row<const T>& x, const ConstLongs& bounds, int64_t unit,
                const Bytes& index, const Row<T>& values, const Rows<int64_t>& sizes) {
  check_unit(unit);
  check_bounds(bounds, x.shape(0));
  const size_t segments = bounds.shape(0) - 1;
  check(sizes.shape(0) == segments && sizes.shape(1) == 2, "sizes: expected two numbers for each segment");
  check(values.shape(0) >= x.shape(0), "values: expected room for all of x");
  size_t room = 0;
  for (size_t s = 0; s < segments; ++s)
    room += sparse_index_room(size_t(bounds.data()[s + 1] - bounds.data()[s]), size_t(unit));
  check(index.shape(0) >= room, "index: expected room for the index of every segment");
  const nb::gil_scoped_release release;
  uint8_t* index_at = index.data();
  T* values_at = values.data();
  for (size_t s = 0; s < segments; ++s) {
    const size_t from = size_t(bounds.data()[s]), words = size_t(bounds.data()[s + 1]) - from;
    const SparseSize size = compact<T>(kernels, x.data() + from, words, size_t(unit), index_at, values_at);
    sizes.data()[2 * s] = int64_t(size.index_bytes);
    sizes.data()[2 * s + 1] = int64_t(size.words);
    index_at += size.index_bytes;
    values_at += size.words;
  }
}

std::tuple<int64_t, int64_t> py_compact_large(const Kernels& kernels, const Row<float>& gradient,
                                              const Row<float>& memory, const LayerThresholds& layers,
                                              const Bytes& index, const Row<float>& values,
                                              const Row<int64_t>& counts) {
  const auto& [bounds, thresholds] = layers;
  const size_t words = gradient.shape(0);
  check_bounds(bounds, words);
  check(thresholds.shape(0) + 1 == bounds.shape(0), "thresholds: expected one for each layer");
  check(counts.shape(0) == thresholds.shape(0), "counts: expected one for each layer");
  for (size_t i = 0; i < thresholds.shape(0); ++i)
    check(thresholds.data()[i] >= 0, "thresholds: expected numbers of at least 0");
  check(memory.shape(0) == words, "memory: expected as many values as the gradient has");
  check(values.shape(0) >= words, "values: expected room for all of the gradient");
  check(index.shape(0) >= sparse_index_room(words, 1), "index: expected sparse_index_room");
  const nb::gil_scoped_release release;
  const SparseSize size =
      compact_large(kernels, gradient.data(), memory.data(), {bounds.data(), thresholds.data(), thresholds.shape(0)},
                    index.data(), values.data(), counts.data());
  return {int64_t(size.index_bytes), int64_t(size.words)};
}

template <typename T>
std::vector<SparsePart<T>> read_parts(const PackedParts<T>& packed) {
  const auto& [index, index_bounds, values, value_bounds] = packed;
  check_bounds(index_bounds, index.shape(0));
  check_bounds(value_bounds, values.shape(0));
  check(index_bounds.shape(0) == value_bounds.shape(0), "bounds: expected as many parts of index and values");
  std::vector<SparsePart<T>> parts;
  for (size_t p = 0; p + 1 < index_bounds.shape(0); ++p) {
    const int64_t *i = index_bounds.data() + p, *v = value_bounds.data() + p;
    parts.push_back({index.data() + i[0], size_t(i[1] - i[0]), values.data() + v[0], size_t(v[1] - v[0])});
  }
  return parts;
}

template <typename T>
void py_place_sum(const Kernels&, const PackedParts<T>& packed, int64_t unit, const Row<T>& out) {
  check_unit(unit);
  const auto parts = read_parts<T>(packed);
  const nb::gil_scoped_release release;
  place_sum<T>(parts.data(), parts.size(), out.shape(0), size_t(unit), out.data());
}

template <typename T>
std::tuple<int64_t, int64_t> py_compact_sum(const Kernels&, const PackedParts<T>& packed, int64_t words, int64_t unit,
                                            const Bytes& index_out, const Row<T>& values_out) {
  check_unit(unit);
  const auto parts = read_parts<T>(packed);
  check(words >= 0 && index_out.shape(0) >= sparse_index_room(size_t(words), size_t(unit)),
        "index_out: expected room for an index of so many words");
  check(values_out.shape(0) >= std::min(size_t(words), std::get<2>(packed).shape(0)), "values_out: expected room for all values");
  const nb::gil_scoped_release release;
  const SparseSize size = compact_sum<T>(parts.data(), parts.size(), size_t(words), size_t(unit), index_out.data(),
                                         values_out.data());
  return {int64_t(size.index_bytes), int64_t(size.words)};
}

template <typename T>
void define(KernelsClass& kernels) {
  kernels.def("compact", &py_compact<T>, "x"_a.noconvert(), "bounds"_a.noconvert(), "unit"_a,
        "index"_a.noconvert(), "values"_a.noconvert(), "sizes"_a.noconvert());
  kernels.def("place_sum", &py_place_sum<T>, "parts"_a.noconvert(), "unit"_a, "out"_a.noconvert());
  kernels.def("compact_sum", &py_compact_sum<T>, "parts"_a.noconvert(), "words"_a, "unit"_a,
        "index_out"_a.noconvert(), "values_out"_a.noconvert());
}

}  // namespace

void define_sparse(KernelsClass& kernels) {
  kernels.def("sparse_index_room", &py_index_room, "words"_a, "unit"_a);
  kernels.def("compact_large", &py_compact_large, "gradient"_a.noconvert(), "memory"_a.noconvert(),
        "layers"_a.noconvert(), "index"_a.noconvert(), "values"_a.noconvert(), "counts"_a.noconvert());
  define<float>(kernels);
  define<double>(kernels);
  define<int32_t>(kernels);
  define<int64_t>(kernels);
}

}  // namespace laconic
