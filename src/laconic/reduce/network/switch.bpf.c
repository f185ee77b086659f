/* The data plane in the kernel: an XDP program that adds, and a tc program that sends.

   Both sit on the ingress of every port. XDP takes packets for ADDRESS:PORT (set by the compiler's -D), adds
   them to the entry of their block and drops them; the one that completes a block, or asks for something
   again, becomes the answer and is passed on. Then tc makes one copy per worker and hands each to the
   queueing discipline of its port: what XDP sends by itself would skip that, and with it the link's rate.

   Nothing but an answer passes XDP on its way to ADDRESS:PORT, so tc need not ask where a packet is from. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include "packet.h"

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define BE16(x) __builtin_bswap16(x)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)BPF_FUNC_spin_lock;
static long (*bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)BPF_FUNC_spin_unlock;
static long (*bpf_xdp_adjust_tail)(struct xdp_md *context, int delta) = (void *)BPF_FUNC_xdp_adjust_tail;
static long (*bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 size,
                                   __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*bpf_skb_pull_data)(struct __sk_buff *skb, __u32 size) = (void *)BPF_FUNC_skb_pull_data;
static long (*bpf_clone_redirect)(struct __sk_buff *skb, __u32 interface, __u64 flags) =
    (void *)BPF_FUNC_clone_redirect;
static long (*bpf_redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;

struct job {
  __u32 number; /* which part of the pool and of the endpoints is its own */
  __u32 workers;
};

struct entry {
  struct bpf_spin_lock lock;
  __u32 block;
  __u32 round;
  __u32 shape; /* operation and number of values */
  __u32 seen;  /* workers that are in */
  __u32 flags;
  __s64 sums[PACKET_VALUES]; /* wider than values: whether a sum fits is known when all are in, in any order */
};

struct endpoint {
  __u32 interface;
  __be32 address;
  __be16 port;
  __u8 card[ETH_ALEN];
};

struct {
  int (*type)[BPF_MAP_TYPE_HASH];
  int (*max_entries)[JOBS];
  __u64 *key;
  struct job *value;
} jobs SEC(".maps");

struct {
  int (*type)[BPF_MAP_TYPE_ARRAY];
  int (*max_entries)[JOBS * PACKET_POOL];
  __u32 *key;
  struct entry *value;
} pool SEC(".maps");

struct {
  int (*type)[BPF_MAP_TYPE_ARRAY];
  int (*max_entries)[JOBS * PACKET_WORKERS];
  __u32 *key;
  struct endpoint *value;
} endpoints SEC(".maps");

struct {
  int (*type)[BPF_MAP_TYPE_ARRAY];
  int (*max_entries)[PACKET_COUNTERS];
  __u32 *key;
  __u64 *value;
} counters SEC(".maps");

struct frame {
  struct ethhdr ethernet;
  struct iphdr ip;
  struct udphdr udp;
  struct packet_header header;
} __attribute__((packed, aligned(2)));

#define FRAME_HEADERS (sizeof(struct frame) - sizeof(struct packet_header))

INLINE void count(__u32 which) {
  __u64 *counter = bpf_map_lookup_elem(&counters, &which);
  if (counter) __sync_fetch_and_add(counter, 1);
}

INLINE int drop(__u32 why) {
  count(why);
  return XDP_DROP;
}

/* Whether a frame of this length is addressed to the aggregator, by its first bytes. */
INLINE int is_ours(const struct frame *frame) {
  return frame->ethernet.h_proto == BE16(ETH_P_IP) && frame->ip.daddr == ADDRESS &&
         frame->ip.protocol == IPPROTO_UDP && frame->ip.ihl == 5 && frame->udp.dest == BE16(PORT);
}

INLINE __u32 number_of(__u32 bit) {
  return (bit & 0xffff0000 ? 16 : 0) + (bit & 0xff00ff00 ? 8 : 0) + (bit & 0xf0f0f0f0 ? 4 : 0) +
         (bit & 0xcccccccc ? 2 : 0) + (bit & 0xaaaaaaaa ? 1 : 0);
}

/* Write the length into both headers; tc makes the checksum of IP, UDP's is left out. */
INLINE void set_length(struct frame *frame, __u32 values) {
  const __u32 bytes = sizeof(struct packet_header) + 4 * values;
  frame->udp.len = BE16(sizeof(struct udphdr) + bytes);
  frame->udp.check = 0;
  frame->ip.tot_len = BE16(sizeof(struct iphdr) + sizeof(struct udphdr) + bytes);
}

