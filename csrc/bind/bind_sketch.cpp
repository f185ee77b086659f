// The sketch as Python sees it.
#include <nanobind/stl/string.h>

#include <string>

#include "bind.h"
#include "sketch.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

// size, cells, key, segments, length, words, probes: the order in which laconic.kernels.sketch_layout gives them.
// The numbers of a SketchLayout of laconic.kernels.sketch_layout.
SketchLayout read_layout(nb::handle described) {
  const auto numbers = nb::cast<Row<const uint64_t>>(described.attr("numbers"), false);
  check(numbers.shape(0) == 7, "a layout has seven numbers");
  const uint64_t* n = numbers.data();
  for (size_t i = 3; i < 7; ++i) check(n[i] <= 0xffffffffu, "layout: a number has more than 32 bits");
  const SketchLayout layout{size_t(n[0]),   size_t(n[1]),   n[2],          uint32_t(n[3]),
                            uint32_t(n[4]), uint32_t(n[5]), uint32_t(n[6])};
  check(layout.valid(), "layout: its numbers contradict each other");
  return layout;
}

template <typename X, typename C>
uint64_t py_encode_sketch(const Kernels& kernels, nb::handle described, const Row<const X>& x,
                          const Row<C>& cells, const Row<uint32_t>& index) {
  const SketchLayout layout = read_layout(described);
  check(x.shape(0) == layout.size, "x does not have as many entries as the layout");
  check(cells.shape(0) == layout.cells, "cells does not have as many cells as the layout");
  check(index.shape(0) == layout.words, "index does not have as many words as the layout");
  const nb::gil_scoped_release release;
  return encode_sketch<X, C>(kernels, layout, x.data(), cells.data(), index.data());
}

template <typename C>
uint64_t py_decode_sketch(const Kernels& kernels, nb::handle described, const Row<const C>& cells,
                          const Row<const uint32_t>& index, const Row<C>& out) {
  const SketchLayout layout = read_layout(described);
  check(cells.shape(0) == layout.cells, "cells does not have as many cells as the layout");
  check(index.shape(0) == layout.words, "index does not have as many words as the layout");
  check(out.shape(0) == layout.size, "out does not have as many entries as the layout");
  const nb::gil_scoped_release release;
  return decode_sketch<C>(kernels, layout, cells.data(), index.data(), out.data());
}

template <typename C>
void define_cells(KernelsClass& kernels) {
  kernels.def("encode_sketch", &py_encode_sketch<int32_t, C>, "layout"_a, "x"_a.noconvert(),
        "cells"_a.noconvert(), "index"_a.noconvert());
  kernels.def("encode_sketch", &py_encode_sketch<int64_t, C>, "layout"_a, "x"_a.noconvert(),
        "cells"_a.noconvert(), "index"_a.noconvert());
  kernels.def("decode_sketch", &py_decode_sketch<C>, "layout"_a, "cells"_a.noconvert(),
        "index"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace

void define_sketch(KernelsClass& kernels) {
  define_cells<int32_t>(kernels);
  define_cells<int64_t>(kernels);
}

}  // namespace laconic
