#include "batch.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "bytes.h"
#include "cast.h"
#include "id_list.h"
#include "parallel.h"
#include "quantized_block.h"
#include "rows_block.h"
#include "sc24_blocks.h"

namespace laconic {
namespace {

constexpr size_t kLarge = size_t(1) << 20;       // values from which a block gets all threads for itself
constexpr size_t kWorthThreads = size_t(1) << 16;  // values below which starting threads costs more than it gives
constexpr size_t kKeep = size_t(256) << 20;      // bytes of scratch that are worth keeping

// Scratch memory of finished calls, for the next ones.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() {
    const std::lock_guard<std::mutex> guard(lock_);
    if (free_.empty()) return std::make_unique<Scratch>();
    auto scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give(std::unique_ptr<Scratch> scratch) {
    if (scratch->bytes() > kKeep) return;
    const std::lock_guard<std::mutex> guard(lock_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex lock_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

ScratchPool& pool() {
  static ScratchPool& the = *new ScratchPool;  // never destroyed: threads may still run at exit
  return the;
}

class Borrowed {
 public:
  Borrowed() : scratch_(pool().take()) {}
  ~Borrowed() { pool().give(std::move(scratch_)); }
  Scratch& operator*() { return *scratch_; }

 private:
  std::unique_ptr<Scratch> scratch_;
};

CastType cast_type(Kind kind) { return CastType(uint8_t(kind) - uint8_t(Kind::kFloat16)); }

size_t encode_block(const Kernels& kernels, const Block& b, const float* x, uint8_t* out, int threads,
                    Scratch& scratch) {
  switch (b.kind) {
    case Kind::kRows: return encode_rows(kernels, x, b.rows, b.cols, b.bound, threads, scratch, out);
    case Kind::kVectorLz: return encode_vector_lz(kernels, x, b.rows, b.cols, b.bound, b.window, scratch, out);
    case Kind::kHuffman: return encode_huffman(kernels, x, b.rows, b.cols, b.bound, threads, scratch, out);
    case Kind::kHybrid:
      return encode_hybrid(kernels, x, b.rows, b.cols, b.bound, b.window, b.lz_penalty, b.huffman_penalty, threads,
                           scratch, out);
    default:
      encode_cast(kernels, cast_type(b.kind), x, b.rows, b.cols, out);
      return cast_bytes(cast_type(b.kind), b.rows, b.cols);
  }
}

void decode_block(const Kernels& kernels, const Block& b, const uint8_t* in, size_t size, const uint8_t* end,
                  float* out, int threads, Scratch& scratch) {
  switch (b.kind) {
    case Kind::kRows: return decode_rows(kernels, in, size, end, b.rows, b.cols, threads, scratch, out);
    case Kind::kVectorLz:
    case Kind::kHuffman:
    case Kind::kHybrid: return decode_sc24(kernels, in, size, end, b.rows, b.cols, threads, scratch, out);
    default: return decode_cast(kernels, cast_type(b.kind), in, size, b.rows, b.cols, out);
  }
}

// Runs task(i, threads inside) for every i: the large ones after each other with all threads
// inside, the others side by side in runs of neighbours.
template <typename Size, typename Task>
void schedule(size_t count, int threads, const Size& size, const Task& task) {
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) total += size(i);
  if (threads <= 1 || total < kWorthThreads) {
    Borrowed scratch;
    for (size_t i = 0; i < count; ++i) task(i, 1, *scratch);
    return;
  }
  std::vector<size_t> starts;  // of runs of small blocks with about the same work
  const size_t share = total / (size_t(threads) * 4) + 1;
  size_t filled = share;
  for (size_t i = 0; i < count; ++i) {
    if (filled >= share) {
      starts.push_back(i);
      filled = 0;
    }
    filled += size(i) < kLarge ? size(i) + 64 : 0;
  }
  starts.push_back(count);
  parallel_for(starts.size() - 1, threads, [&](size_t run) {
    Borrowed scratch;
    for (size_t i = starts[run]; i < starts[run + 1]; ++i)
      if (size(i) < kLarge) task(i, 1, *scratch);
  });
  Borrowed scratch;
  for (size_t i = 0; i < count; ++i)
    if (size(i) >= kLarge) task(i, threads, *scratch);
}

// Encodes every block at a place with room for the worst case, then closes the gaps. With one
// thread the places are known as it goes, and there are no gaps.
template <typename Size, typename Room, typename Encode>
void encode_all(size_t count, int threads, uint8_t* out, int64_t* offsets, const Size& size, const Room& room,
                const Encode& encode) {
  if (threads <= 1) {
    offsets[0] = 0;
    schedule(count, 1, size, [&](size_t i, int inside, Scratch& scratch) {
      offsets[i + 1] = offsets[i] + int64_t(encode(i, out + offsets[i], inside, scratch));
    });
    return;
  }
  std::vector<size_t> place(count), bytes(count);
  for (size_t i = 1; i < count; ++i) place[i] = place[i - 1] + room(i - 1);
  schedule(count, threads, size, [&](size_t i, int inside, Scratch& scratch) {
    bytes[i] = encode(i, out + place[i], inside, scratch);
  });
  offsets[0] = 0;
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i]) std::memmove(out + offsets[i], out + place[i], bytes[i]);
    offsets[i + 1] = offsets[i] + int64_t(bytes[i]);
  }
}

