// Heads of messages, as Python sees them.
#include "bind.h"
#include "heads.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

void check_offsets(size_t offsets, size_t heads) {
  check(offsets == heads + 1, "offsets must have one more entry than there are heads");
}

void py_encode_heads(const Kernels&, const Rows<const int64_t>& numbers, const Row<uint8_t>& out,
                     const Row<int64_t>& offsets) {
  const size_t heads = numbers.shape(0), count = numbers.shape(1);
  check_offsets(offsets.shape(0), heads);
  check(count <= kMaxBlock && heads <= kMaxBlock, "more than 2^32 - 1 numbers or heads");
  check(out.shape(0) >= heads * head_max_bytes(count), "out is smaller than the heads may be");
  const nb::gil_scoped_release release;
  encode_heads(numbers.data(), heads, count, out.data(), offsets.data());
}

void py_decode_heads(const Kernels&, const Row<const uint8_t>& in, const Row<const int64_t>& offsets,
                     const Rows<int64_t>& numbers) {
  const size_t heads = numbers.shape(0), count = numbers.shape(1);
  check_offsets(offsets.shape(0), heads);
  const nb::gil_scoped_release release;
  decode_heads(in.data(), in.shape(0), offsets.data(), heads, count, numbers.data());
}

}  // namespace

void define_heads(KernelsClass& kernels) {
  kernels.def("encode_heads", &py_encode_heads, "numbers"_a.noconvert(), "out"_a.noconvert(),
              "offsets"_a.noconvert());
  kernels.def("decode_heads", &py_decode_heads, "block"_a.noconvert(), "offsets"_a.noconvert(),
              "numbers"_a.noconvert());
}

}  // namespace laconic
