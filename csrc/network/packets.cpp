#include "packets.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace laconic {
namespace {

constexpr size_t kBatch = 64;  // packets per system call
constexpr size_t kDatagram = sizeof(packet_header) + 4 * PACKET_VALUES;
constexpr size_t kHeaders = 14 + 20 + 8;  // Ethernet, IPv4, UDP: what a link counts besides
constexpr size_t kKernelBytes = 2304;     // what a full datagram takes of a socket's buffer
constexpr uint32_t kBusy = 32;            // packets on their way that make it worth to wait for several results
constexpr double kGather = 0.0005;
constexpr double kFirstPatience = 0.05, kLeastPatience = 0.02, kMostPatience = 0.5;
constexpr uint64_t kOvertaken = 32;  // results of later packets that mean that this one is lost, not late
constexpr double kLook = 0.002;  // how often lost packets are looked for

double monotonic() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

uint32_t window_of(int socket) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, &size);
  return std::clamp(uint32_t(size_t(std::max(bytes, 0)) / kKernelBytes), 8u, uint32_t(PACKET_WINDOW));
}

bool is_transient(int error) {  // a full queue, an aggregator that does not listen yet, a pulled cable
  return error == EAGAIN || error == ENOBUFS || error == ECONNREFUSED || error == EINTR || error == EHOSTUNREACH ||
         error == ENETUNREACH || error == ENETDOWN;
}

}  // namespace

Worker::Worker(int socket, uint64_t job, uint32_t worker, uint32_t workers, double timeout_s)
    : socket_(socket),
      bit_(1u << worker),
      all_(0xffffffffu >> (PACKET_WORKERS - workers)),
      timeout_s_(timeout_s),
      window_(window_of(socket)),
      ready_(PACKET_WINDOW),
      patience_(kFirstPatience),
      inbox_(kBatch * kDatagram) {
  header_.magic = PACKET_MAGIC;
  header_.version = PACKET_VERSION;
  header_.workers = bit_;
  header_.job = job;
}

void Worker::begin(int operation, int32_t* values, size_t size) {
  header_.operation = uint8_t(operation);
  header_.round = round_++;
  values_ = values;
  size_ = size;
  blocks_ = left_ = uint32_t((size + PACKET_VALUES - 1) / PACKET_VALUES);
  first_block_ = next_block_;
  next_block_ += blocks_;
  flying_ = 0;
  lanes_.fill(Lane{});
  ready_begin_ = 0;
  ready_size_ = std::min<size_t>(blocks_, PACKET_WINDOW);
  for (size_t i = 0; i < ready_size_; ++i) ready_[i] = uint32_t(i);
  seen_ = 0;
  answered_ = overflow_ = stalled_ = blocked_ = false;
  error_ = 0;
  progress_at_ = looked_at_ = monotonic();
}

uint32_t Worker::values_of(uint32_t index) const {
  return uint32_t(std::min<size_t>(PACKET_VALUES, size_ - size_t(index) * PACKET_VALUES));
}

Outcome Worker::proceed(double seconds) {
  const double until = monotonic() + seconds;
  while (left_ > 0) {
    double now = monotonic();
    if (!send_ready(now)) return Outcome::kSystemError;
    const bool came = receive(now);
    if (error_ && !is_transient(error_)) return Outcome::kSystemError;
    if (out_of_step_) return Outcome::kOutOfStep;
    now = monotonic();
    if (!came && now - looked_at_ >= kLook) repeat_lost(now);  // not while results wait in the socket
    if (now - progress_at_ > timeout_s_) return Outcome::kTimeout;
    if (now > until) return Outcome::kRunning;
    if (came || (ready_size_ > 0 && flying_ < window_ && !blocked_)) continue;
    if (flying_ > kBusy) {  // one awakening for many results: on few cores they cost more than packets do
      const timespec pause{0, long(1e9 * std::min(kGather, round_trip_ / 8))};
      nanosleep(&pause, nullptr);
    }
    const bool full = blocked_ && error_ == EAGAIN;  // after other errors, such as a pulled cable, time must go by
    pollfd wait{socket_, short(POLLIN | (full ? POLLOUT : 0)), 0};
    poll(&wait, 1, std::max(1, int(std::ceil(1e3 * std::min(until - now, kLook)))));
    if (!full || wait.revents & POLLOUT) blocked_ = false;
  }
  return overflow_ ? Outcome::kOverflow : Outcome::kDone;
}

