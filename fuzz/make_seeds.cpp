// Writes the first inputs of every target: `make_seeds DIRECTORY`. Random bytes hardly ever form
// a block; these are blocks of every form, and the values they came from.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "batch.h"
#include "heads.h"
#include "id_list.h"
#include "sketch.h"
#include "sparse.h"

namespace {

using laconic::Block;
using laconic::Kind;
using Bytes = std::vector<uint8_t>;

std::string root;

void save(const std::string& target, const Bytes& bytes) {
  static int number = 0;
  const std::string folder = root + "/" + target, path = folder + "/" + std::to_string(number++);
  mkdir(folder.c_str(), 0777);
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) {
    std::fprintf(stderr, "make_seeds: cannot write %s\n", path.c_str());
    std::exit(1);
  }
  std::fclose(file);
}

template <typename T>
void append(Bytes& bytes, const T& value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), p, p + sizeof(T));
}

void append_shape(Bytes& bytes, size_t rows, size_t cols) {
  append(bytes, uint16_t(rows));
  append(bytes, uint16_t(cols));
}

uint32_t draw() {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return uint32_t(state >> 33);
}

float draw_normal() {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += double(draw()) * 0x1p-31;
  return float(sum);
}

struct Recipe {
  size_t rows, cols;
  float spread;    // in bounds
  size_t distinct; // rows are drawn from so many; 0: all differ
  float shift;     // of every value, in bounds
  int escapes;     // one value of so many is far out; 0: none
};

// Reach every form: packed, groups of all sizes, static and own codes, wide codes, outliers, references, patches.
constexpr Recipe kRecipes[] = {
    {1, 1, 1, 0, 0, 0},       {2, 3, 4, 0, 0, 0},        {1, 40, 0.5f, 0, 0, 0},    {16, 8, 60, 0, 0, 0},
    {8, 16, 400, 0, 0, 0},    {16, 16, 20000, 0, 0, 0},  {40, 16, 2, 5, 0, 0},      {64, 4, 30, 40, 0, 9},
    {300, 4, 3, 20, 0, 50},   {100, 8, 600, 30, 0, 0},   {64, 32, 1, 0, 0, 0},      {64, 32, 6, 0, 0, 0},
    {64, 32, 30, 0, 0, 40},   {32, 32, 900, 0, 0, 0},    {8, 8, 5, 0, 100000, 0},   {8, 8, 5, 0, 9e6f, 0},
    {600, 2, 8, 300, 0, 0},   {3000, 1, 40, 900, 0, 0},  {2200, 4, 5, 3, 0, 0},     {900, 44, 3, 0, 0, 0},
    {290, 256, 1, 0, 0, 0},   {90, 8, 0.2f, 0, 0, 10},  {1, 1020, 30, 0, 0, 0},    {1, 4080, 0.9f, 0, 0, 0},
    {32, 16, 0.3f, 0, 0, 0},  {24, 16, 0.2f, 0, 0, 0},   {5, 5, 100, 0, 150, 0},    {12, 7, 3, 0, 0, 2},
    {20, 20, 0, 0, 3, 7},     {4096, 4, 2, 4000, 0, 0},
};
constexpr float kBound = 0.01f;
constexpr size_t kLongest = 19000;  // libFuzzer would cut what is longer than its -max_len

std::vector<float> values(const Recipe& r) {
  const size_t rows = r.distinct ? r.distinct : r.rows;
  std::vector<float> pool(rows * r.cols), x;
  for (size_t i = 0; i < pool.size(); ++i) {
    pool[i] = (draw_normal() * r.spread + r.shift) * kBound;
    if (r.escapes && draw() % uint32_t(r.escapes) == 0) pool[i] = draw() % 2 ? NAN : 1e20f;
  }
  for (size_t i = 0; i < r.rows; ++i) {
    const size_t from = r.distinct ? draw() % r.distinct * (draw() % 2) : i;
    x.insert(x.end(), pool.begin() + std::ptrdiff_t(from * r.cols), pool.begin() + std::ptrdiff_t((from + 1) * r.cols));
  }
  return x;
}

