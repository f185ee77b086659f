// Any cells and any index: all kernels find the same vector, or refuse alike; and a vector that is found has
// just these cells.
//
//   form uint8: 1 cells of 64 bits, 2 no hashes, rest probes   size uint16   segments uint8   length uint8
//   words uint8   key uint64   payload: cells and index, zeros where it ends
#include <string>

#include "bytes.h"
#include "input.h"
#include "sketch.h"

namespace {

using laconic::SketchLayout;

SketchLayout take_layout(fuzz::Input& in, uint8_t form) {
  const size_t size = in.word();
  const uint32_t segments = in.byte() % 8u + 1, length = in.byte() + 1u, words = in.byte() + 1u, probes = form / 4 % 17;
  const auto key = in.fixed<uint64_t>();
  const auto bitmap = uint32_t((size + 31) / 32);
  if (form & 2 || size <= (segments + 2) * length) return {size, size, key, 0, 0, bitmap, 0};
  const size_t cells = std::min(size - 1, size_t(segments + 2) * length + key % 3);
  return {size, cells, key, segments, length, probes ? words : bitmap, probes};
}

template <typename C>
struct Outcome {
  std::string refusal;
  uint64_t left = 0;
  std::vector<C> x;
};

template <typename C>
Outcome<C> decode(const laconic::Kernels& kernels, const SketchLayout& layout, const std::vector<C>& cells,
                  const std::vector<uint32_t>& index, C fill) {
  Outcome<C> outcome;
  outcome.x.assign(layout.size, fill);  // an entry that nobody writes differs between two fills
  try {
    outcome.left = laconic::decode_sketch<C>(kernels, layout, cells.data(), index.data(), outcome.x.data());
  } catch (const laconic::FormatError& error) {
    outcome.refusal = error.what();
    fuzz::require(!outcome.refusal.empty(), "a refusal says why");
  }
  return outcome;
}

template <typename T>
std::vector<T> take(fuzz::Input& in, size_t count) {
  std::vector<T> values(count);
  for (T& value : values) value = in.fixed<T>();
  return values;
}

template <typename C>
void run(const SketchLayout& layout, fuzz::Input in) {
  const auto cells = take<C>(in, layout.cells);
  const auto index = take<uint32_t>(in, layout.words);
  const auto kernels = fuzz::every_kernels();
  const Outcome<C> first = decode<C>(*kernels.front(), layout, cells, index, 3);
  const Outcome<C> other = decode<C>(*kernels.back(), layout, cells, index, 4);
  fuzz::require(first.refusal == other.refusal && first.left == other.left, "all kernels refuse alike");
  if (!first.refusal.empty() || first.left) return;
  fuzz::require(first.x == other.x, "all kernels decode alike");
  for (const laconic::Kernels* k : kernels) {
    std::vector<C> again(layout.cells, 5);
    std::vector<uint32_t> known(layout.words, 5);
    laconic::encode_sketch<C, C>(*k, layout, first.x.data(), again.data(), known.data());
    fuzz::require(again == cells, "a vector that is found has these cells");
    for (size_t w = 0; w < known.size(); ++w) fuzz::require((known[w] & ~index[w]) == 0, "and is in this index");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  const uint8_t form = in.byte();
  const SketchLayout layout = take_layout(in, form);
  fuzz::require(layout.valid(), "the layouts of this target are valid");
  if (form & 1) run<int64_t>(layout, in);
  else run<int32_t>(layout, in);
  return 0;
}
