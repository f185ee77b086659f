#include "scratch.h"

namespace laconic {
namespace {

template <typename... Vectors>
size_t capacity(const Vectors&... vectors) {
  return (0 + ... + (vectors.capacity() * sizeof(*vectors.data())));
}

}  // namespace

size_t Scratch::bytes() const {
  const Distinct& d = distinct;
  return capacity(codes8, distinct8, codes16, distinct16, symbols, slots, other, failed, refs, numbers, patches, outliers,
                  d.first, d.flags, d.indices, d.hashes, d.slots, d.seen, d.again, d.candidate, d.ids, d.counts, d.number);
}

}  // namespace laconic