// Offsets must ascend inside the buffer; then decode(i, first byte, bytes) may look.
template <typename Size, typename Decode>
void decode_all(size_t count, int threads, const uint8_t* in, size_t buffer, const int64_t* offsets, const Size& size,
                const Decode& decode) {
  for (size_t i = 0; i < count; ++i)
    if (offsets[i] < 0 || offsets[i + 1] < offsets[i] || uint64_t(offsets[i + 1]) > buffer)
      throw FormatError("block " + std::to_string(i) + ": offsets " + std::to_string(offsets[i]) + ".." +
                        std::to_string(offsets[i + 1]) + " are not inside the buffer of " + std::to_string(buffer) +
                        " bytes");
  const auto run = [&](int with) {
    schedule(count, with, size, [&](size_t i, int inside, Scratch& scratch) {
      try {
        decode(i, in + offsets[i], size_t(offsets[i + 1] - offsets[i]), inside, scratch);
      } catch (const FormatError& error) {
        if (count == 1) throw;
        throw FormatError("block " + std::to_string(i) + ": " + error.what());
      }
    });
  };
  try {
    run(threads);
  } catch (const FormatError&) {
    if (threads <= 1) throw;
    run(1);  // several threads found some bad block; one finds the first
  }
}

}  // namespace

size_t block_max_bytes(const Block& b) {
  return b.kind < Kind::kFloat16 ? max_block_bytes(b.rows * b.cols) : cast_bytes(cast_type(b.kind), b.rows, b.cols);
}

void encode_blocks(const Kernels& kernels, const Block* blocks, size_t count, const float* x, uint8_t* out,
                   int64_t* offsets, int threads) {
  std::vector<size_t> first(count);
  for (size_t i = 1; i < count; ++i) first[i] = first[i - 1] + blocks[i - 1].rows * blocks[i - 1].cols;
  encode_all(
      count, threads, out, offsets, [&](size_t i) { return blocks[i].rows * blocks[i].cols; },
      [&](size_t i) { return block_max_bytes(blocks[i]); },
      [&](size_t i, uint8_t* to, int inside, Scratch& scratch) {
        return encode_block(kernels, blocks[i], x + first[i], to, inside, scratch);
      });
}

void decode_blocks(const Kernels& kernels, const Block* blocks, size_t count, const uint8_t* in, size_t size,
                   const int64_t* offsets, float* out, int threads) {
  std::vector<size_t> first(count);
  for (size_t i = 1; i < count; ++i) first[i] = first[i - 1] + blocks[i - 1].rows * blocks[i - 1].cols;
  decode_all(
      count, threads, in, size, offsets, [&](size_t i) { return blocks[i].rows * blocks[i].cols; },
      [&](size_t i, const uint8_t* block, size_t bytes, int inside, Scratch& scratch) {
        decode_block(kernels, blocks[i], block, bytes, in + size, out + first[i], inside, scratch);
      });
}

void encode_id_lists(const Kernels& kernels, const int64_t* counts, size_t lists, const int64_t* ids, uint8_t* out,
                     int64_t* offsets, int threads) {
  std::vector<size_t> first(lists);
  for (size_t i = 1; i < lists; ++i) first[i] = first[i - 1] + size_t(counts[i - 1]);
  encode_all(
      lists, threads, out, offsets, [&](size_t i) { return size_t(counts[i]); },
      [&](size_t i) { return ids_max_bytes(size_t(counts[i])); },
      [&](size_t i, uint8_t* to, int, Scratch& scratch) {
        return encode_ids(kernels, ids + first[i], size_t(counts[i]), scratch, to);
      });
}

void decode_id_lists(const Kernels& kernels, const int64_t* counts, size_t lists, const uint8_t* in, size_t size,
                     const int64_t* offsets, int64_t* ids, int threads) {
  std::vector<size_t> first(lists);
  for (size_t i = 1; i < lists; ++i) first[i] = first[i - 1] + size_t(counts[i - 1]);
  decode_all(
      lists, threads, in, size, offsets, [&](size_t i) { return size_t(counts[i]); },
      [&](size_t i, const uint8_t* block, size_t bytes, int, Scratch& scratch) {
        decode_ids(kernels, block, bytes, in + size, size_t(counts[i]), scratch, ids + first[i]);
      });
}

}  // namespace laconic
