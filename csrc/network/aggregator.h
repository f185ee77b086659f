// The aggregator in user space: the same packets, entries and answers as the program in the kernel
// (src/laconic/reduce/network/switch.bpf.c), for machines where that cannot run.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "packet.h"

namespace laconic {

class Aggregator {
 public:
  // Memory for this many jobs is taken now, and no more later, whatever arrives.
  explicit Aggregator(size_t most_jobs);

  bool add_job(uint64_t token, uint32_t workers);  // false: no room, or there is one of that name
  bool remove_job(uint64_t token);

  // Answer datagrams of a bound socket for at most this long; returns 0 or errno.
  int serve(int socket, double seconds);

  std::array<uint64_t, PACKET_COUNTERS> counters();

 private:
  struct Entry {
    uint32_t block, round, shape, seen, flags;
    int64_t sums[PACKET_VALUES];  // wider than values: whether a sum fits is known when all are in, in any order
  };
  struct Job {
    uint32_t all;
    uint32_t workers;
    std::vector<Entry> pool;
    std::array<sockaddr_in, PACKET_WORKERS> endpoints;
  };
  struct Answers;

  void take(const uint8_t* datagram, size_t size, const sockaddr_in& sender, Answers& answers);
  void send(int socket, Answers& answers);

  std::mutex turn_;  // jobs come and go while another thread serves
  std::vector<Job> jobs_;
  std::vector<size_t> free_;
  std::unordered_map<uint64_t, size_t> numbers_;
  std::array<uint64_t, PACKET_COUNTERS> counters_{};
};

}  // namespace laconic
