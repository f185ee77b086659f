// The list of this instruction set's kernels; included last by scalar.cpp and avx2.cpp.
#define LACONIC_KERNEL_TABLE(NAME)                                                                \
  static const Kernels kTable = {                                                                 \
      NAME, range, finite_squares, nearest_codes, count_below,                                    \
      quantize<int8_t>, quantize<int16_t>, dequantize<int8_t>,                                    \
      dequantize<int16_t>, expand<int8_t>, expand<int16_t>, group, ungroup, huffman_encode,       \
      fill_runs, huffman_decode, huffman_decode_abreast, append_bits, merge_references, to_half,  \
      from_half, quantize_row, dequantize_row, all_below, sorted_until, nonzero_bits<uint32_t>,   \
      nonzero_bits<uint64_t>, large_bits, finite_magnitudes, reach_bits, level_base, to_levels,   \
      from_levels, split_words, join_words, pack_words, spread_words,                             \
      {add_rows<float>, sum_bags<float>, update_rows<float>},                                     \
      {add_rows<double>, sum_bags<double>, update_rows<double>},                                  \
      {nonzero<int32_t>, nonzero<int64_t>, count_bits, list_bits, bloom_candidates},              \
      pool_bags, LACONIC_LANES, row_ranges, &kDense,                                              \
  };