/* Turn the packet into a short answer: who is in so far. */
INLINE int answer_pending(struct xdp_md *context, struct frame *frame, __u32 values, __u32 seen, __u32 flags) {
  frame->header.workers = seen;
  frame->header.flags = PACKET_PENDING | PACKET_REPEATED | flags;
  set_length(frame, 0);
  return bpf_xdp_adjust_tail(context, -(int)(4 * values)) ? XDP_DROP : XDP_PASS;
}

/* Turn the packet into the result of its block, which no one changes until all workers have it.
   A function of its own, so that the kernel checks its loop once and not for every way to get here. */
__attribute__((noinline)) int answer_result(struct xdp_md *context, __u32 key, __u32 values, __u32 flags) {
  struct frame *const frame = (void *)(long)context->data;
  void *const end = (void *)(long)context->data_end;
  const struct entry *const entry = bpf_map_lookup_elem(&pool, &key);
  int *const packet = (void *)(frame + 1);
  if (!entry || (void *)packet > end) return XDP_DROP;
  __u64 excess = 0;
  for (__u32 i = 0; i < PACKET_VALUES; ++i) {
    if (i >= values || (void *)(packet + i + 1) > end) break;
    const __s64 sum = entry->sums[i];
    excess |= (__u64)(sum + 0x80000000LL) >> 32;
    packet[i] = (int)sum;
  }
  if (frame->header.operation == PACKET_SUM && excess) flags |= PACKET_OVERFLOW;
  frame->header.workers = entry->seen;
  frame->header.flags = PACKET_RESULT | flags;
  set_length(frame, values);
  return XDP_PASS;
}

SEC("xdp") int aggregate(struct xdp_md *context) {
  struct frame *const frame = (void *)(long)context->data;
  void *const end = (void *)(long)context->data_end;
  if ((void *)&frame->header > end || !is_ours(frame)) return XDP_PASS;
  count(COUNT_PACKETS);
  const int *const packet = (void *)(frame + 1);
  if ((void *)packet > end || frame->ip.frag_off & BE16(0x3fff)) return drop(COUNT_MALFORMED);
  const __u32 bytes = BE16(frame->udp.len) - sizeof(struct udphdr) - sizeof(struct packet_header);
  const __u32 values = bytes / 4;
  const __u32 bit = frame->header.workers;
  const __u32 block = frame->header.block, round = frame->header.round;
  const __u32 operation = frame->header.operation, shape = operation << 16 | values;
  if (bytes % 4 || values == 0 || values > PACKET_VALUES || (void *)packet + bytes > end ||
      frame->header.magic != PACKET_MAGIC || frame->header.version != PACKET_VERSION || frame->header.flags ||
      (operation != PACKET_SUM && operation != PACKET_OR) || bit == 0 || bit & (bit - 1))
    return drop(COUNT_MALFORMED);

  const __u64 token = frame->header.job;
  const struct job *const job = bpf_map_lookup_elem(&jobs, &token);
  if (!job) return drop(COUNT_UNKNOWN_JOBS);
  const __u32 all = 0xffffffff >> (PACKET_WORKERS - job->workers);
  if (bit & ~all) return drop(COUNT_MALFORMED);

  __u32 key = job->number * PACKET_WORKERS + number_of(bit);
  struct endpoint *const endpoint = bpf_map_lookup_elem(&endpoints, &key);
  if (!endpoint) return drop(COUNT_MALFORMED);
  endpoint->interface = context->ingress_ifindex;
  endpoint->address = frame->ip.saddr;
  endpoint->port = frame->udp.source;
  __builtin_memcpy(endpoint->card, frame->ethernet.h_source, ETH_ALEN);

  key = job->number * PACKET_POOL + block % PACKET_POOL;
  struct entry *const entry = bpf_map_lookup_elem(&pool, &key);
  if (!entry) return drop(COUNT_MALFORMED);

  bpf_spin_lock(&entry->lock);
  const int is_first = entry->block != block, is_complete = entry->seen == all;
  const int differs = entry->round != round || entry->shape != shape;
  if (is_first ? block - entry->block != PACKET_POOL || !is_complete : differs && is_complete) {
    bpf_spin_unlock(&entry->lock);
    return drop(COUNT_STALE);
  }
  if (is_first) {
    entry->block = block;
    entry->round = round;
    entry->shape = shape;
    entry->seen = 0;
    entry->flags = 0;
  } else if (differs) {
    entry->flags = PACKET_OUT_OF_STEP;
    const __u32 seen = entry->seen;
    bpf_spin_unlock(&entry->lock);
    count(COUNT_OUT_OF_STEP);
    return answer_pending(context, frame, values, seen, PACKET_OUT_OF_STEP);
  } else if (entry->seen & bit) {
    const __u32 seen = entry->seen, flags = entry->flags;
    bpf_spin_unlock(&entry->lock);
    count(COUNT_REPEATED);
    return is_complete ? answer_result(context, key, values, PACKET_REPEATED)
                       : answer_pending(context, frame, values, seen, flags);
  }
  if (operation == PACKET_SUM) {
    for (__u32 i = 0; i < PACKET_VALUES; ++i) {
      if (i >= values || (void *)(packet + i + 1) > end) break;
      entry->sums[i] = (is_first ? 0 : entry->sums[i]) + packet[i];
    }
  } else {
    for (__u32 i = 0; i < PACKET_VALUES; ++i) {
      if (i >= values || (void *)(packet + i + 1) > end) break;
      entry->sums[i] = (is_first ? 0 : entry->sums[i]) | packet[i];
    }
  }
  entry->seen |= bit;
  const __u32 seen = entry->seen, flags = entry->flags;
  bpf_spin_unlock(&entry->lock);
  if (seen != all || flags) return XDP_DROP;
  count(COUNT_RESULTS);
  return answer_result(context, key, values, 0);
}

