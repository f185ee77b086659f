// Dense layers as Python sees them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <optional>
#include <string>

#include "bind.h"
#include "dense.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

using Floats = Row<const float>;

void add_layer(Int8Layers& layers, const Rows<const int8_t>& weights, const Floats& scales,
               const std::optional<Floats>& biases, const std::optional<Floats>& equal,
               const std::optional<Floats>& range, bool relu) {
  const size_t outputs = weights.shape(0), inputs = weights.shape(1);
  check(outputs > 0 && inputs > 0, "Int8Layers.add: a layer has outputs and inputs");
  check(inputs <= 60000, "Int8Layers.add: sums of more than 60000 inputs may not fit 32 bits");
  check(!layers.count() || layers.outputs() == inputs, "Int8Layers.add: inputs must be the outputs of the layer before");
  check(scales.shape(0) == outputs && (!biases || biases->shape(0) == outputs) && (!equal || equal->shape(0) == inputs),
        "Int8Layers.add: scales, biases or equal of the wrong length");
  check(!range || (range->shape(0) == 2 && range->data()[0] <= 0 && range->data()[1] >= 0 &&
                   std::isfinite(range->data()[1] - range->data()[0])),
        "Int8Layers.add: range must be finite and hold 0");
  layers.add(weights.data(), outputs, inputs, scales.data(), biases ? biases->data() : nullptr,
             equal ? equal->data() : nullptr, range ? range->data() : nullptr, relu);
}

void run_layers(const Int8Layers& layers, const Rows<const float>& x, const Rows<float>& out, int threads) {
  check(layers.count() > 0, "Int8Layers.run: no layers");
  check(x.shape(1) == layers.inputs() && out.shape(0) == x.shape(0) && out.shape(1) == layers.outputs(),
        "Int8Layers.run: x or out has the wrong shape");
  const nb::gil_scoped_release release;
  layers.run(x.data(), x.shape(0), out.data(), out.shape(1), threads);
}

void py_interact(const Kernels& kernels, const nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>& vectors, size_t keep,
                 const Rows<float>& out, int threads, bool wide) {
  const size_t rows = vectors.shape(0), count = vectors.shape(1), dim = vectors.shape(2);
  check(count > 0 && keep <= count, "interact: expected at least as many vectors as are kept");
  check(out.shape(0) == rows && out.shape(1) == keep * dim + count * (count - 1) / 2,
        "interact: out has the wrong shape");
  const nb::gil_scoped_release release;
  interact(kernels, vectors.data(), rows, count, dim, keep, out.data(), wide, threads);
}

}  // namespace

void define_dense(nb::module_& m, KernelsClass& kernels) {
  nb::class_<Int8Layers>(m, "Int8Layers")
      .def("add", &add_layer, "weights"_a.noconvert(), "scales"_a.noconvert(), "biases"_a.noconvert().none(),
           "equal"_a.noconvert().none(), "range"_a.noconvert().none(), "relu"_a)
      .def("run", &run_layers, "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
  kernels.def("int8_layers", [](const Kernels& self, bool wide) { return new Int8Layers(self, wide); }, "wide"_a = true,
              nb::rv_policy::take_ownership);
  kernels.def("interact", &py_interact, "vectors"_a.noconvert(), "keep"_a, "out"_a.noconvert(), "threads"_a,
        "wide"_a = true);
}

}  // namespace laconic
