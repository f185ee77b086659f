// Where the codes of a block lie that do not fit int8 around zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace laconic {

struct CodeWindow {
  int32_t base = 0;  // the median of a sample
  int low_bits = 0;  // that go out raw
};

// The cheapest over a sample. `finite` says that all of x are; all codes lie in low..high.
CodeWindow fit_window(const Kernels& kernels, const float* x, size_t n, bool finite, float inverse, int32_t low,
                      int32_t high);

}  // namespace laconic
