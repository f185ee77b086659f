// The operations that exist once per instruction set.
//
// Pointers and lengths only: nothing here knows Python or torch. Every table of
// kernels computes the same values bit for bit; the choice is one of speed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic {

// How one block is laid on the integer grid.
struct Grid {
  float step;          // distance of two neighboring codes
  float inverse;       // 1.0f / step
  float bound;         // largest error allowed, rounded down to float32
  int32_t base;        // added to a stored code before it is multiplied by step
  int32_t smallest;    // of the stored codes
  int32_t largest;
  bool clamped;        // false: every finite x is known to have a code in range, and base is 0
  bool dithered;       // stochastic rounding instead of nearest
  uint32_t key[2];     // of the dither
};

inline constexpr int kMaxCodeLength = 12;

// The symbols of a canonical Huffman code in the order of their codes: shorter first, then by symbol.
struct CanonicalOrder {
  struct Code {
    uint8_t symbol, length;
  };
  size_t count;
  Code codes[256];
};

inline constexpr size_t kRuns = size_t(1) << kMaxCodeLength;

// By single symbols, or by runs of them: `table` and `log_size`, or `runs` and `lengths`; or either.
struct HuffmanDecoder {
  const uint16_t* table;   // 2^log_size entries: symbol << 8 | length
  int log_size;            // 1..12
  const uint32_t* runs;    // nullptr, or for every 12 bits the symbols that they hold, see fill_runs
  const uint8_t* lengths;  // of the codes, by symbol
};
// Symbols that are one stream of bits by themselves.
struct Stream {
  const uint8_t* in;
  size_t size;
  HuffmanDecoder decoder;
  uint8_t* symbols;
  size_t n;
};
inline constexpr size_t kAbreast = 3;  // streams that are decoded side by side: each waits for its own look-ups

inline constexpr size_t kChunkSymbols = 32768;  // most symbols of one chunk
inline constexpr int kStreams = 6;    // interleaved bit streams of one chunk
inline constexpr int kQuad = 4;       // neighboring symbols that share a stream

enum class Optimizer : uint8_t { kSgd = 0, kRowwiseAdagrad = 1 };

// What rounding of gradients has put into rows, and what that costs, see rows.inl.
template <typename T>
struct RowNoise {
  T* variance;           // one value a row
  const int64_t* parts;  // of each contribution: which figures it counts in
  const T* grid_steps;   // of each contribution's rounding; 0: it is exact
  double* figures;       // two for each part
  T samples;
};

// One step of an optimizer on the rows of a table that have gradients. Contribution i is a gradient
// of row rows[i]; `order` lists the contributions row by row, those of one row in their order.
template <typename T>
struct RowUpdate {
  T* weight;
  T* state;  // one value a row; nullptr for SGD
  size_t cols;
  const int64_t* rows;
  const int64_t* order;
  size_t count;  // of contributions
  const T* grads;
  const int64_t* grad_index;  // row of grads that contribution i is; nullptr: row i
  Optimizer optimizer;
  T rate, epsilon;
  T* sum;  // scratch of one row
  const RowNoise<T>* noise;  // nullptr: nobody counts it
};

// Rows of tables, see rows.inl; indices are known to be inside, and outputs to lie apart from inputs.
template <typename T>
struct RowKernels {
  void (*add_rows)(T* out, size_t cols, const int64_t* index, size_t count, const T* source,
                   const int64_t* source_index);
  void (*sum_bags)(T* out, size_t bags, size_t cols, const T* weight, const int64_t* index, size_t count,
                   const int64_t* offsets);
  size_t (*update_rows)(const RowUpdate<T>& update);  // returns the number of distinct rows
};

// What the rows of a served table are stored as, see embedding_bag.inl; laconic.quantize.formats.rows has the same order.
enum class RowFormat : uint8_t { kFloat32 = 0, kFloat16 = 1, kInt8 = 2, kInt4 = 3, kInt2 = 4 };

// How the range of a row that its codes cover is chosen, see row_ranges.inl; laconic.quantize.formats.rows has the same order.
enum class RangeMethod : uint8_t { kMinMax = 0, kGreedy = 1, kLeastSquares = 2 };

// Bags of one table. Ids are known to be inside; those of bag b are ids[offsets[b]..offsets[b + 1]).
struct BagTask {
  const uint8_t* rows;
  size_t row_bytes, cols;
  RowFormat format;
  const int64_t* ids;
  const int64_t* offsets;
  size_t bags;
  size_t last;           // ids from here on are not this task's
  const float* weights;  // one an id; nullptr: all 1
  bool mean;
  float* out;            // row b at out + b * stride
  size_t stride;
  size_t ahead;          // rows asked for ahead of their use; the kernel chooses
};

