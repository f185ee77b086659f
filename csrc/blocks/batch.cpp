#include "batch.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "bytes.h"
#include "cast.h"
#include "id_list.h"
#include "lossless.h"
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
    case Kind::kLossless: return encode_lossless(kernels, x, b.rows * b.cols, threads, scratch, out);
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
    case Kind::kLossless:
      return decode_lossless(kernels, in, size, end, b.rows * b.cols, threads, scratch, out);
    default: return decode_cast(kernels, cast_type(b.kind), in, size, b.rows, b.cols, out);
  }
}

// Calls run(first, last, scratch) for runs of neighbors, side by side, and large(i, threads, scratch) for large
// blocks, one after the other with all threads inside; with one thread there is one run, of all.
template <typename Size, typename Run, typename Large>
void schedule(size_t count, int threads, const Size& size, const Run& run, const Large& large) {
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) total += size(i);
  if (threads <= 1 || total < kWorthThreads) {
    Borrowed scratch;
    run(0, count, *scratch);
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
  parallel_for(starts.size() - 1, threads, [&](size_t k) {
    Borrowed scratch;
    for (size_t i = starts[k], first = i; i <= starts[k + 1]; ++i) {
      if (i < starts[k + 1] && size(i) < kLarge) continue;
      if (first < i) run(first, i, *scratch);
      first = i + 1;
    }
  });
  Borrowed scratch;
  for (size_t i = 0; i < count; ++i)
    if (size(i) >= kLarge) large(i, threads, *scratch);
}

// The same with task(i, threads inside, scratch) for every block.
template <typename Size, typename Task>
void schedule(size_t count, int threads, const Size& size, const Task& task) {
  schedule(
      count, threads, size,
      [&](size_t first, size_t last, Scratch& scratch) {
        for (size_t i = first; i < last; ++i) task(i, 1, scratch);
      },
      task);
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

// Offsets must ascend inside the buffer; then bytes may be looked at.
void check_offsets(size_t count, size_t buffer, const int64_t* offsets) {
  for (size_t i = 0; i < count; ++i)
    if (offsets[i] < 0 || offsets[i + 1] < offsets[i] || uint64_t(offsets[i + 1]) > buffer)
      throw FormatError("block " + std::to_string(i) + ": offsets " + std::to_string(offsets[i]) + ".." +
                        std::to_string(offsets[i + 1]) + " are not inside the buffer of " + std::to_string(buffer) +
                        " bytes");
}

// Calls decode(i, threads inside, scratch) for every block; errors say which.
template <typename Size, typename Decode>
void decode_each(size_t count, int threads, const Size& size, const Decode& decode) {
  schedule(count, threads, size, [&](size_t i, int inside, Scratch& scratch) {
    try {
      decode(i, inside, scratch);
    } catch (const FormatError& error) {
      if (count == 1) throw;
      throw FormatError("block " + std::to_string(i) + ": " + error.what());
    }
  });
}

// Blocks of rows that are one stream each wait until there are kAbreast of them with the same sort of decoder.
class WaitingBlocks {
 public:
  WaitingBlocks(const Kernels& kernels, const uint8_t* readable_end) : kernels_(kernels), end_(readable_end) {
    for (OpenBlock& block : blocks_) free_[free_count_++] = &block;
  }

  void add(const uint8_t* block, size_t size, size_t rows, size_t cols, Scratch& scratch, float* out) {
    OpenBlock* const open = free_[free_count_ - 1];
    if (!open_rows(kernels_, block, size, end_, rows, cols, 1, scratch, out, *open)) return;
    --free_count_;
    Queue& queue = queues_[open->stream.decoder.runs ? 1 : 0];
    queue.waiting[queue.count++] = open;
    if (queue.count == kAbreast) finish(queue);
  }

  void finish() {
    for (Queue& queue : queues_) finish(queue);
  }

 private:
  struct Queue {
    OpenBlock* waiting[kAbreast];
    size_t count = 0;
  };

  void finish(Queue& queue) {
    bool fine = true;
    if (queue.count == kAbreast) {
      Stream streams[kAbreast];
      for (size_t k = 0; k < kAbreast; ++k) streams[k] = queue.waiting[k]->stream;
      fine = kernels_.huffman_decode_abreast(streams, end_);
    } else {
      for (size_t k = 0; k < queue.count; ++k) {
        const Stream& s = queue.waiting[k]->stream;
        fine &= kernels_.huffman_decode(s.in, &s.size, 1, end_, s.decoder, s.symbols, s.n);
      }
    }
    expect(fine, "stream: it does not end where its size says");
    for (size_t k = 0; k < queue.count; ++k) {
      close_rows(kernels_, *queue.waiting[k]);
      free_[free_count_++] = queue.waiting[k];
    }
    queue.count = 0;
  }

  const Kernels& kernels_;
  const uint8_t* end_;
  OpenBlock blocks_[2 * kAbreast - 1];  // those that wait in either queue, and the one that is opened
  OpenBlock* free_[2 * kAbreast - 1];
  size_t free_count_ = 0;
  Queue queues_[2];
};

}  // namespace

size_t block_max_bytes(const Block& b) {
  const bool cast = b.kind >= Kind::kFloat16 && b.kind <= Kind::kFloat32;
  return cast ? cast_bytes(cast_type(b.kind), b.rows, b.cols) : max_block_bytes(b.rows * b.cols);
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
  check_offsets(count, size, offsets);
  std::vector<size_t> first(count);
  for (size_t i = 1; i < count; ++i) first[i] = first[i - 1] + blocks[i - 1].rows * blocks[i - 1].cols;
  const auto values = [&](size_t i) { return blocks[i].rows * blocks[i].cols; };
  const auto decode = [&](size_t i, int inside, Scratch& scratch) {
    decode_block(kernels, blocks[i], in + offsets[i], size_t(offsets[i + 1] - offsets[i]), in + size, out + first[i],
                 inside, scratch);
  };
  if (count == 1) return decode_each(count, threads, values, decode);
  const auto run = [&](size_t from, size_t to, Scratch& scratch) {
    WaitingBlocks waiting(kernels, in + size);
    for (size_t i = from; i < to; ++i) {
      const Block& b = blocks[i];
      if (b.kind == Kind::kRows)
        waiting.add(in + offsets[i], size_t(offsets[i + 1] - offsets[i]), b.rows, b.cols, scratch, out + first[i]);
      else
        decode(i, 1, scratch);
    }
    waiting.finish();
  };
  try {
    schedule(count, threads, values, run, decode);
  } catch (const FormatError&) {
    decode_each(count, 1, values, decode);  // some block is bad; one after the other finds the first
  }
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
  check_offsets(lists, size, offsets);
  const auto length = [&](size_t i) { return size_t(counts[i]); };
  const auto decode = [&](size_t i, int, Scratch& scratch) {
    decode_ids(kernels, in + offsets[i], size_t(offsets[i + 1] - offsets[i]), in + size, length(i), scratch,
               ids + first[i]);
  };
  try {
    decode_each(lists, threads, length, decode);
  } catch (const FormatError&) {
    if (threads <= 1) throw;
    decode_each(lists, 1, length, decode);  // several threads found some bad list; one finds the first
  }
}

}  // namespace laconic
