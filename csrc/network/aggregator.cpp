#include "aggregator.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace laconic {
namespace {

constexpr size_t kBatch = 32;
constexpr size_t kDatagram = sizeof(packet_header) + 4 * PACKET_VALUES;
constexpr int kSendPatienceMs = 100;  // then an answer is dropped: the worker asks again

double monotonic() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

int32_t load(const uint8_t* values, size_t i) {
  int32_t value;
  std::memcpy(&value, values + 4 * i, 4);
  return value;
}

}  // namespace

// Answers to one batch of datagrams: at most one each, told to one worker or to all.
struct Aggregator::Answers {
  uint8_t bytes[kBatch][kDatagram];
  size_t count = 0;
  iovec parts[kBatch];
  mmsghdr messages[kBatch * PACKET_WORKERS];
  sockaddr_in addresses[kBatch * PACKET_WORKERS];
  size_t messages_count = 0;

  uint8_t* open(const packet_header& header, size_t values) {
    uint8_t* const at = bytes[count];
    std::memcpy(at, &header, sizeof header);
    parts[count] = {at, sizeof header + 4 * values};
    return at + sizeof header;
  }
  void tell(const sockaddr_in& address) {
    addresses[messages_count] = address;
    mmsghdr& message = messages[messages_count];
    std::memset(&message, 0, sizeof message);
    message.msg_hdr.msg_name = &addresses[messages_count];
    message.msg_hdr.msg_namelen = sizeof(sockaddr_in);
    message.msg_hdr.msg_iov = &parts[count];
    message.msg_hdr.msg_iovlen = 1;
    ++messages_count;
  }
  void close() { ++count; }
};

Aggregator::Aggregator(size_t most_jobs) : jobs_(most_jobs) {
  for (size_t i = most_jobs; i-- > 0;) {
    jobs_[i].pool.resize(PACKET_POOL);
    free_.push_back(i);
  }
  numbers_.reserve(most_jobs);
}

bool Aggregator::add_job(uint64_t token, uint32_t workers) {
  const std::lock_guard<std::mutex> guard(turn_);
  if (free_.empty() || numbers_.count(token)) return false;
  const size_t number = free_.back();
  free_.pop_back();
  Job& job = jobs_[number];
  job.workers = workers;
  job.all = 0xffffffffu >> (PACKET_WORKERS - workers);
  job.endpoints.fill({});
  for (uint32_t i = 0; i < PACKET_POOL; ++i) {  // as if the block 512 before the first were complete
    Entry& entry = job.pool[i];
    std::memset(&entry, 0, sizeof entry);
    entry.block = i - PACKET_POOL;
    entry.seen = job.all;
  }
  numbers_[token] = number;
  return true;
}

bool Aggregator::remove_job(uint64_t token) {
  const std::lock_guard<std::mutex> guard(turn_);
  const auto found = numbers_.find(token);
  if (found == numbers_.end()) return false;
  free_.push_back(found->second);
  numbers_.erase(found);
  return true;
}

std::array<uint64_t, PACKET_COUNTERS> Aggregator::counters() {
  const std::lock_guard<std::mutex> guard(turn_);
  return counters_;
}