Bytes encoded(const Block& block, const std::vector<float>& x) {
  Bytes bytes(laconic::block_max_bytes(block));
  int64_t offsets[2];
  laconic::encode_blocks(*laconic::scalar_kernels(), &block, 1, x.data(), bytes.data(), offsets, 1);
  bytes.resize(size_t(offsets[1]));
  return bytes;
}

std::string decoder_of(Kind kind) {
  if (kind == Kind::kRows) return "fuzz_decode_rows";
  if (kind == Kind::kLossless) return "fuzz_decode_lossless";
  return kind < Kind::kFloat16 ? "fuzz_decode_sc24" : "fuzz_decode_cast";
}

void save_blocks(const Recipe& r) {
  const std::vector<float> x = values(r);
  for (uint8_t kind = 0; kind <= uint8_t(Kind::kLossless); ++kind) {
    if (Kind(kind) == Kind::kHybrid) continue;  // its blocks are those of the two before
    const bool cast = Kind(kind) >= Kind::kFloat16 && Kind(kind) <= Kind::kFloat32;
    if (cast && x.size() > 500) continue;
    const Block block{Kind(kind), r.rows, r.cols, {double(kBound), laconic::Relative::kNo, false, 0}, 64, 0.0, 0.0};
    Bytes seed;
    if (cast) seed.push_back(uint8_t(kind - uint8_t(Kind::kFloat16)));
    append_shape(seed, r.rows, r.cols);
    const Bytes bytes = encoded(block, x);
    if (bytes.size() > kLongest) continue;
    seed.insert(seed.end(), bytes.begin(), bytes.end());
    save(decoder_of(Kind(kind)), seed);
  }
}

// Lossless blocks of which only some values, or some runs of them, are not zero.
void save_sparse_values(const Recipe& r) {
  for (const size_t run : {size_t(1), size_t(20)}) {
    std::vector<float> x = values(r);
    for (size_t i = 0; i < x.size(); i += run)
      if (draw() % 4) std::fill_n(x.data() + i, std::min(run, x.size() - i), 0.0f);
    Bytes seed;
    append_shape(seed, r.rows, r.cols);
    const Bytes bytes = encoded({Kind::kLossless, r.rows, r.cols, {1.0, laconic::Relative::kNo, false, 0}, 1, 0.0, 0.0}, x);
    if (bytes.size() > kLongest) continue;
    seed.insert(seed.end(), bytes.begin(), bytes.end());
    save("fuzz_decode_lossless", seed);
  }
}

// kind, flags, blocks, window, shape, pattern, bound, payload: as fuzz_round_trip.cpp reads them
void save_values(const Recipe& r) {
  for (uint8_t kind = 0; kind <= uint8_t(Kind::kLossless); ++kind)
    for (uint8_t flags = 0; flags < 4; ++flags) {
      if (flags && (kind > 3 || r.rows * r.cols > 600)) continue;  // large ones cost time
      Bytes seed{kind, flags, uint8_t(draw() % 3), 63};
      append_shape(seed, r.rows, r.cols);
      const bool narrow = r.spread < 40, large = kind == 0 && r.rows * r.cols > 70000;
      seed.push_back(uint8_t((narrow ? 1 : 2) + (draw() % 2 ? 4 : 0) + 8 * (draw() % 8)));
      append(seed, kBound);
      for (size_t i = 0; i < std::min<size_t>(r.rows * r.cols, large ? 9000 : 300); ++i) {
        const float v = draw_normal() * r.spread + r.shift;
        if (narrow) seed.push_back(uint8_t(int8_t(std::fmax(-127.0f, std::fmin(v, 127.0f)))));
        else append(seed, int16_t(std::fmax(-32767.0f, std::fmin(v, 32767.0f))));
      }
      save("fuzz_round_trip", seed);
    }
  for (const uint8_t flags : {1, 16}) {  // a share of the range, of the RMS
    Bytes seed{0, flags, 0, 63};         // plain float32 values
    append_shape(seed, r.rows, r.cols);
    seed.push_back(0);
    append(seed, kBound);
    const std::vector<float> x = values(r);
    for (size_t i = 0; i < std::min<size_t>(x.size(), 256); ++i) append(seed, x[i]);
    save("fuzz_round_trip", seed);
  }
}

