// Rows: gather, sum and scatter-add rows of a table, and the update of a table by sparse gradients.
//
// Values are combined in the order that the caller gives, every operation rounded on its own. The
// rows of a large table are anywhere in memory: those needed a little later are asked for early.

static constexpr size_t kAheadBytes = 4096;  // of rows asked for ahead of their use, about
static constexpr size_t kMostAhead = 32;     // rows: beyond that, early ones are evicted again
static constexpr size_t kLine = 64;
static constexpr size_t kMostLines = 16;     // of one row; the hardware follows a long one by itself

template <typename T>
static inline size_t rows_ahead(size_t cols) {
  const size_t rows = kAheadBytes / (cols * sizeof(T) + 1) + 1;
  return rows < kMostAhead ? rows : kMostAhead;
}

// What comes after the last row counts as the last one again: cheaper than a branch.
static inline size_t later(size_t i, size_t ahead, size_t count) { return i + ahead < count ? i + ahead : count - 1; }

// Into the second-level cache: the first one has too few places for lines on their way.
template <int written, typename T>
static inline void ask_for(const T* row, size_t cols) {
  const size_t size = cols * sizeof(T) < kMostLines * kLine ? cols * sizeof(T) : kMostLines * kLine;
  const auto* const end = reinterpret_cast<const char*>(row) + size;
  const auto* line = end - size;
  line -= reinterpret_cast<uintptr_t>(line) % kLine;  // a row that starts inside a line ends in one more
  for (; line < end; line += kLine) __builtin_prefetch(line, written, 2);
}

static bool all_below(const int64_t* index, size_t count, size_t limit) {
  bool inside = true;
  for (size_t i = 0; i < count; ++i) inside &= uint64_t(index[i]) < limit;
  return inside;
}

// Pairs (row, place) that ascend strictly name every place once, and sort the rows stably.
static size_t sorted_until(const int64_t* order, const int64_t* rows, size_t count) {
  int64_t place = -1, row = -1;
  for (size_t j = 0; j < count; ++j) {
    const int64_t next = order[j];
    if (uint64_t(next) >= count || rows[next] < row || (rows[next] == row && next < place + 1)) return j;
    place = next;
    row = rows[next];
  }
  return count;
}

template <typename T>
static inline void copy_row(T* __restrict out, const T* __restrict x, size_t cols) {
  for (size_t d = 0; d < cols; ++d) out[d] = x[d];
}

template <typename T>
static inline void add_row(T* __restrict out, const T* __restrict x, size_t cols) {
  for (size_t d = 0; d < cols; ++d) out[d] += x[d];
}

template <typename T>
static void add_rows(T* out, size_t cols, const int64_t* index, size_t count, const T* source,
                     const int64_t* source_index) {
  const size_t ahead = rows_ahead<T>(cols);
  for (size_t i = 0; i < count; ++i) {
    const size_t next = later(i, ahead, count);
    ask_for<1>(out + size_t(index[next]) * cols, cols);
    if (source_index) ask_for<0>(source + size_t(source_index[next]) * cols, cols);
    add_row(out + size_t(index[i]) * cols, source + (source_index ? size_t(source_index[i]) : i) * cols, cols);
  }
}

template <typename T>
static void sum_bags(T* out, size_t bags, size_t cols, const T* weight, const int64_t* index, size_t count,
                     const int64_t* offsets) {
  const size_t ahead = rows_ahead<T>(cols);
  for (size_t b = 0; b < bags; ++b) {
    T* const sum = out + b * cols;
    const size_t begin = offsets ? size_t(offsets[b]) : b, end = offsets ? size_t(offsets[b + 1]) : b + 1;
    if (begin == end)
      for (size_t d = 0; d < cols; ++d) sum[d] = T(0);
    for (size_t i = begin; i < end; ++i) {
      ask_for<0>(weight + size_t(index[later(i, ahead, count)]) * cols, cols);
      const T* const row = weight + size_t(index[i]) * cols;
      if (i == begin) copy_row(sum, row, cols);
      else add_row(sum, row, cols);
    }
  }
}

// Variance of an entry of contribution i: that of unbiased rounding, a sixth of the squared step on average;
// where values are small beside the step it is about their mean square, rounded.
template <typename T>
static inline T rounding_variance(const RowNoise<T>& noise, size_t i, const T* g, size_t cols) {
  const T step = noise.grid_steps[i];
  if (!(step > T(0))) return T(0);
  const T most = step * step / T(6), square = sum_of_squares(g, cols) / T(cols);
  return square < most ? square : most;
}

// Harm of the noise that a row had when it was looked up, and its noise after the update.
template <typename T>
static inline void count_noise(const RowNoise<T>& noise, size_t row, size_t part, T square, T rounded, T factor,
                               size_t cols) {
  const T signal = square > rounded ? square - rounded : T(0), curvature = noise.samples * signal;
  double* const figures = noise.figures + 2 * part;
  const double half = double(curvature) * double(cols) / 2;
  figures[0] += half * double(noise.variance[row]);
  figures[1] += half;
  noise.variance[row] += factor * factor * rounded;
}

template <typename T>
static inline void update_row(const RowUpdate<T>& u, size_t row, const T* __restrict g, size_t part, T rounded) {
  T factor = u.rate;
  const bool adagrad = u.optimizer == Optimizer::kRowwiseAdagrad;
  const T square = adagrad || u.noise ? sum_of_squares(g, u.cols) / T(u.cols) : T(0);
  if (adagrad) {
    u.state[row] += square;
    factor /= std::sqrt(u.state[row]) + u.epsilon;
  }
  if (u.noise) count_noise(*u.noise, row, part, square, rounded, factor, u.cols);
  T* __restrict const w = u.weight + row * u.cols;
  for (size_t d = 0; d < u.cols; ++d) w[d] -= factor * g[d];
}

template <typename T>
static size_t update_rows(const RowUpdate<T>& u) {
  const auto gradient = [&u](size_t contribution) {
    return u.grads + (u.grad_index ? size_t(u.grad_index[contribution]) : contribution) * u.cols;
  };
  const size_t ahead = rows_ahead<T>(u.cols);
  size_t distinct = 0;
  for (size_t i = 0; i < u.count; ++distinct) {
    const auto first = size_t(u.order[i]), row = size_t(u.rows[first]);
    const T* g = gradient(first);
    T rounded = u.noise ? rounding_variance(*u.noise, first, g, u.cols) : T(0);
    for (bool alone = true;; alone = false) {
      const auto next = size_t(u.order[later(i, ahead, u.count)]);
      ask_for<1>(u.weight + size_t(u.rows[next]) * u.cols, u.cols);
      ask_for<0>(gradient(next), u.cols);
      if (u.state) __builtin_prefetch(u.state + u.rows[next], 1, 2);
      if (++i == u.count || size_t(u.rows[u.order[i]]) != row) break;
      if (alone) copy_row(u.sum, g, u.cols);
      const auto other = size_t(u.order[i]);
      add_row(u.sum, gradient(other), u.cols);
      if (u.noise) rounded += rounding_variance(*u.noise, other, gradient(other), u.cols);
      g = u.sum;
    }
    update_row(u, row, g, u.noise ? size_t(u.noise->parts[first]) : 0, rounded);
  }
  return distinct;
}
