// Any ids, there and back without loss, with the same bytes from every kernel and thread count.
//
//   pattern uint8   repeats uint8   payload: the ids, as `pattern` reads them
#include "agreement.h"
#include "id_list.h"

namespace {

constexpr size_t kMaxIds = 40000;  // more than one chunk

enum Pattern : uint8_t { kPlain, kSteps, kWideSteps, kBytes };

std::vector<int64_t> read_ids(fuzz::Input& in, Pattern pattern, size_t repeats) {
  std::vector<int64_t> ids;
  uint64_t sum = 0;
  const fuzz::Input start = in;
  for (size_t k = 0; k <= repeats && ids.size() < kMaxIds; ++k)
    for (in = start; in.left() > 0;) {
      if (pattern == kPlain) ids.push_back(in.fixed<int64_t>());
      else if (pattern == kSteps) ids.push_back(int64_t(sum += in.byte()));
      else if (pattern == kWideSteps) ids.push_back(int64_t(sum += in.fixed<uint64_t>() >> 20));
      else ids.push_back(int8_t(in.byte()));
    }
  return ids;
}

std::vector<uint8_t> encode(const laconic::Kernels& kernels, const std::vector<int64_t>& counts,
                            const std::vector<int64_t>& ids, int threads, std::vector<int64_t>& offsets) {
  size_t room = 0;
  for (const int64_t count : counts) room += laconic::ids_max_bytes(size_t(count));
  std::vector<uint8_t> out(room, 0xff);
  offsets.assign(counts.size() + 1, -1);
  laconic::encode_id_lists(kernels, counts.data(), counts.size(), ids.data(), out.data(), offsets.data(), threads);
  for (size_t i = 0; i < counts.size(); ++i)
    fuzz::require(size_t(offsets[i + 1] - offsets[i]) <= laconic::ids_max_bytes(size_t(counts[i])),
                  "a list keeps to its room");
  return std::vector<uint8_t>(out.begin(), out.begin() + offsets.back());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  const uint8_t pattern = in.byte(), repeats = in.byte();
  const std::vector<int64_t> ids = read_ids(in, Pattern(pattern & 3), repeats);
  const auto first = int64_t(ids.size() * (pattern >> 2) / 64);  // two lists, either may be empty
  const std::vector<int64_t> counts{first, int64_t(ids.size()) - first};
  std::vector<int64_t> offsets, others;
  const auto kernels = fuzz::every_kernels();
  const std::vector<uint8_t> bytes = encode(*kernels[0], counts, ids, 1, offsets);
  for (const laconic::Kernels* k : kernels)
    for (const int threads : {1, 2}) {
      fuzz::require(encode(*k, counts, ids, threads, others) == bytes && others == offsets, "same ids, same bytes");
      std::vector<int64_t> back(ids.size(), -7);
      laconic::decode_id_lists(*k, counts.data(), 2, bytes.data(), bytes.size(), offsets.data(), back.data(), threads);
      fuzz::require(back == ids, "ids come back");
    }
  return 0;
}
