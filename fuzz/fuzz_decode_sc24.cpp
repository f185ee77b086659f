// Any bytes as a block of the SC'24 encoders, which share one decoder: rows uint16, cols uint16, block.
#include "agreement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  fuzz::decode_floats(laconic::Kind::kHybrid, in);
  return 0;
}
