// One worker's end of in-network aggregation: sums or unites arrays with the other workers of its job,
// through an aggregator, by datagrams that may be lost, doubled and late. docs/formats/aggregation.md is
// the normative text of the packets and of the rules that keep results right.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "packet.h"

namespace laconic {

enum class Outcome { kRunning, kDone, kOverflow, kOutOfStep, kTimeout, kSystemError };

class Worker {
 public:
  // The socket is connected to the aggregator and stays the caller's.
  Worker(int socket, uint64_t job, uint32_t worker, uint32_t workers, double timeout_s);

  // Begin the next operation; the values are replaced by the result, block by block.
  void begin(int operation, int32_t* values, size_t size);

  // Go on for at most this long. Once it is neither kRunning, kDone nor kOverflow, the worker is of no more use:
  // it cannot know what the others did.
  Outcome proceed(double seconds);

  uint32_t round() const { return round_; }
  bool answered() const { return answered_; }  // whether the aggregator said who is in, since the last result
  uint32_t seen() const { return seen_; }      // who, then
  int error() const { return error_; }         // errno of kSystemError, or of the last failed send
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }
  uint64_t repeated() const { return repeated_; }

 private:
  struct Lane {  // blocks b, b + 256, ...: at most one of them is on its way
    uint32_t index;  // of the block within the operation
    uint8_t tries;   // 0: nothing on its way
    uint64_t serial;  // of the last packet that carried it
    double sent_at;
  };

  uint32_t values_of(uint32_t index) const;
  Lane& lane_of(uint32_t index) { return lanes_[(first_block_ + index) % PACKET_WINDOW]; }
  bool send_ready(double now);
  size_t send(const uint32_t* indices, size_t count);
  bool receive(double now);
  void take(const uint8_t* datagram, size_t size, double now);
  void take_result(const packet_header& header, const uint8_t* values, size_t bytes, double now);
  void repeat_lost(double now);
  void probe(double now);
  void repeat(const uint32_t* indices, size_t count, double now);
  void learn(double seconds);
  uint32_t oldest() const;

  int socket_;
  uint32_t bit_, all_;
  double timeout_s_;
  packet_header header_{};
  size_t segments_ = 8;  // packets per message
  uint32_t window_;  // packets on their way at most: what the receive buffer holds

  std::array<Lane, PACKET_WINDOW> lanes_{};
  std::vector<uint32_t> ready_;  // a ring: blocks that may be sent, oldest first
  size_t ready_begin_ = 0, ready_size_ = 0;
  int32_t* values_ = nullptr;
  size_t size_ = 0;
  uint32_t blocks_ = 0, left_ = 0, flying_ = 0;
  uint32_t round_ = 0, first_block_ = 0, next_block_ = 0;
  uint32_t seen_ = 0;
  bool answered_ = false, overflow_ = false, out_of_step_ = false, blocked_ = false;
  int error_ = 0;

  double progress_at_ = 0;  // when a result came last
  double looked_at_ = 0;    // when lost packets were looked for
  uint64_t serial_ = 0, answered_serial_ = 0;  // of the last packet sent; the highest that has its result
  bool stalled_ = false;    // no result came for so long that one block is asked about
  uint32_t probed_ = 0;
  double probed_at_ = 0, probe_wait_ = 0;
  uint64_t recovered_serial_ = 0;  // what was sent before this, a probe with a result, is lost
  double recovered_at_ = 0;        // from this moment on
  double round_trip_ = 0, deviation_ = 0, patience_;

  std::vector<uint8_t> inbox_;
  uint64_t bytes_sent_ = 0, bytes_received_ = 0, repeated_ = 0;
};

}  // namespace laconic