// False on an error that waiting does not mend.
bool Worker::send_ready(double now) {
  while (ready_size_ > 0 && flying_ < window_ && !blocked_) {
    uint32_t indices[kBatch];
    const size_t count = std::min({kBatch, ready_size_, size_t(window_ - flying_)});
    for (size_t i = 0; i < count; ++i) indices[i] = ready_[(ready_begin_ + i) % PACKET_WINDOW];
    const size_t sent = send(indices, count);
    for (size_t i = 0; i < sent; ++i) lane_of(indices[i]) = {indices[i], 1, ++serial_, now};
    ready_begin_ = (ready_begin_ + sent) % PACKET_WINDOW;
    ready_size_ -= sent;
    flying_ += uint32_t(sent);
    if (sent < count) blocked_ = true;
    if (sent > 0 && sent < count) error_ = EAGAIN;
    if (error_ && !is_transient(error_)) return false;
  }
  return true;
}

// Several packets of one size make one message, which the kernel cuts where it leaves the machine.
size_t Worker::send(const uint32_t* indices, size_t count) {
  packet_header headers[kBatch];
  iovec parts[2 * kBatch];
  mmsghdr messages[kBatch];
  alignas(cmsghdr) char controls[kBatch][CMSG_SPACE(sizeof(uint16_t))];
  size_t packets[kBatch], made = 0;
  for (size_t i = 0; i < count; ++made) {
    msghdr& message = messages[made].msg_hdr;
    message = {};
    message.msg_iov = parts + 2 * i;
    const size_t first = i;
    do {
      headers[i] = header_;
      headers[i].block = first_block_ + indices[i];
      parts[2 * i] = {&headers[i], sizeof(packet_header)};
      parts[2 * i + 1] = {values_ + size_t(indices[i]) * PACKET_VALUES, 4 * size_t(values_of(indices[i]))};
      ++i;
    } while (i < count && i - first < segments_ && values_of(indices[i - 1]) == PACKET_VALUES);
    packets[made] = i - first;
    message.msg_iovlen = 2 * packets[made];
    if (packets[made] == 1) continue;
    const uint16_t size = kDatagram;
    message.msg_control = controls[made];
    message.msg_controllen = sizeof controls[made];
    cmsghdr* const control = CMSG_FIRSTHDR(&message);
    *control = {CMSG_LEN(sizeof size), SOL_UDP, UDP_SEGMENT};
    std::memcpy(CMSG_DATA(control), &size, sizeof size);
  }
  const int went = sendmmsg(socket_, messages, unsigned(made), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (went < 0) {
    if (segments_ > 1 && (errno == EIO || errno == EINVAL)) {  // a card that cannot cut
      segments_ = 1;
      return send(indices, count);
    }
    error_ = errno;
    return 0;
  }
  size_t sent = 0;
  for (int i = 0; i < went; ++i) sent += packets[i];
  for (size_t i = 0; i < sent; ++i) bytes_sent_ += kHeaders + sizeof(packet_header) + parts[2 * i + 1].iov_len;
  return sent;
}

bool Worker::receive(double now) {
  iovec parts[kBatch];
  mmsghdr messages[kBatch];
  std::memset(messages, 0, sizeof messages);
  for (size_t i = 0; i < kBatch; ++i) {
    parts[i] = {inbox_.data() + i * kDatagram, kDatagram};
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int came = recvmmsg(socket_, messages, kBatch, MSG_DONTWAIT, nullptr);
  if (came < 0) {
    if (errno != EAGAIN) error_ = errno;
    return false;
  }
  for (int i = 0; i < came; ++i) {
    bytes_received_ += kHeaders + messages[i].msg_len;
    if (!(messages[i].msg_hdr.msg_flags & MSG_TRUNC))
      take(inbox_.data() + size_t(i) * kDatagram, messages[i].msg_len, now);
  }
  return came > 0;
}

// Whatever is not an answer to a block on its way is dropped: late, doubled or not for us.
void Worker::take(const uint8_t* datagram, size_t size, double now) {
  packet_header header;
  if (size < sizeof header) return;
  std::memcpy(&header, datagram, sizeof header);
  if (header.magic != PACKET_MAGIC || header.version != PACKET_VERSION || header.job != header_.job ||
      header.round != header_.round || header.operation != header_.operation)
    return;
  const uint32_t index = header.block - first_block_;
  if (index >= blocks_) return;
  const Lane& lane = lane_of(index);
  if (lane.tries == 0 || lane.index != index) return;
  if (header.flags & PACKET_RESULT) {
    take_result(header, datagram + sizeof header, size - sizeof header, now);
  } else if (header.flags & PACKET_PENDING) {
    out_of_step_ = out_of_step_ || (header.flags & PACKET_OUT_OF_STEP);
    seen_ = header.workers;
    answered_ = true;
  }
}

void Worker::take_result(const packet_header& header, const uint8_t* values, size_t bytes, double now) {
  const uint32_t index = header.block - first_block_;
  Lane& lane = lane_of(index);
  if (header.workers != all_ || bytes != 4 * size_t(values_of(index))) return;
  std::memcpy(values_ + size_t(index) * PACKET_VALUES, values, bytes);
  overflow_ = overflow_ || (header.flags & PACKET_OVERFLOW);
  if (lane.tries == 1 && !stalled_) learn(now - lane.sent_at);  // an answer to a repeated packet tells no time
  answered_serial_ = std::max(answered_serial_, lane.serial);
  lane.tries = 0;
  --flying_;
  --left_;
  if (uint64_t(index) + PACKET_WINDOW < blocks_)
    ready_[(ready_begin_ + ready_size_++) % PACKET_WINDOW] = index + PACKET_WINDOW;
  progress_at_ = now;
  answered_ = false;
  if (!stalled_) return;
  stalled_ = false;
  if (index != probed_) return;
  // If what was probed was lost, others before it probably were too. Or someone was late and is here now, and the
  // other results are on their way: leave them the time.
  recovered_serial_ = answered_serial_;
  recovered_at_ = now + round_trip_;
}

void Worker::learn(double seconds) {
  if (round_trip_ == 0) {
    round_trip_ = seconds;
    deviation_ = seconds / 2;
  } else {
    deviation_ += (std::fabs(seconds - round_trip_) - deviation_) / 16;
    round_trip_ += (seconds - round_trip_) / 16;
  }
  patience_ = std::clamp(2 * round_trip_ + 4 * deviation_, kLeastPatience, kMostPatience);
}

uint32_t Worker::oldest() const {
  uint32_t found = blocks_;
  for (const Lane& lane : lanes_)
    if (lane.tries) found = std::min(found, lane.index);
  return found;
}

void Worker::repeat(const uint32_t* indices, size_t count, double now) {
  const size_t sent = send(indices, count);
  repeated_ += sent;
  for (size_t i = 0; i < sent; ++i) {
    Lane& lane = lane_of(indices[i]);
    lane = {lane.index, uint8_t(std::min(lane.tries + 1, 255)), ++serial_, now};
  }
}

// While results come, a packet that many later ones overtook was lost, or its result was: send it again. Time must
// have gone by too: cores that take turns overtake each other by many packets. Other lanes go on meanwhile.
void Worker::repeat_lost(double now) {
  looked_at_ = now;
  if (flying_ > 0 && now - progress_at_ > patience_) return probe(now);
  uint32_t indices[kBatch];
  size_t count = 0;
  for (const Lane& lane : lanes_) {
    const bool lost = lane.serial + kOvertaken < answered_serial_ ||
                      (lane.serial < recovered_serial_ && now >= recovered_at_);
    if (count < kBatch && lane.tries && lost && now - lane.sent_at > patience_) indices[count++] = lane.index;
  }
  if (count > 0) repeat(indices, count, now);
}

// When no results come, a worker is late or the wire is cut, and many packets would not help: ask about one block,
// ever more rarely.
void Worker::probe(double now) {
  if (stalled_ && now < probed_at_ + probe_wait_) return;
  probe_wait_ = stalled_ ? std::min(2 * probe_wait_, kMostPatience) : patience_;
  stalled_ = true;
  probed_ = oldest();
  probed_at_ = now;
  repeat(&probed_, 1, now);
}

}  // namespace laconic