// Ids with steps of up to `step`, ascending or in any order.
void save_ids(size_t n, uint64_t step, bool ascending) {
  std::vector<int64_t> ids(n);
  uint64_t sum = 0;
  for (auto& id : ids) id = int64_t(sum += (uint64_t(draw()) << 31 | draw()) % step);
  if (!ascending)
    for (auto& id : ids) std::swap(id, ids[draw() % n]);
  Bytes bytes(laconic::ids_max_bytes(n));
  int64_t offsets[2];
  const auto count = int64_t(n);
  laconic::encode_id_lists(*laconic::scalar_kernels(), &count, 1, ids.data(), bytes.data(), offsets, 1);
  Bytes seed{0xff, 0xff};
  seed.insert(seed.end(), bytes.begin(), bytes.begin() + offsets[1]);
  save("fuzz_decode_ids", seed);

  Bytes trip{uint8_t(draw() << 2), 0};
  for (size_t i = 0; i < std::min<size_t>(n, 500); ++i) append(trip, ids[i]);
  save("fuzz_round_trip_ids", trip);
  for (uint8_t pattern = 1; pattern < 4; ++pattern) {
    Bytes steps{uint8_t(pattern | draw() << 2), uint8_t(n == 400 && step == 20 ? 100 : 0)};
    for (size_t i = 0; i < std::min<size_t>(n, 400); ++i) steps.push_back(uint8_t(draw() % step));
    save("fuzz_round_trip_ids", steps);
  }
}

// Heads of as many numbers, of which one in `one_in` is not 0 and has up to 63 bits; all are alike.
void save_heads(uint8_t count, uint8_t heads, uint32_t one_in) {
  std::vector<int64_t> numbers(count), offsets(heads + 1u);
  for (auto& number : numbers)
    if (draw() % one_in == 0) number = int64_t((uint64_t(draw()) << 32 | draw()) >> (1 + draw() % 63)) - int64_t(draw() % 2);
  std::vector<int64_t> all;
  for (uint8_t head = 0; head < heads; ++head) all.insert(all.end(), numbers.begin(), numbers.end());
  Bytes bytes(heads * laconic::head_max_bytes(count));
  laconic::encode_heads(all.data(), heads, count, bytes.data(), offsets.data());
  Bytes seed{count, uint8_t(heads - 1)};
  seed.insert(seed.end(), bytes.begin(), bytes.begin() + offsets[heads]);
  save("fuzz_decode_heads", seed);
}

// Two sparse tensors of one density, as parts of a sum.
void save_sparse(size_t words, size_t log_unit, uint32_t one_in) {
  const size_t unit = size_t(1) << log_unit;
  Bytes seed{uint8_t(words), uint8_t(words >> 8), 0, uint8_t(log_unit)}, rest;
  size_t cut = 0, counts[2] = {};
  for (size_t part = 0; part < 2; ++part) {
    std::vector<float> x(words), values(words);
    for (auto& v : x) v = draw() % one_in ? 0.0f : 1.5f;
    Bytes index(laconic::sparse_index_room(words, unit));
    const auto size = laconic::compact(*laconic::scalar_kernels(), x.data(), words, unit, index.data(), values.data());
    rest.insert(rest.end(), index.begin(), index.begin() + long(size.index_bytes));
    counts[part] = size.words;
    if (part == 0) cut = rest.size();
  }
  const size_t count = counts[0] + counts[1];
  if (count >= 4096) return;
  const size_t share = count ? (counts[0] * 255 + count - 1) / count : 0;  // exact where it divides
  for (const size_t v : {cut & 255, cut >> 8, share, count & 255, count >> 8}) seed.push_back(uint8_t(v));
  seed.insert(seed.end(), rest.begin(), rest.end());
  save("fuzz_decode_sparse", seed);
}

