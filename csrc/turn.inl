// Turned rows: the coordinates of rows along other axes.
//
// out[j] = x[0] axes[0][j] + x[1] axes[1][j] + ..., added in this order, every operation rounded on its own; so all
// instruction sets agree. Two rows at a time: what is read of the axes serves both.

using TurnVector [[gnu::vector_size(4 * LACONIC_LANES)]] = float;
static constexpr size_t kTurnAbreast = 4;  // vectors of sums of one row that are in registers

template <size_t rows, size_t vectors>
static inline void turn_columns(const float* x, size_t cols, const float* axes, float* out) {
  TurnVector sums[rows][vectors], axis;
  const auto load = [&](size_t k, size_t v) { std::memcpy(&axis, axes + k * cols + v * LACONIC_LANES, sizeof axis); };
  for (size_t v = 0; v < vectors; ++v) {
    load(0, v);
    for (size_t r = 0; r < rows; ++r) sums[r][v] = x[r * cols] * axis;
  }
  for (size_t k = 1; k < cols; ++k)
    for (size_t v = 0; v < vectors; ++v) {
      load(k, v);
      for (size_t r = 0; r < rows; ++r) sums[r][v] += x[r * cols + k] * axis;
    }
  for (size_t r = 0; r < rows; ++r)
    for (size_t v = 0; v < vectors; ++v) std::memcpy(out + r * cols + v * LACONIC_LANES, &sums[r][v], sizeof sums[r][v]);
}

template <size_t rows>
static inline void turn_few(const float* x, size_t cols, const float* axes, float* out) {
  size_t j = 0;
  for (; j + kTurnAbreast * LACONIC_LANES <= cols; j += kTurnAbreast * LACONIC_LANES)
    turn_columns<rows, kTurnAbreast>(x, cols, axes + j, out + j);
  for (; j + LACONIC_LANES <= cols; j += LACONIC_LANES) turn_columns<rows, 1>(x, cols, axes + j, out + j);
  for (; j < cols; ++j)
    for (size_t r = 0; r < rows; ++r) {
      float sum = x[r * cols] * axes[j];
      for (size_t k = 1; k < cols; ++k) sum += x[r * cols + k] * axes[k * cols + j];
      out[r * cols + j] = sum;
    }
}

static void turn_rows(const float* x, size_t rows, size_t cols, const float* axes, float* out) {
  size_t i = 0;
  for (; i + 2 <= rows; i += 2) turn_few<2>(x + i * cols, cols, axes, out + i * cols);
  if (i < rows) turn_few<1>(x + i * cols, cols, axes, out + i * cols);
}