inline constexpr uint32_t kMaxProbes = 16;

// Knows a set of positions, and some by mistake; see bloom.inl.
struct BloomFilter {
  const uint32_t* words;
  uint32_t size;  // of words
  uint32_t probes;
  uint32_t keys[kMaxProbes];
};

// The index of a sketch, see sketch.inl. `mask` receives one bit per entry, the first lowest, whole words.
struct SketchKernels {
  // Which of x are not 0; returns the largest magnitude.
  uint64_t (*nonzero32)(const int32_t* x, size_t n, uint32_t* mask);
  uint64_t (*nonzero64)(const int64_t* x, size_t n, uint32_t* mask);

  size_t (*count_bits)(const uint32_t* mask, size_t words);

  // first + i for every bit i that is set; returns how many. Needs room for 8 more.
  size_t (*list_bits)(const uint32_t* mask, size_t words, uint32_t first, uint32_t* positions);

  // Which of the positions first..first+n the filter knows.
  void (*bloom_candidates)(const BloomFilter& filter, uint32_t first, size_t n, uint32_t* mask);
};

inline constexpr int32_t kMostLevel = 100;        // of either sign
inline constexpr int32_t kNoLevels = -32768;  // base of a layer that is not finite

// Layers in int8 and dot products, see dense.inl.
struct DenseKernels {
  size_t lanes;  // floats of a vector

  // Weights of outputs x inputs in the layout of this instruction set.
  size_t (*packed_bytes)(size_t outputs, size_t inputs);
  void (*pack)(const int8_t* weights, size_t outputs, size_t inputs, uint8_t* packed);

  // sums = codes times weights, row by row; both pitches are multiples of 16, codes after the inputs are 0, and sums
  // after the outputs unspecified.
  void (*multiply)(const uint8_t* codes, size_t rows, size_t pitch, const uint8_t* packed, size_t outputs,
                   size_t inputs, int32_t* sums, size_t sum_pitch);

  void (*finish_layer)(const int32_t* sums, size_t n, int32_t zero, const int32_t* weight_sums, float input_scale,
                       const float* scales, const float* biases, bool relu, float* out);
  void (*multiply_elements)(const float* x, const float* y, size_t n, float* out);

  // Of `count` vectors of one sample; `columns` is scratch of dim * pitch, pitch a multiple of 32 and at least count.
  void (*dot_pairs)(const float* x, size_t count, size_t dim, float* columns, size_t pitch, float* dots);
};

struct Kernels {
  const char* name;

  // Smallest and largest finite value; returns how many are finite.
  size_t (*range)(const float* x, size_t n, float* low, float* high);

  // Sum of the squares of the finite values, in the order of squares.inl.
  double (*finite_squares)(const float* x, size_t n);

  // For the choice of a grid, see code_window.inl: codes of finite values, and how many of them are below a limit.
  void (*nearest_codes)(const float* x, size_t n, float inverse, int32_t* codes);
  size_t (*count_below)(const int32_t* codes, size_t n, int32_t limit);

  // Codes of x[0..n); positions whose code misses the bound get code 0 and are
  // listed in `failed` (room for n). `first` is the flat index of x[0], for the
  // dither. Returns the number of failures.
  size_t (*quantize8)(const float* x, size_t n, const Grid& grid, uint64_t first, int8_t* codes,
                      uint32_t* failed);
  size_t (*quantize16)(const float* x, size_t n, const Grid& grid, uint64_t first, int16_t* codes,
                       uint32_t* failed);

  void (*dequantize8)(const int8_t* codes, size_t n, float step, int32_t base, float* out);
  void (*dequantize16)(const int16_t* codes, size_t n, float step, int32_t base, float* out);

  // Row i of `out` is row refs[i] of `codes`, dequantized.
  void (*expand8)(const int8_t* codes, const uint32_t* refs, size_t rows, size_t cols, float step,
                  int32_t base, float* out);
  void (*expand16)(const int16_t* codes, const uint32_t* refs, size_t rows, size_t cols, float step,
                   int32_t base, float* out);

  // Groups of 2, 4 or 8 digits to one symbol, the first digit lowest, after
  // subtracting `minimum`; and back, single digits too. `symbols` may be `codes`.
  // n is a multiple of the group.
  void (*group)(const int8_t* codes, size_t n, int log_group, int minimum, uint8_t* symbols);
  void (*ungroup)(const uint8_t* symbols, size_t n, int log_group, int minimum, int8_t* codes);

