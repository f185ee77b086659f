// Dense layers in int8, and dot products of pairs. Compiled once per instruction set, with LACONIC_LANES floats a vector.
//
// Sums of integers are exact, so kernels differ only in how weights are laid out. Dot products add d = 0, 1, ...
// in this order, every operation rounded on its own; vectors run over pairs, not over d.

using FloatVector [[gnu::vector_size(4 * LACONIC_LANES)]] = float;

// Loops over registers: unrolled early, or the compiler keeps their arrays in memory.
#define LACONIC_EACH _Pragma("GCC unroll 8") for

static constexpr size_t kBlockI = 8;  // vectors whose products are summed at a time

// dots[i * (i - 1) / 2 + j] of vectors j < i; `columns` is scratch of dim * pitch: number d of vector v at d * pitch + v.
template <size_t blocks>
static inline void dots_of(const float* x, const float* columns, size_t pitch, size_t dim, size_t i0, size_t count,
                           size_t j0, float* dots) {
  FloatVector sum[kBlockI][blocks] = {};
  const float* rows[kBlockI];
  LACONIC_EACH (size_t i = 0; i < kBlockI; ++i) rows[i] = x + (i0 + i < count ? i0 + i : count - 1) * dim;
  for (size_t d = 0; d < dim; ++d) {
    FloatVector y[blocks];
    LACONIC_EACH (size_t k = 0; k < blocks; ++k)
      std::memcpy(&y[k], columns + d * pitch + j0 + k * LACONIC_LANES, sizeof y[k]);
    LACONIC_EACH (size_t i = 0; i < kBlockI; ++i)
      LACONIC_EACH (size_t k = 0; k < blocks; ++k) sum[i][k] += rows[i][d] * y[k];
  }
  for (size_t i = i0; i < i0 + kBlockI && i < count; ++i) {
    const size_t end = i < j0 + blocks * LACONIC_LANES ? i : j0 + blocks * LACONIC_LANES;
    float some[blocks * LACONIC_LANES];
    std::memcpy(some, sum[i - i0], sizeof some);
    if (end > j0) std::memcpy(dots + i * (i - 1) / 2 + j0, some, (end - j0) * sizeof(float));
  }
}

static void transpose(const float* x, size_t count, size_t dim, float* columns, size_t pitch) {
  size_t v = 0;
#if LACONIC_LANES >= 8
  for (; v + 8 <= count; v += 8) {
    size_t d = 0;
    for (; d + 8 <= dim; d += 8) {
      __m256 r[8], s[8];
      for (size_t k = 0; k < 8; ++k) r[k] = _mm256_loadu_ps(x + (v + k) * dim + d);
      for (size_t k = 0; k < 8; k += 2) {
        s[k] = _mm256_unpacklo_ps(r[k], r[k + 1]);
        s[k + 1] = _mm256_unpackhi_ps(r[k], r[k + 1]);
      }
      for (size_t k = 0; k < 8; k += 4) {
        r[k] = _mm256_shuffle_ps(s[k], s[k + 2], 0x44);
        r[k + 1] = _mm256_shuffle_ps(s[k], s[k + 2], 0xee);
        r[k + 2] = _mm256_shuffle_ps(s[k + 1], s[k + 3], 0x44);
        r[k + 3] = _mm256_shuffle_ps(s[k + 1], s[k + 3], 0xee);
      }
      for (size_t k = 0; k < 4; ++k) {
        _mm256_storeu_ps(columns + (d + k) * pitch + v, _mm256_permute2f128_ps(r[k], r[k + 4], 0x20));
        _mm256_storeu_ps(columns + (d + k + 4) * pitch + v, _mm256_permute2f128_ps(r[k], r[k + 4], 0x31));
      }
    }
    for (; d < dim; ++d)
      for (size_t k = 0; k < 8; ++k) columns[d * pitch + v + k] = x[(v + k) * dim + d];
  }
#endif
  for (; v < count; ++v)
    for (size_t d = 0; d < dim; ++d) columns[d * pitch + v] = x[v * dim + d];
}

