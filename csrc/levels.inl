// Levels: floats with two bits behind the leading one, counted from the smallest that matters.
//
//   level of x = sign * (bits of |x|, rounded to 2 bits of mantissa, >> 21, - base), 0 where that is below 1
//
// Four levels an octave: the error is at most a ninth of the value, whatever its size. A layer's base is kMostLevel below its
// largest level, so levels are within +-kMostLevel; smaller values, 25 octaves down, become 0.

static constexpr int kLevelShift = 21;
static constexpr uint32_t kHalfLevel = uint32_t(1) << (kLevelShift - 1), kMagnitude = 0x7fffffffu, kNotFinite = 0x7f800000u;

static inline uint32_t magnitude_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits & kMagnitude;
}

// Base of a layer, or kNoLevels if a value is not finite, or rounds to something that is not.
static int32_t level_base(const float* x, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_of(x[i]));
  if (largest + kHalfLevel >= kNotFinite) return kNoLevels;
  return int32_t((largest + kHalfLevel) >> kLevelShift) - kMostLevel;
}

static void to_levels(const float* x, size_t n, int32_t base, float* levels) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    const int32_t level = int32_t(((bits & kMagnitude) + kHalfLevel) >> kLevelShift) - base;
    const int32_t kept = level > 0 && (bits & kMagnitude) != 0 ? level : 0;
    levels[i] = float(bits >> 31 ? -kept : kept);
  }
}

// Any float is taken for the nearest level; one outside of +-kMostLevel, or not a number, gives NaN.
static void from_levels(const float* levels, size_t n, int32_t base, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const bool fits = levels[i] >= -float(kMostLevel) - 0.5f && levels[i] <= float(kMostLevel) + 0.5f;
    const int32_t level = int32_t(std::nearbyintf(fits ? levels[i] : 0.0f));
    const int32_t place = (level < 0 ? -level : level) + base;
    const bool real = fits && place < int32_t(kNotFinite >> kLevelShift);
    uint32_t bits = level == 0 || place < 0 ? 0 : uint32_t(place) << kLevelShift | uint32_t(level < 0) << 31;
    if (!real) bits = 0x7fc00000u;
    std::memcpy(out + i, &bits, 4);
  }
}