  // One chunk of symbols as one stream or as kStreams of them, back to back.
  // `codes` holds code << 8 | length. `sizes` receives the bytes of each stream;
  // `out` needs 8 bytes of slack.
  void (*huffman_encode)(const uint8_t* symbols, size_t n, const uint32_t* codes, int streams,
                         uint8_t* out, size_t* sizes);

  // For every 12 bits the one to three symbols whose codes they hold whole: one look-up for all of them.
  // Entry: count << 30 | bits of their codes << 24 | third << 16 | second << 8 | first.
  // Returns false, and leaves `runs` alone, where codes are so long that there is little to gain.
  bool (*fill_runs)(const CanonicalOrder& order, uint32_t* runs);

  // The inverse of huffman_encode. Reads nothing at or after `readable_end`, whatever the bytes.
  // Returns false if a stream does not end exactly where `sizes` says.
  bool (*huffman_decode)(const uint8_t* in, const size_t* sizes, int streams,
                         const uint8_t* readable_end, const HuffmanDecoder& decoder,
                         uint8_t* symbols, size_t n);

  // kAbreast streams that have nothing to do with each other, each as huffman_decode would; all decoders have runs or
  // none has.
  bool (*huffman_decode_abreast)(const Stream* streams, const uint8_t* readable_end);
  // values[i] = values[i] << width | bits i * width to (i + 1) * width of `raw`, which has `size` bytes, enough
  // for that. 1 <= width <= 32.
  void (*append_bits)(const uint8_t* raw, size_t size, int width, uint32_t* values, size_t n);

  // The distinct row of every row, see references.inl; eight entries after those of `indices` are read too.
  void (*merge_references)(const uint8_t* singles, const uint32_t* indices, size_t rows, uint32_t first_single,
                           uint32_t* refs);

  // float16, little-endian, two bytes a value.
  void (*to_half)(const float* x, size_t n, uint8_t* out);
  void (*from_half)(const uint8_t* in, size_t n, float* out);

  // Unsigned codes round((x - bias) * inverse) clamped to [0, top]; back: code * scale + bias.
  void (*quantize_row)(const float* x, size_t n, float bias, float inverse, float top, uint8_t* codes);
  void (*dequantize_row)(const uint8_t* codes, size_t n, float scale, float bias, float* out);

  // Whether all of index[0..count) are 0..limit-1.
  bool (*all_below)(const int64_t* index, size_t count, size_t limit);

  // The first place at which `order` is no permutation that sorts `rows`, all at least 0, stably; or count.
  size_t (*sorted_until)(const int64_t* order, const int64_t* rows, size_t count);

  // One bit a word, see sparse.inl.
  void (*nonzero_bits32)(const uint32_t* words, size_t n, uint64_t* bits);
  void (*nonzero_bits64)(const uint64_t* words, size_t n, uint64_t* bits);
  void (*large_bits)(float* gradient, float* memory, size_t n, float threshold, uint64_t* bits);

  // Thresholds of rows, see magnitudes.inl.
  double (*finite_magnitudes)(const float* x, size_t n, size_t* some);
  void (*reach_bits)(const float* x, size_t n, uint32_t threshold, uint64_t* bits);

  // Four levels an octave, see levels.inl.
  int32_t (*level_base)(const float* x, size_t n);
  void (*to_levels)(const float* x, size_t n, int32_t base, float* levels);
  void (*from_levels)(const float* levels, size_t n, int32_t base, float* out);

  // Exponents apart from the rest, and words that are not zero, see lossless.inl.
  void (*split_words)(const uint32_t* words, size_t n, uint8_t* rest, uint8_t* inverted);
  void (*join_words)(const uint8_t* rest, const uint8_t* ranks, size_t n, uint8_t top, uint32_t* words);
  size_t (*pack_words)(const uint32_t* words, size_t n, const uint8_t* bits, uint32_t* packed);
  size_t (*spread_words)(const uint32_t* packed, const uint8_t* bits, size_t n, uint32_t* words);

  RowKernels<float> float_rows;
  RowKernels<double> double_rows;

  SketchKernels sketch;

  // Looks up and pools all bags of one table, see embedding_bag.inl.
  void (*pool_bags)(BagTask task);

  // Smallest and largest value that codes cover, of `range_lanes` finite rows: number d of row k at
  // columns[d * range_lanes + k].
  size_t range_lanes;
  void (*row_ranges)(const float* columns, size_t dim, float top, bool half, RangeMethod method, float* low,
                     float* high);

  const DenseKernels* dense;
};

const Kernels* scalar_kernels();
const DenseKernels* avx512_dense();  // nullptr where the machine or the build has none
const Kernels* avx2_kernels();  // nullptr where the machine or the build has none

}  // namespace laconic