static void dot_pairs(const float* x, size_t count, size_t dim, float* columns, size_t pitch, float* dots) {
  transpose(x, count, dim, columns, pitch);
  for (size_t i0 = 0; i0 < count; i0 += kBlockI) {
    const size_t last = (i0 + kBlockI < count ? i0 + kBlockI : count) - 1;  // the last row needs columns below itself
    size_t j0 = 0;
    for (; j0 + LACONIC_LANES < last; j0 += 2 * LACONIC_LANES)
      dots_of<2>(x, columns, pitch, dim, i0, count, j0, dots);
    if (j0 < last) dots_of<1>(x, columns, pitch, dim, i0, count, j0, dots);
  }
}

// float(sum - zero * weight_sum) * (input scale * scale) + bias, and the ReLU.
template <bool relu>
static void finish(const int32_t* __restrict sums, size_t n, int32_t zero, const int32_t* __restrict weight_sums,
                   float input_scale, const float* __restrict scales, const float* __restrict biases,
                   float* __restrict out) {
  for (size_t i = 0; i < n; ++i) {
    const float x = float(sums[i] - zero * weight_sums[i]) * (input_scale * scales[i]) + biases[i];
    out[i] = relu ? x > 0.0f ? x : 0.0f : x;
  }
}

static void finish_layer(const int32_t* sums, size_t n, int32_t zero, const int32_t* weight_sums, float input_scale,
                         const float* scales, const float* biases, bool relu, float* out) {
  (relu ? finish<true> : finish<false>)(sums, n, zero, weight_sums, input_scale, scales, biases, out);
}

static void multiply_elements(const float* x, const float* y, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = x[i] * y[i];
}

// Weights: bytes for `outputs` x `inputs` in the layout of this instruction set; all of it is written by pack.
#if LACONIC_LANES == 16
// 64 bytes hold four inputs of sixteen outputs: [outputs / 16][inputs / 4][16][4].
static size_t packed_bytes(size_t outputs, size_t inputs) {
  return (outputs + 15) / 16 * ((inputs + 3) / 4) * 64;
}

static void pack(const int8_t* w, size_t outputs, size_t inputs, uint8_t* packed) {
  const size_t quads = (inputs + 3) / 4;
  std::memset(packed, 0, packed_bytes(outputs, inputs));
  for (size_t n = 0; n < outputs; ++n)
    for (size_t k = 0; k < inputs; ++k)
      packed[((n / 16 * quads + k / 4) * 16 + n % 16) * 4 + k % 4] = uint8_t(w[n * inputs + k]);
}

template <size_t rows, size_t groups>
static inline void tile(const uint8_t* x, size_t pitch, const uint8_t* packed, size_t quads, int32_t* sums,
                        size_t sum_pitch) {
  __m512i acc[rows][groups];
  LACONIC_EACH (size_t r = 0; r < rows; ++r)
    LACONIC_EACH (size_t g = 0; g < groups; ++g) acc[r][g] = _mm512_setzero_si512();
  for (size_t q = 0; q < quads; ++q) {
    __m512i w[groups];
    LACONIC_EACH (size_t g = 0; g < groups; ++g) w[g] = _mm512_loadu_si512(packed + (g * quads + q) * 64);
    LACONIC_EACH (size_t r = 0; r < rows; ++r) {
      int32_t four;
      std::memcpy(&four, x + r * pitch + 4 * q, 4);
      const __m512i codes = _mm512_set1_epi32(four);
      LACONIC_EACH (size_t g = 0; g < groups; ++g) acc[r][g] = _mm512_dpbusd_epi32(acc[r][g], codes, w[g]);
    }
  }
  LACONIC_EACH (size_t r = 0; r < rows; ++r)
    LACONIC_EACH (size_t g = 0; g < groups; ++g) _mm512_storeu_si512(sums + r * sum_pitch + 16 * g, acc[r][g]);
}

template <size_t rows>
static void tiles(const uint8_t* x, size_t pitch, const uint8_t* packed, size_t quads, size_t outputs, int32_t* sums,
                  size_t sum_pitch) {
  const size_t groups = (outputs + 15) / 16;
  size_t g = 0;
  for (; g + 4 <= groups; g += 4) tile<rows, 4>(x, pitch, packed + g * quads * 64, quads, sums + 16 * g, sum_pitch);
  for (; g < groups; ++g) tile<rows, 1>(x, pitch, packed + g * quads * 64, quads, sums + 16 * g, sum_pitch);
}

