// IdList: int64 ids without loss, as differences or as offsets, in classes by size.
// docs/formats/id_list.md is the normative text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"
#include "scratch.h"

namespace laconic {

inline size_t ids_max_bytes(size_t n) { return n * 8 + 16; }

size_t encode_ids(const Kernels& kernels, const int64_t* ids, size_t n, Scratch& scratch, uint8_t* out);

// How many ids the block says it has.
uint64_t count_ids(const uint8_t* block, size_t size);

// Throws FormatError unless the block holds exactly n ids.
void decode_ids(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end, size_t n,
                Scratch& scratch, int64_t* out);

}  // namespace laconic
