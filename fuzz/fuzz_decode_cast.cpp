// Any bytes as a fixed-rate cast: type uint8, rows uint16, cols uint16, block.
#include "agreement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  const auto type = uint8_t(in.byte() % 5);
  fuzz::decode_floats(laconic::Kind(uint8_t(laconic::Kind::kFloat16) + type), in);
  return 0;
}
