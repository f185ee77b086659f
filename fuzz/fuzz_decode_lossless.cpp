// Any bytes as a Lossless block: rows uint16, cols uint16, block.
#include "agreement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  fuzz::decode_floats(laconic::Kind::kLossless, in);
  return 0;
}
