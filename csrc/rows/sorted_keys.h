// Sorting of int64 keys that are not negative: their order, and which of them are distinct.
#pragma once

#include <cstddef>
#include <cstdint>

namespace laconic {

// Fills order with the places of the keys in ascending order; equal keys keep theirs.
void stable_order(const int64_t* keys, size_t count, int64_t* order);

// Writes the distinct keys in ascending order, and for each key which of them it is. Returns how many there are.
size_t distinct_keys(const int64_t* keys, size_t count, int64_t* distinct, int64_t* inverse);

}  // namespace laconic
