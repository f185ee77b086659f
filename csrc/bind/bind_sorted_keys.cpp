// Sorting of keys, as Python sees it.
#include "bind.h"
#include "sorted_keys.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

void check_keys(const Row<const int64_t>& keys) {
  for (size_t i = 0; i < keys.shape(0); ++i)
    if (keys.data()[i] < 0)
      throw nb::value_error(("expected keys of at least 0, got " + std::to_string(keys.data()[i])).c_str());
}

void py_stable_order(const Kernels&, const Row<const int64_t>& keys, const Row<int64_t>& order) {
  check(order.shape(0) == keys.shape(0), "order must be as long as the keys");
  check_keys(keys);
  const nb::gil_scoped_release release;
  stable_order(keys.data(), keys.shape(0), order.data());
}

size_t py_distinct_keys(const Kernels&, const Row<const int64_t>& keys, const Row<int64_t>& distinct,
                        const Row<int64_t>& inverse) {
  check(distinct.shape(0) == keys.shape(0) && inverse.shape(0) == keys.shape(0),
        "distinct and inverse must be as long as the keys");
  check_keys(keys);
  const nb::gil_scoped_release release;
  return distinct_keys(keys.data(), keys.shape(0), distinct.data(), inverse.data());
}

}  // namespace

void define_sorted_keys(KernelsClass& kernels) {
  kernels.def("stable_order", &py_stable_order, "keys"_a.noconvert(), "order"_a.noconvert());
  kernels.def("distinct_keys", &py_distinct_keys, "keys"_a.noconvert(), "distinct"_a.noconvert(),
              "inverse"_a.noconvert());
}

}  // namespace laconic