// form, size, segments, length, words, key, cells, index: as fuzz_decode_sketch.cpp reads them
template <typename C>
void save_sketch(uint8_t form, uint16_t size, uint8_t segments, uint8_t length, uint8_t words, size_t nonzeros) {
  const uint32_t probes = form / 4 % 17u;
  const auto bitmap = uint32_t((size + 31) / 32);
  const laconic::SketchLayout layout =
      form & 2 ? laconic::SketchLayout{size, size, 9, 0, 0, bitmap, 0}
               : laconic::SketchLayout{size, (segments + 2u) * length, 9, segments, length, probes ? words : bitmap, probes};
  std::vector<C> x(size), cells(layout.cells);
  for (size_t i = 0; i < nonzeros; ++i) x[draw() % size] = C(draw());
  std::vector<uint32_t> index(layout.words);
  laconic::encode_sketch<C, C>(*laconic::scalar_kernels(), layout, x.data(), cells.data(), index.data());
  Bytes seed{form};
  append(seed, size);
  for (const int number : {segments - 1, length - 1, words - 1}) seed.push_back(uint8_t(number));
  append(seed, layout.key);
  for (const C cell : cells) append(seed, cell);
  for (const uint32_t word : index) append(seed, word);
  save("fuzz_decode_sketch", seed);
}

void save_sketches() {
  for (const uint8_t form : {0, 2, 4 * 3, 4 * 5, 4 * 16}) {
    save_sketch<int32_t>(form, 100, 1, 10, 8, 5);
    save_sketch<int32_t>(form, 2000, 1, 40, 40, 30);
    save_sketch<int32_t>(form, 3000, 8, 30, 200, 150);
    save_sketch<int64_t>(uint8_t(form | 1), 900, 3, 20, 30, 20);
  }
}

// What no encoder writes and every decoder must take: the widest packed values.
void save_widest() {
  Bytes ids{3, 0, 3, 1, 0, 32 << 2};  // three ids, two classes
  ids.resize(ids.size() + 8);
  save("fuzz_decode_ids", ids);
  Bytes rows;
  append_shape(rows, 2, 3);
  rows.push_back(4);  // one distinct row, two references, three packed codes
  append(rows, 1.0f);
  for (const uint8_t b : {0, 1, 0, 32 << 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16 << 2, 0, 0, 0, 0, 0, 0, 0, 0}) rows.push_back(b);
  save("fuzz_decode_rows", rows);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_seeds DIRECTORY\n");
    return 2;
  }
  root = argv[1];
  mkdir(root.c_str(), 0777);
  for (const Recipe& recipe : kRecipes) {
    save_blocks(recipe);
    save_values(recipe);
    save_sparse_values(recipe);
  }
  for (const size_t n : {1, 2, 7, 60, 400, 1500})
    for (const uint64_t step : {2ull, 20ull, 300ull, 100000ull, 1ull << 40, 1ull << 61})
      for (const bool ascending : {false, true}) save_ids(n, step, ascending);
  save_ids(40000, 4, true);  // more than one chunk
  save_widest();
  for (const uint8_t count : {0, 1, 8, 82, 250})
    for (const uint8_t heads : {1, 3})
      for (const uint32_t one_in : {1u, 3u, 20u}) save_heads(count, heads, one_in);
  for (const size_t words : {1, 64, 100, 1000, 5000})
    for (const size_t log_unit : {0, 3, 6})
      for (const uint32_t one_in : {1u, 2u, 10u, 200u}) save_sparse(words, log_unit, one_in);
  save_sketches();
  return 0;
}
