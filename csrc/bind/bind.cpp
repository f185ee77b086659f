// Native code as Python sees it; the files called bind are the only ones that know Python. Arrays are
// never converted: a strided output would be filled in a copy and lost.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "batch.h"
#include "bind.h"
#include "bytes.h"
#include "id_list.h"
#include "kernels.h"
#include "rows.h"

using namespace nanobind::literals;

namespace laconic {


namespace {

using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Longs = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstLongs = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using LongTable = nb::ndarray<int64_t, nb::shape<-1, 6>, nb::c_contig, nb::device::cpu>;
using DoubleTable = nb::ndarray<double, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

std::vector<std::string> available() {
  std::vector<std::string> names;
  if (avx2_kernels()) names.emplace_back("avx2");
  names.emplace_back("scalar");
  return names;
}

const Kernels* kernels_named(const std::string& name) {
  if (name == "scalar") return scalar_kernels();
  if (name == "avx2" && avx2_kernels()) return avx2_kernels();
  throw nb::value_error(("kernels " + name + " are not available on this machine").c_str());
}

// The arrays of a BlockTable of laconic.kernels.blocks, with their columns in this order.
std::vector<Block> read_blocks(nb::handle table) {
  const nb::tuple arrays = nb::cast<nb::tuple>(table.attr("arrays"));
  const auto longs = nb::cast<LongTable>(arrays[0], false);
  const auto doubles = nb::cast<DoubleTable>(arrays[1], false);
  if (longs.shape(0) != doubles.shape(0)) throw nb::value_error("block tables of different length");
  std::vector<Block> blocks(longs.shape(0));
  uint64_t values = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int64_t* l = longs.data() + 6 * i;
    const double* d = doubles.data() + 3 * i;
    if (l[0] < 0 || l[0] > int64_t(Kind::kLossless) || l[1] < 0 || l[2] < 0 || uint64_t(l[1]) > kMaxBlock ||
        (l[1] > 0 && uint64_t(l[2]) > kMaxBlock / uint64_t(l[1])) || l[3] < 0 || l[3] > 7 || (l[3] & 5) == 5 || l[5] < 1 ||
        l[5] > 255 || !(d[0] > 0) || !std::isfinite(d[0]))
      throw nb::value_error(
          ("block " + std::to_string(i) + ": kind, shape, flags, window or bound out of range").c_str());
    values += uint64_t(l[1]) * uint64_t(l[2]);
    check(values <= kMaxValues, "more than 2^40 values in one call");
    const Relative relative = l[3] & 1 ? Relative::kToRange : l[3] & 4 ? Relative::kToRms : Relative::kNo;
    const BoundSpec bound{d[0], relative, (l[3] & 2) != 0, uint64_t(l[4])};
    blocks[i] = {Kind(l[0]), size_t(l[1]), size_t(l[2]), bound, int(l[5]), d[1], d[2]};
  }
  return blocks;
}

size_t count_values(const std::vector<Block>& blocks) {
  size_t n = 0;
  for (const Block& b : blocks) n += b.rows * b.cols;
  return n;
}

int64_t py_max_bytes(const Kernels&, nb::handle table) {
  int64_t total = 0;
  for (const Block& b : read_blocks(table)) total += int64_t(block_max_bytes(b));
  return total;
}

void py_encode_blocks(const Kernels& kernels, nb::handle table, const Floats& x,
                      const Bytes& out, const Longs& offsets, int threads) {
  const std::vector<Block> blocks = read_blocks(table);
  size_t room = 0;
  for (const Block& b : blocks) room += block_max_bytes(b);
  check(x.shape(0) == count_values(blocks), "x does not have as many values as the blocks");
  check(out.shape(0) >= room, "out is smaller than max_bytes of the blocks");
  check(offsets.shape(0) == blocks.size() + 1, "offsets must have one more entry than there are blocks");
  const nb::gil_scoped_release release;
  encode_blocks(kernels, blocks.data(), blocks.size(), x.data(), out.data(), offsets.data(), threads);
}

void py_decode_blocks(const Kernels& kernels, nb::handle table, const Bytes& in,
                      const Longs& offsets, const Floats& out, int threads) {
  const std::vector<Block> blocks = read_blocks(table);
  check(out.shape(0) == count_values(blocks), "out does not have as many values as the blocks");
  check(offsets.shape(0) == blocks.size() + 1, "offsets must have one more entry than there are blocks");
  const nb::gil_scoped_release release;
  decode_blocks(kernels, blocks.data(), blocks.size(), in.data(), in.shape(0), offsets.data(), out.data(), threads);
}

size_t count_all(const Longs& counts) {
  size_t n = 0;
  for (size_t i = 0; i < counts.shape(0); ++i) {
    check(counts.data()[i] >= 0 && uint64_t(counts.data()[i]) <= kMaxBlock, "a count is out of range");
    n += size_t(counts.data()[i]);
    check(n <= kMaxValues, "a count is out of range");
  }
  return n;
}

void py_encode_ids(const Kernels& kernels, const Longs& counts, const Longs& ids, const Bytes& out,
                   const Longs& offsets, int threads) {
  const size_t n = count_all(counts);
  check(ids.shape(0) == n, "ids does not have as many values as counts says");
  check(out.shape(0) >= 8 * n + 16 * counts.shape(0), "out is smaller than max_bytes of the lists");
  check(offsets.shape(0) == counts.shape(0) + 1, "offsets must have one more entry than there are lists");
  const nb::gil_scoped_release release;
  encode_id_lists(kernels, counts.data(), counts.shape(0), ids.data(), out.data(), offsets.data(), threads);
}

void py_decode_ids(const Kernels& kernels, const Longs& counts, const Bytes& in, const Longs& offsets,
                   const Longs& out, int threads) {
  check(out.shape(0) == count_all(counts), "out does not have as many values as counts says");
  check(offsets.shape(0) == counts.shape(0) + 1, "offsets must have one more entry than there are lists");
  const nb::gil_scoped_release release;
  decode_id_lists(kernels, counts.data(), counts.shape(0), in.data(), in.shape(0), offsets.data(), out.data(),
                  threads);
}

uint64_t py_count_ids(const Kernels&, const Bytes& block) { return count_ids(block.data(), block.shape(0)); }

template <typename T>
Matrix<T> matrix(const Rows<T>& x) {
  return {x.data(), x.shape(0), x.shape(1)};
}

constexpr int64_t kNothing = 0;  // an empty array may have no address, and nullptr means that there is none

Indices indices(const ConstLongs& index) { return {index.shape(0) ? index.data() : &kNothing, index.shape(0)}; }
Indices indices(const std::optional<ConstLongs>& index) { return index ? indices(*index) : Indices{nullptr, 0}; }

template <typename T>
void py_add_rows(const Kernels& kernels, const Rows<T>& out, const ConstLongs& index, const Rows<const T>& source,
                 const std::optional<ConstLongs>& source_index) {
  const nb::gil_scoped_release release;
  add_rows<T>(kernels, matrix(out), indices(index), matrix(source), indices(source_index));
}

template <typename T>
void py_sum_bags(const Kernels& kernels, const Rows<T>& out, const Rows<const T>& weight, const ConstLongs& index,
                 const std::optional<ConstLongs>& offsets) {
  const nb::gil_scoped_release release;
  sum_bags<T>(kernels, matrix(out), matrix(weight), indices(index), indices(offsets));
}

template <typename T>
size_t py_update_rows(const Kernels& kernels, const RowTable<T>& table, const ConstLongs& rows,
                      const ConstLongs& order, const Rows<const T>& grads,
                      const std::optional<ConstLongs>& grad_index, const UpdateSettings& update,
                      const std::optional<Noise<T>>& noise) {
  const nb::gil_scoped_release release;
  const auto& [weight, state] = table;
  const auto& [optimizer, lr, eps] = update;
  T none{};
  T* const values = !state ? nullptr : state->shape(0) ? state->data() : &none;
  RowNoise<T> counted{};
  if (noise) {
    const auto& [variance, parts, grid_steps, figures, samples] = *noise;
    for (const bool there : {variance.is_valid(), parts.is_valid(), grid_steps.is_valid(), figures.is_valid()})
      if (!there) throw nb::type_error("update_rows(): incompatible function arguments: noise has no None");
    check(figures.shape(1) == 2, "update_rows: noise.figures: expected two columns");
    counted = {variance.data(), parts.data(), grid_steps.data(), figures.data(), T(samples)};
    expect_noise<T>(kernels, counted, variance.shape(0), indices(parts), grid_steps.shape(0), figures.shape(0),
                    matrix(weight), matrix(grads), indices(rows));
  }
  return update_rows<T>(kernels, matrix(weight), values, state ? state->shape(0) : 0, indices(rows), indices(order),
                        matrix(grads), indices(grad_index), optimizer, lr, eps, noise ? &counted : nullptr);
}

template <typename T>
void define_rows(KernelsClass& kernels) {
  kernels.def("add_rows", &py_add_rows<T>, "out"_a.noconvert(), "index"_a.noconvert(), "source"_a.noconvert(),
        "source_index"_a.noconvert().none());
  kernels.def("sum_bags", &py_sum_bags<T>, "out"_a.noconvert(), "weight"_a.noconvert(), "index"_a.noconvert(),
        "offsets"_a.noconvert().none());
  kernels.def("update_rows", &py_update_rows<T>, "table"_a.noconvert(), "rows"_a.noconvert(), "order"_a.noconvert(),
        "grads"_a.noconvert(), "grad_index"_a.noconvert().none(), "update"_a, "noise"_a.noconvert().none() = nb::none());
}

}  // namespace
}  // namespace laconic

