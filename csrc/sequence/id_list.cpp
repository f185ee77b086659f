#include "id_list.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "bytes.h"
#include "numbers.h"

namespace laconic {
namespace {

// How ids become unsigned numbers.
enum class Form : uint8_t {
  kStored = 0,       // not at all
  kAscending = 1,    // difference to the one before, never negative
  kDifferences = 2,  // difference to the one before, sign in the lowest bit
  kOffsets = 3,      // difference to the smallest
};

uint64_t number(Form form, const int64_t* ids, size_t i, int64_t smallest) {
  if (form == Form::kOffsets) return uint64_t(ids[i]) - uint64_t(smallest);
  const uint64_t d = uint64_t(ids[i]) - uint64_t(ids[i - 1]);
  return form == Form::kAscending ? d : d << 1 ^ uint64_t(int64_t(d) >> 63);
}

struct Candidate {
  Form form = Form::kStored;
  size_t first = 0;  // index of the first id that has a number
  Coding coding;
};

// Leaves the numbers in scratch.numbers.
Candidate consider(Form form, const int64_t* ids, size_t n, int64_t smallest, Scratch& scratch) {
  Candidate c;
  c.form = form;
  c.first = form == Form::kOffsets ? 0 : 1;
  auto& numbers = scratch.numbers;
  if (numbers.size() < n) numbers.resize(n);
  for (size_t i = c.first; i < n; ++i) numbers[i - c.first] = number(form, ids, i, smallest);
  c.coding = choose_for_numbers(numbers.data(), n - c.first, scratch.symbols);
  return c;
}

size_t store(const int64_t* ids, size_t n, uint8_t* out) {
  Writer writer(out, ids_max_bytes(n));
  writer.varint(n);
  writer.byte(uint8_t(Form::kStored));
  writer.bytes(ids, n * 8);
  return writer.size();
}

}  // namespace

size_t encode_ids(const Kernels& kernels, const int64_t* ids, size_t n, Scratch& scratch, uint8_t* out) {
  if (n == 0) return store(ids, n, out);
  const int64_t smallest = *std::min_element(ids, ids + n);
  const bool sorted = std::is_sorted(ids, ids + n);
  Candidate best = consider(sorted ? Form::kAscending : Form::kDifferences, ids, n, smallest, scratch);
  if (!sorted) {
    const Candidate offsets = consider(Form::kOffsets, ids, n, smallest, scratch);
    if (offsets.coding.bits < best.coding.bits) best = offsets;
    else consider(best.form, ids, n, smallest, scratch);  // its numbers again
  }
  Writer writer(out, ids_max_bytes(n));
  writer.varint(n);
  writer.byte(uint8_t(best.form));
  writer.signed_varint(best.form == Form::kOffsets ? smallest : ids[0]);
  write_numbers(kernels, best.coding, scratch.numbers.data(), n - best.first, scratch.symbols, scratch.slots, writer);
  const bool worse = writer.overflowed() || writer.size() > 8 * n;
  return worse ? store(ids, n, out) : writer.size();
}

uint64_t count_ids(const uint8_t* block, size_t size) {
  Reader in(block, size, block + size);
  return in.varint("count");
}

void decode_ids(const Kernels& kernels, const uint8_t* block, size_t size, const uint8_t* readable_end, size_t n,
                Scratch& scratch, int64_t* out) {
  Reader in(block, size, readable_end);
  const uint64_t count = in.varint("count");
  if (count != n)
    throw FormatError("count: the block has " + std::to_string(count) + " ids, expected " + std::to_string(n));
  const uint8_t byte = in.byte("form");
  expect(byte <= uint8_t(Form::kOffsets), "form: outside 0..3");
  const Form form = Form(byte);
  if (form == Form::kStored) {
    const uint8_t* stored = in.take(uint64_t(n) * 8, "stored ids");
    if (n) std::memcpy(out, stored, n * 8);
    return expect(in.left() == 0, "block: bytes after its end");
  }
  expect(n > 0, "form: an empty list is stored");
  const uint64_t reference = uint64_t(in.signed_varint("reference"));
  const size_t first = form == Form::kOffsets ? 0 : 1, m = n - first;
  auto& numbers = scratch.numbers;
  if (numbers.size() < m) numbers.resize(m);
  read_numbers(in, kernels, numbers.data(), m, scratch.refs);
  expect(in.left() == 0, "block: bytes after its end");
  if (first) out[0] = int64_t(reference);
  uint64_t previous = reference;
  for (size_t i = 0; i < m; ++i) {
    uint64_t v = numbers[i];
    if (form == Form::kDifferences) v = v >> 1 ^ (0 - (v & 1));
    previous = (form == Form::kOffsets ? reference : previous) + v;
    out[first + i] = int64_t(previous);
  }
}

}  // namespace laconic