static void multiply(const uint8_t* x, size_t rows, size_t pitch, const uint8_t* packed, size_t outputs,
                     size_t inputs, int32_t* sums, size_t sum_pitch) {
  const size_t quads = (inputs + 3) / 4;
  size_t r = 0;
  for (; r + 6 <= rows; r += 6) tiles<6>(x + r * pitch, pitch, packed, quads, outputs, sums + r * sum_pitch, sum_pitch);
  for (; r + 2 <= rows; r += 2) tiles<2>(x + r * pitch, pitch, packed, quads, outputs, sums + r * sum_pitch, sum_pitch);
  if (r < rows) tiles<1>(x + r * pitch, pitch, packed, quads, outputs, sums + r * sum_pitch, sum_pitch);
}
#elif LACONIC_LANES == 8
// 32 bytes hold two inputs of eight outputs as int16: [outputs / 8][inputs / 2][8][2]. Bytes would have to be
// multiplied with sums of 16 bits, which overflow.
static size_t packed_bytes(size_t outputs, size_t inputs) {
  return (outputs + 15) / 16 * 2 * ((inputs + 3) / 4 * 2) * 32;
}

static void pack(const int8_t* w, size_t outputs, size_t inputs, uint8_t* packed) {
  const size_t pairs = (inputs + 3) / 4 * 2;
  std::memset(packed, 0, packed_bytes(outputs, inputs));
  for (size_t n = 0; n < outputs; ++n)
    for (size_t k = 0; k < inputs; ++k) {
      const int16_t wide = w[n * inputs + k];
      std::memcpy(packed + ((n / 8 * pairs + k / 2) * 8 + n % 8) * 4 + k % 2 * 2, &wide, 2);
    }
}

template <size_t rows>
static void tiles(const uint8_t* x, size_t pitch, const uint8_t* packed, size_t pairs, size_t outputs, int32_t* sums,
                  size_t sum_pitch) {
  const size_t groups = (outputs + 15) / 16 * 2;  // in twos: room is there
  for (size_t g = 0; g < groups; g += 2) {
    const uint8_t* const w = packed + g * pairs * 32;
    __m256i acc[rows][2];
    LACONIC_EACH (size_t r = 0; r < rows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    for (size_t p = 0; p < pairs; ++p) {
      const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + p * 32));
      const __m256i w1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + (pairs + p) * 32));
      LACONIC_EACH (size_t r = 0; r < rows; ++r) {
        const uint8_t* const two = x + r * pitch + 2 * p;
        const __m256i codes = _mm256_set1_epi32(two[0] | two[1] << 16);
        acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(codes, w0));
        acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(codes, w1));
      }
    }
    LACONIC_EACH (size_t r = 0; r < rows; ++r)
      for (size_t k = 0; k < 2; ++k)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * sum_pitch + 8 * (g + k)), acc[r][k]);
  }
}

static void multiply(const uint8_t* x, size_t rows, size_t pitch, const uint8_t* packed, size_t outputs,
                     size_t inputs, int32_t* sums, size_t sum_pitch) {
  const size_t pairs = (inputs + 3) / 4 * 2;
  size_t r = 0;
  for (; r + 4 <= rows; r += 4) tiles<4>(x + r * pitch, pitch, packed, pairs, outputs, sums + r * sum_pitch, sum_pitch);
  for (; r < rows; ++r) tiles<1>(x + r * pitch, pitch, packed, pairs, outputs, sums + r * sum_pitch, sum_pitch);
}
#else
static size_t packed_bytes(size_t outputs, size_t inputs) { return outputs * inputs; }

static void pack(const int8_t* w, size_t outputs, size_t inputs, uint8_t* packed) {
  std::memcpy(packed, w, outputs * inputs);
}

static void multiply(const uint8_t* x, size_t rows, size_t pitch, const uint8_t* packed, size_t outputs,
                     size_t inputs, int32_t* sums, size_t sum_pitch) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t n = 0; n < outputs; ++n) {
      int32_t sum = 0;
      for (size_t k = 0; k < inputs; ++k) sum += int32_t(x[r * pitch + k]) * int8_t(packed[n * inputs + k]);
      sums[r * sum_pitch + n] = sum;
    }
}
#endif

static const DenseKernels kDense = {LACONIC_LANES, packed_bytes,      pack, multiply,
                                    finish_layer,  multiply_elements, dot_pairs};
