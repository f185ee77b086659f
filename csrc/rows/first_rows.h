// First values of rows, as a function of seed, table and row: Philox 4x64-10, as numpy draws it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic {

// Rows whose values numpy would draw from one generator, one after the other.
inline constexpr int64_t kFirstRowsChunk = int64_t(1) << 16;

// Fills each row of out with numbers in [0, 1), those of the row of the table that rows names.
void first_rows(float* out, size_t dim, const int64_t* rows, size_t count, uint64_t seed, uint64_t table);

}  // namespace laconic
