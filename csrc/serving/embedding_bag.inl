// Embedding bags: rows in few bits, restored and summed in the order of the bag, every operation rounded on its own.
//
//   value = code * scale + bias                 fp32 and fp16: the value itself
//   sum   = ((0 + v0) + v1) + ...               weighted: v = weight * value; mean: sum / count at the end

template <RowFormat format>
static inline float code_of(const uint8_t* row, size_t c) {
  if constexpr (format == RowFormat::kFloat32) {
    float x;
    std::memcpy(&x, row + 4 * c, 4);
    return x;
  } else if constexpr (format == RowFormat::kFloat16) {
    uint16_t h;
    std::memcpy(&h, row + 2 * c, 2);
    return float_from_half(h);
  } else if constexpr (format == RowFormat::kInt8) {
    return float(row[c]);
  } else if constexpr (format == RowFormat::kInt4) {
    return float(row[c / 2] >> (c % 2 * 4) & 15);
  } else {
    return float(row[c / 4] >> (c % 4 * 2) & 3);
  }
}

struct ScaleBias {
  float scale, bias;
};

template <RowFormat format>
static inline ScaleBias scale_bias(const uint8_t* row, size_t row_bytes) {
  ScaleBias s{1.0f, 0.0f};
  if constexpr (format == RowFormat::kInt8) {
    std::memcpy(&s, row + row_bytes - 8, 8);
  } else if constexpr (format == RowFormat::kInt4 || format == RowFormat::kInt2) {
    uint16_t h[2];
    std::memcpy(h, row + row_bytes - 4, 4);
#ifdef LACONIC_AVX2
    s = {_cvtsh_ss(h[0]), _cvtsh_ss(h[1])};
#else
    s = {float_from_half(h[0]), float_from_half(h[1])};
#endif
  }
  return s;
}

template <RowFormat format>
static constexpr bool has_scale() {
  return format != RowFormat::kFloat32 && format != RowFormat::kFloat16;
}

#ifdef LACONIC_AVX2
// The codes of columns c to c + 7; c is a multiple of 8.
template <RowFormat format>
static inline __m256 codes8(const uint8_t* row, size_t c) {
  if constexpr (format == RowFormat::kFloat32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(row) + c);
  } else if constexpr (format == RowFormat::kFloat16) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * c)));
  } else if constexpr (format == RowFormat::kInt8) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + c))));
  } else if constexpr (format == RowFormat::kInt4) {
    int32_t packed;
    std::memcpy(&packed, row + c / 2, 4);
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i codes = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(packed), shifts), _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(codes);
  } else {
    uint16_t packed;
    std::memcpy(&packed, row + c / 4, 2);
    const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m256i codes = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(packed), shifts), _mm256_set1_epi32(3));
    return _mm256_cvtepi32_ps(codes);
  }
}

// Columns c to c + 8 * vectors of one bag, with the sums in registers.
template <RowFormat format, bool weighted, size_t vectors>
static inline void sum_columns(const BagTask& t, size_t begin, size_t end, size_t c, float* out) {
  __m256 sum[vectors];
  for (size_t k = 0; k < vectors; ++k) sum[k] = _mm256_setzero_ps();
  for (size_t i = begin; i < end; ++i) {
    if (c == 0) ask_for<0>(t.rows + size_t(t.ids[later(i, t.ahead, t.last)]) * t.row_bytes, t.row_bytes);
    const uint8_t* const row = t.rows + size_t(t.ids[i]) * t.row_bytes;
    const ScaleBias s = scale_bias<format>(row, t.row_bytes);
    const __m256 scale = _mm256_set1_ps(s.scale), bias = _mm256_set1_ps(s.bias);
    const __m256 weight = _mm256_set1_ps(weighted ? t.weights[i] : 0.0f);
    for (size_t k = 0; k < vectors; ++k) {
      __m256 v = codes8<format>(row, c + 8 * k);
      if constexpr (has_scale<format>()) v = _mm256_add_ps(_mm256_mul_ps(v, scale), bias);
      if constexpr (weighted) v = _mm256_mul_ps(weight, v);
      sum[k] = _mm256_add_ps(sum[k], v);
    }
  }
  if (t.mean && end > begin)
    for (size_t k = 0; k < vectors; ++k) sum[k] = _mm256_div_ps(sum[k], _mm256_set1_ps(float(end - begin)));
  for (size_t k = 0; k < vectors; ++k) _mm256_storeu_ps(out + c + 8 * k, sum[k]);
}
#endif

template <RowFormat format, bool weighted>
static inline void sum_bag(const BagTask& t, size_t begin, size_t end, float* out) {
  size_t c = 0;
#ifdef LACONIC_AVX2
  for (; c + 64 <= t.cols; c += 64) sum_columns<format, weighted, 8>(t, begin, end, c, out);
  if (c + 32 <= t.cols) sum_columns<format, weighted, 4>(t, begin, end, c, out), c += 32;
  if (c + 16 <= t.cols) sum_columns<format, weighted, 2>(t, begin, end, c, out), c += 16;
  if (c + 8 <= t.cols) sum_columns<format, weighted, 1>(t, begin, end, c, out), c += 8;
#endif
  const size_t first = c;
  if (first == t.cols) return;
  for (c = first; c < t.cols; ++c) out[c] = 0.0f;
  for (size_t i = begin; i < end; ++i) {
    if (first == 0) ask_for<0>(t.rows + size_t(t.ids[later(i, t.ahead, t.last)]) * t.row_bytes, t.row_bytes);
    const uint8_t* const row = t.rows + size_t(t.ids[i]) * t.row_bytes;
    const ScaleBias s = scale_bias<format>(row, t.row_bytes);
    for (c = first; c < t.cols; ++c) {
      float v = code_of<format>(row, c);
      if constexpr (has_scale<format>()) v = v * s.scale + s.bias;
      if constexpr (weighted) v = t.weights[i] * v;
      out[c] += v;
    }
  }
  if (t.mean && end > begin)
    for (c = first; c < t.cols; ++c) out[c] /= float(end - begin);
}

template <RowFormat format, bool weighted>
static void pool(const BagTask& t) {
  for (size_t b = 0; b < t.bags; ++b)
    sum_bag<format, weighted>(t, size_t(t.offsets[b]), size_t(t.offsets[b + 1]), t.out + b * t.stride);
}

template <RowFormat format>
static void pool_format(const BagTask& t) {
  t.weights ? pool<format, true>(t) : pool<format, false>(t);
}

static void pool_bags(BagTask t) {
  if (t.row_bytes == 0) return;
  const size_t ahead = kAheadBytes / t.row_bytes + 1;
  t.ahead = ahead < kMostAhead ? ahead : kMostAhead;
  switch (t.format) {
    case RowFormat::kFloat32: return pool_format<RowFormat::kFloat32>(t);
    case RowFormat::kFloat16: return pool_format<RowFormat::kFloat16>(t);
    case RowFormat::kInt8: return pool_format<RowFormat::kInt8>(t);
    case RowFormat::kInt4: return pool_format<RowFormat::kInt4>(t);
    case RowFormat::kInt2: return pool_format<RowFormat::kInt2>(t);
  }
}
