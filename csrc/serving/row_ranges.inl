// Ranges of rows: which values codes 0 and top stand for. One row a lane, so that rows decide for themselves without a
// branch. Sums run over d = 0, 1, ..., every operation rounded on its own; see reference/row_ranges.py.

using RowVector [[gnu::vector_size(4 * LACONIC_LANES)]] = float;

static constexpr int kRangeBins = 200;
static constexpr int kRangeMoves = 32;   // 16 % of the bins
static constexpr int kSquareRounds = 8;  // of least squares: later ones change nothing that counts

static inline RowVector every(float x) { return RowVector{} + x; }

static inline RowVector number(const float* columns, size_t d) {
  RowVector x;
  std::memcpy(&x, columns + d * LACONIC_LANES, sizeof x);
  return x;
}

// Within 0 and top; 0 for NaN.
static inline RowVector within(RowVector x, float top) {
#ifdef LACONIC_AVX2
  const __m256 some = _mm256_max_ps(reinterpret_cast<__m256>(x), _mm256_setzero_ps());
  return reinterpret_cast<RowVector>(_mm256_min_ps(some, _mm256_set1_ps(top)));
#else
  x = x > 0.0f ? x : every(0.0f);
  return x < top ? x : every(top);
#endif
}

static inline RowVector through_half(RowVector x) {
#ifdef LACONIC_AVX2
  const __m256 v = reinterpret_cast<__m256>(x);
  return reinterpret_cast<RowVector>(_mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)));
#else
  for (size_t k = 0; k < LACONIC_LANES; ++k) x[k] = float_from_half(half_from_float(x[k]));
  return x;
#endif
}

// Of LACONIC_LANES rows, number d of row k at columns[d * LACONIC_LANES + k].
struct RangeSearch {
  const float* columns;
  size_t dim;
  float top;
  bool half;  // scale and bias will be stored as float16
  RowVector low, high, error;

  struct Stored {
    RowVector scale, inverse, bias;
  };

  // As they will be read.
  Stored stored(RowVector from, RowVector to) const {
    if (half) from = through_half(from);
    RowVector scale = (to - from) / top;
    if (half) scale = through_half(scale);
    scale = scale > 0.0f ? scale : every(1.0f);
    return {scale, 1.0f / scale, from};
  }

  RowVector code(RowVector steps) const {
    return (within(steps, top) + 8388608.0f) - 8388608.0f;  // half to even
  }

  void start() {
    low = high = number(columns, 0);
    for (size_t d = 1; d < dim; ++d) {
      const RowVector x = number(columns, d);
      low = x < low ? x : low;
      high = x > high ? x : high;
    }
    low += 0.0f;  // no negative zero
    high += 0.0f;
  }

  RowVector error_of(RowVector from, RowVector to) const {
    const Stored s = stored(from, to);
    RowVector sum{};
    for (size_t d = 0; d < dim; ++d) {
      const RowVector steps = (number(columns, d) - s.bias) * s.inverse, off = steps - code(steps);
      sum += off * off;
    }
    return sum * (s.scale * s.scale);
  }

  bool keep(RowVector from, RowVector to, RowVector found) {
    const auto better = found < error;
    low = better ? from : low;
    high = better ? to : high;
    error = better ? found : error;
    for (size_t k = 0; k < LACONIC_LANES; ++k)
      if (better[k]) return true;
    return false;
  }

  void greedy() {
    error = error_of(low, high);
    RowVector from = low, to = high;
    const RowVector step = (high - low) / float(kRangeBins);
    for (int move = 0; move < kRangeMoves; ++move) {
      const RowVector above = from + step, below = to - step;
      const Stored u = stored(above, to), l = stored(from, below);
      RowVector up{}, down{};  // the errors of both, together: one load of x, and sums that do not wait for each other
      for (size_t d = 0; d < dim; ++d) {
        const RowVector x = number(columns, d);
        const RowVector u_steps = (x - u.bias) * u.inverse, l_steps = (x - l.bias) * l.inverse;
        const RowVector u_off = u_steps - code(u_steps), l_off = l_steps - code(l_steps);
        up += u_off * u_off;
        down += l_off * l_off;
      }
      up *= u.scale * u.scale;
      down *= l.scale * l.scale;
      const auto from_below = up < down;
      from = from_below ? above : from;
      to = from_below ? to : below;
      keep(from, to, from_below ? up : down);
    }
  }

  void least_squares() {
    RowVector mean{};
    for (size_t d = 0; d < dim; ++d) mean += number(columns, d);
    mean /= float(dim);
    for (int round = 0; round < kSquareRounds; ++round) {
      const Stored s = stored(low, high);
      RowVector code_mean{};
      for (size_t d = 0; d < dim; ++d) code_mean += code((number(columns, d) - s.bias) * s.inverse);
      code_mean /= float(dim);
      RowVector spread{}, product{};
      for (size_t d = 0; d < dim; ++d) {
        const RowVector x = number(columns, d);
        const RowVector deviation = code((x - s.bias) * s.inverse) - code_mean;
        spread += deviation * deviation;
        product += deviation * (x - mean);
      }
      const RowVector scale = product / spread;
      const auto usable = (spread > 0.0f) & (scale > 0.0f);
      const RowVector from = usable ? mean - scale * code_mean : low;
      const RowVector to = usable ? from + scale * top : high;
      if (!keep(from, to, error_of(from, to))) return;
    }
  }
};

static void row_ranges(const float* columns, size_t dim, float top, bool half, RangeMethod method, float* low,
                       float* high) {
  RangeSearch search{columns, dim, top, half, {}, {}, {}};
  search.start();
  if (method != RangeMethod::kMinMax) search.greedy();
  if (method == RangeMethod::kLeastSquares) search.least_squares();
  std::memcpy(low, &search.low, sizeof search.low);
  std::memcpy(high, &search.high, sizeof search.high);
}