NB_MODULE(_native, m) {
  using namespace laconic;
  nb::register_exception_translator(
      [](const std::exception_ptr& p, void*) {
        try {
          std::rethrow_exception(p);
        } catch (const FormatError& error) {
          const nb::object type = nb::module_::import_("laconic.errors").attr("FormatError");
          PyErr_SetString(type.ptr(), error.what());
        }
      });
  nb::set_leak_warnings(false);  // kernels are loaded once and stay until the process ends
  m.def("available", &available);
  m.def("load", &kernels_named, "name"_a, nb::rv_policy::reference);
  KernelsClass kernels(m, "Kernels");
  kernels.def_prop_ro("name", [](const Kernels& self) { return &self == scalar_kernels() ? "scalar" : "avx2"; });
  kernels.def("max_bytes", &py_max_bytes, "table"_a);
  kernels.def("encode_blocks", &py_encode_blocks, "table"_a,
        "x"_a.noconvert(), "out"_a.noconvert(), "offsets"_a.noconvert(), "threads"_a);
  kernels.def("decode_blocks", &py_decode_blocks, "table"_a,
        "block"_a.noconvert(), "offsets"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
  kernels.def("encode_ids", &py_encode_ids, "counts"_a.noconvert(), "ids"_a.noconvert(), "out"_a.noconvert(),
        "offsets"_a.noconvert(), "threads"_a);
  kernels.def("decode_ids", &py_decode_ids, "counts"_a.noconvert(), "block"_a.noconvert(),
        "offsets"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
  kernels.def("count_ids", &py_count_ids, "block"_a.noconvert());
  define_rows<float>(kernels);
  define_rows<double>(kernels);
  define_sparse(kernels);
  define_sketch(kernels);
  define_threshold(kernels);
  define_packets(m);
  define_first_rows(kernels);
  define_heads(kernels);
  define_levels(kernels);
  define_sorted_keys(kernels);
  define_embedding_bag(m, kernels);
  define_bit_rows(kernels);
  define_quantize_rows(kernels);
  define_dense(m, kernels);
}