void Aggregator::take(const uint8_t* datagram, size_t size, const sockaddr_in& sender, Answers& answers) {
  ++counters_[COUNT_PACKETS];
  packet_header header;
  if (size < sizeof header) {
    ++counters_[COUNT_MALFORMED];
    return;
  }
  std::memcpy(&header, datagram, sizeof header);
  const uint8_t* const values = datagram + sizeof header;
  const size_t bytes = size - sizeof header, count = bytes / 4;
  const uint32_t bit = header.workers;
  if (bytes % 4 || count == 0 || count > PACKET_VALUES || header.magic != PACKET_MAGIC ||
      header.version != PACKET_VERSION || header.flags ||
      (header.operation != PACKET_SUM && header.operation != PACKET_OR) || bit == 0 || (bit & (bit - 1))) {
    ++counters_[COUNT_MALFORMED];
    return;
  }
  const auto found = numbers_.find(header.job);
  if (found == numbers_.end()) {
    ++counters_[COUNT_UNKNOWN_JOBS];
    return;
  }
  Job& job = jobs_[found->second];
  if (bit & ~job.all) {
    ++counters_[COUNT_MALFORMED];
    return;
  }
  job.endpoints[size_t(__builtin_ctz(bit))] = sender;

  Entry& entry = job.pool[header.block % PACKET_POOL];
  const uint32_t shape = uint32_t(header.operation) << 16 | uint32_t(count);
  const auto pend = [&](uint32_t flags) {
    header.workers = entry.seen;
    header.flags = uint8_t(PACKET_PENDING | PACKET_REPEATED | flags);
    answers.open(header, 0);
    answers.tell(sender);
    answers.close();
  };
  const auto result = [&](uint32_t flags) {
    header.workers = entry.seen;
    uint8_t* const out = answers.open(header, count);
    bool excess = false;
    for (size_t i = 0; i < count; ++i) {
      const int32_t value = int32_t(entry.sums[i]);
      excess = excess || value != entry.sums[i];
      std::memcpy(out + 4 * i, &value, 4);
    }
    header.flags = uint8_t(PACKET_RESULT | flags | (header.operation == PACKET_SUM && excess ? PACKET_OVERFLOW : 0));
    answers.open(header, count);
  };

  const bool is_first = entry.block != header.block, is_complete = entry.seen == job.all;
  const bool differs = entry.round != header.round || entry.shape != shape;
  if (is_first ? header.block - entry.block != PACKET_POOL || !is_complete : differs && is_complete) {
    ++counters_[COUNT_STALE];
    return;
  }
  if (is_first) {
    entry.block = header.block;
    entry.round = header.round;
    entry.shape = shape;
    entry.seen = entry.flags = 0;
  } else if (differs) {
    entry.flags = PACKET_OUT_OF_STEP;
    ++counters_[COUNT_OUT_OF_STEP];
    return pend(PACKET_OUT_OF_STEP);
  } else if (entry.seen & bit) {
    ++counters_[COUNT_REPEATED];
    if (!is_complete) return pend(entry.flags);
    result(PACKET_REPEATED);
    answers.tell(sender);
    return answers.close();
  }
  if (header.operation == PACKET_SUM)
    for (size_t i = 0; i < count; ++i) entry.sums[i] = (is_first ? 0 : entry.sums[i]) + load(values, i);
  else
    for (size_t i = 0; i < count; ++i) entry.sums[i] = (is_first ? 0 : entry.sums[i]) | load(values, i);
  entry.seen |= bit;
  if (entry.seen != job.all || entry.flags) return;
  ++counters_[COUNT_RESULTS];
  result(0);
  for (uint32_t worker = 0; worker < job.workers; ++worker) answers.tell(job.endpoints[worker]);
  answers.close();
}

void Aggregator::send(int socket, Answers& answers) {
  size_t sent = 0;
  while (sent < answers.messages_count) {
    const int now = sendmmsg(socket, answers.messages + sent, unsigned(answers.messages_count - sent),
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (now > 0) {
      sent += size_t(now);
      continue;
    }
    pollfd wait{socket, POLLOUT, 0};
    if (now < 0 && errno == EAGAIN && poll(&wait, 1, kSendPatienceMs) > 0) continue;
    if (now < 0 && errno == EINTR) continue;
    const std::lock_guard<std::mutex> guard(turn_);
    ++counters_[COUNT_UNSENT];
    ++sent;
  }
}

int Aggregator::serve(int socket, double seconds) {
  std::vector<uint8_t> inbox(kBatch * (kDatagram + 1));  // one byte more than allowed: too long is malformed
  sockaddr_in senders[kBatch];
  iovec parts[kBatch];
  mmsghdr messages[kBatch];
  const auto answers = std::make_unique<Answers>();
  const double until = monotonic() + seconds;
  for (double now = monotonic(); now < until; now = monotonic()) {
    pollfd wait{socket, POLLIN, 0};
    if (poll(&wait, 1, std::max(1, int(1e3 * (until - now)))) <= 0) continue;
    std::memset(messages, 0, sizeof messages);
    for (size_t i = 0; i < kBatch; ++i) {
      parts[i] = {inbox.data() + i * (kDatagram + 1), kDatagram + 1};
      messages[i].msg_hdr.msg_name = &senders[i];
      messages[i].msg_hdr.msg_namelen = sizeof(sockaddr_in);
      messages[i].msg_hdr.msg_iov = &parts[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int came = recvmmsg(socket, messages, kBatch, MSG_DONTWAIT, nullptr);
    if (came < 0) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED) continue;
      return errno;
    }
    answers->count = answers->messages_count = 0;
    {
      const std::lock_guard<std::mutex> guard(turn_);
      for (int i = 0; i < came; ++i)
        take(inbox.data() + size_t(i) * (kDatagram + 1), messages[i].msg_len, senders[i], *answers);
    }
    send(socket, *answers);
  }
  return 0;
}

}  // namespace laconic