INLINE __u16 ip_checksum(const struct frame *headers) {
  const __u16 *words = (const void *)headers + sizeof(struct ethhdr);
  __u32 sum = 0;
  for (int i = 0; i < 10; ++i) sum += i == 5 ? 0 : words[i];
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return ~sum;
}

/* Headers of an answer: from where the question went, to an endpoint. */
INLINE void address(struct frame *headers, const struct frame *question, const struct endpoint *to) {
  __builtin_memcpy(headers->ethernet.h_dest, to->card, ETH_ALEN);
  __builtin_memcpy(headers->ethernet.h_source, question->ethernet.h_dest, ETH_ALEN);
  headers->ethernet.h_proto = BE16(ETH_P_IP);
  headers->ip = question->ip;
  headers->ip.saddr = question->ip.daddr;
  headers->ip.daddr = to->address;
  headers->ip.ttl = 64;
  headers->ip.check = ip_checksum(headers);
  headers->udp.source = question->udp.dest;
  headers->udp.dest = to->port;
  headers->udp.len = question->udp.len;
  headers->udp.check = 0;
}

SEC("tc") int spread(struct __sk_buff *skb) {
  if (skb->protocol != BE16(ETH_P_IP)) return TC_ACT_OK;
  if ((void *)(long)skb->data + sizeof(struct frame) > (void *)(long)skb->data_end &&
      bpf_skb_pull_data(skb, sizeof(struct frame)))
    return TC_ACT_OK; /* shorter than any of ours */
  const struct frame *const frame = (void *)(long)skb->data;
  if ((void *)(frame + 1) > (void *)(long)skb->data_end || !is_ours(frame)) return TC_ACT_OK;

  struct frame answer = {}; /* headers alone are used; the question's go when the first copy leaves */
  const __u64 token = frame->header.job;
  const struct job *const job = bpf_map_lookup_elem(&jobs, &token);
  if (!job || !frame->header.flags) return TC_ACT_SHOT;
  if (frame->header.flags & PACKET_REPEATED) {
    struct endpoint sender = {.interface = skb->ifindex, .address = frame->ip.saddr, .port = frame->udp.source};
    __builtin_memcpy(sender.card, frame->ethernet.h_source, ETH_ALEN);
    address(&answer, frame, &sender);
    if (bpf_skb_store_bytes(skb, 0, &answer, FRAME_HEADERS, 0)) return TC_ACT_SHOT;
    return bpf_redirect(skb->ifindex, 0);
  }
  struct frame question = {};
  __builtin_memcpy(&question, frame, sizeof question);
  for (__u32 worker = 0; worker < PACKET_WORKERS; ++worker) {
    if (worker >= job->workers) break;
    __u32 key = job->number * PACKET_WORKERS + worker;
    const struct endpoint *const endpoint = bpf_map_lookup_elem(&endpoints, &key);
    if (!endpoint) break;
    address(&answer, &question, endpoint);
    if (bpf_skb_store_bytes(skb, 0, &answer, FRAME_HEADERS, 0) ||
        bpf_clone_redirect(skb, endpoint->interface, 0))
      count(COUNT_UNSENT); /* the worker will ask again */
  }
  return TC_ACT_SHOT;
}

char terms[] SEC("license") = "Apache-2.0"; /* none of these helpers asks for the GPL */
