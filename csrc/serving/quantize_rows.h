// Tables to rows in few bits, all of one table in one call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace laconic {

// Fills `out`, rows of row_bytes(format, dim), from float32 rows of `dim` > 0 numbers; int8, int4 and int2 only. Returns
// the first row that the format does not hold, `out` being unspecified then; or -1.
int64_t quantize_rows(const Kernels& kernels, const float* x, size_t rows, size_t dim, RowFormat format,
                      RangeMethod method, uint8_t* out, int threads);

}  // namespace laconic
