// Any bytes as a list of ids: count uint16, block. Count 65535 means the block's own.
#include "agreement.h"
#include "id_list.h"

namespace {

size_t own_count(const std::vector<uint8_t>& block) {
  try {
    return size_t(std::min<uint64_t>(laconic::count_ids(block.data(), block.size()), fuzz::kMaxValues));
  } catch (const laconic::FormatError&) {
    return 0;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  const size_t header = in.word();
  const std::vector<uint8_t> block = in.rest();
  const auto count = int64_t(header == 0xffff ? own_count(block) : header);
  fuzz::require_agreement<int64_t>(block, size_t(count),
                                   [&](const laconic::Kernels& kernels, const uint8_t* bytes, size_t readable,
                                       const int64_t* offsets, int64_t* out, int threads) {
                                     laconic::decode_id_lists(kernels, &count, 1, bytes, readable, offsets, out,
                                                              threads);
                                   });
  return 0;
}
