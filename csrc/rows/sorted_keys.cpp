#include "sorted_keys.h"

#include <algorithm>
#include <vector>

namespace laconic {
namespace {

constexpr int kDigitBits = 11, kMostDigits = 3, kPlaceBits = 31;
constexpr size_t kDigits = size_t(1) << kDigitBits;
constexpr size_t kFew = 512;  // below, a comparison sort is faster than counting digits

// Memory of a thread, used again by the next call.
struct Memory {
  std::vector<uint64_t> items, other;
  std::vector<uint32_t> counts;
};
thread_local Memory memory;

// Where digits begin that differ between any two keys; more than kMostDigits of them are not listed.
struct Digits {
  int begin[kMostDigits];
  int count = 0;
  bool fit = true;

  Digits(const int64_t* keys, size_t n) {
    uint64_t any = 0, all = ~uint64_t(0);
    for (size_t i = 0; i < n; ++i) {
      any |= uint64_t(keys[i]);
      all &= uint64_t(keys[i]);
    }
    uint64_t differ = any & ~all;
    while (differ) {
      if (count == kMostDigits) {
        fit = false;
        return;
      }
      const int low = __builtin_ctzll(differ);
      begin[count++] = low;
      differ = low + kDigitBits < 64 ? differ >> (low + kDigitBits) << (low + kDigitBits) : 0;
    }
  }

  // The digits side by side, which are in the order of the keys.
  uint64_t of(int64_t key) const {
    uint64_t packed = 0;
    for (int d = 0; d < count; ++d) packed |= (uint64_t(key) >> begin[d] & (kDigits - 1)) << d * kDigitBits;
    return packed;
  }
};

// Sorts by the digits above kPlaceBits, the lowest first, and keeps the order of equal ones.
void radix_sort(std::vector<uint64_t>& items, std::vector<uint64_t>& other, size_t n, int digits) {
  memory.counts.assign(kDigits * kMostDigits, 0);
  for (size_t i = 0; i < n; ++i)
    for (int d = 0; d < digits; ++d)
      ++memory.counts[d * kDigits + (items[i] >> (kPlaceBits + d * kDigitBits) & (kDigits - 1))];
  for (int d = 0; d < digits; ++d) {
    uint32_t* at = memory.counts.data() + d * kDigits;
    uint32_t before = 0;
    for (size_t k = 0; k < kDigits; ++k) {
      const uint32_t here = at[k];
      at[k] = before;
      before += here;
    }
    const int shift = kPlaceBits + d * kDigitBits;
    for (size_t i = 0; i < n; ++i) other[at[items[i] >> shift & (kDigits - 1)]++] = items[i];
    items.swap(other);
  }
}

// Calls visit(place) for the places of all keys in ascending order.
template <typename Visit>
void in_order(const int64_t* keys, size_t n, Visit visit) {
  const Digits digits(keys, n);
  if (!digits.fit || n >> kPlaceBits) {
    std::vector<size_t> places(n);
    for (size_t i = 0; i < n; ++i) places[i] = i;
    std::stable_sort(places.begin(), places.end(), [keys](size_t a, size_t b) { return keys[a] < keys[b]; });
    for (size_t place : places) visit(place);
    return;
  }
  memory.items.resize(std::max(n, memory.items.size()));
  memory.other.resize(memory.items.size());
  for (size_t i = 0; i < n; ++i) memory.items[i] = digits.of(keys[i]) << kPlaceBits | i;
  if (n < kFew)
    std::sort(memory.items.begin(), memory.items.begin() + ptrdiff_t(n));
  else
    radix_sort(memory.items, memory.other, n, digits.count);
  for (size_t i = 0; i < n; ++i) visit(size_t(memory.items[i] & ((uint64_t(1) << kPlaceBits) - 1)));
}

}  // namespace

void stable_order(const int64_t* keys, size_t count, int64_t* order) {
  if (std::is_sorted(keys, keys + count)) {
    for (size_t i = 0; i < count; ++i) order[i] = int64_t(i);
    return;
  }
  in_order(keys, count, [&order](size_t place) { *order++ = int64_t(place); });
}

size_t distinct_keys(const int64_t* keys, size_t count, int64_t* distinct, int64_t* inverse) {
  size_t found = 0;
  in_order(keys, count, [&](size_t place) {
    if (!found || keys[place] != distinct[found - 1]) distinct[found++] = keys[place];
    inverse[place] = int64_t(found - 1);
  });
  return found;
}

}  // namespace laconic
