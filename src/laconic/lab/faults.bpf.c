/* A link that loses, doubles and reorders packets; faults.py says how it is wired. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SEC(name) __attribute__((section(name), used))

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*bpf_clone_redirect)(struct __sk_buff *skb, __u32 interface, __u64 flags) =
    (void *)BPF_FUNC_clone_redirect;
static long (*bpf_redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;

struct way {
  __u32 target;
  __u32 lane;
  __u32 number;
  __u32 unused;
  __u64 packets;
};

struct {
  int (*type)[BPF_MAP_TYPE_HASH];
  int (*max_entries)[WAYS];
  __u32 *key;
  struct way *value;
} ways SEC(".maps");

static inline __u64 mix(__u64 x) { /* splitmix64: Steele, Lea, Flood 2014 */
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

SEC("tc") int disturb(struct __sk_buff *skb) {
  const __u32 key = skb->ifindex;
  struct way *const way = bpf_map_lookup_elem(&ways, &key);
  if (!way) return TC_ACT_SHOT;
  const __u64 packet = __sync_fetch_and_add(&way->packets, 1);
  const __u64 dice = mix(mix(SEED + way->number) + packet), more = mix(dice);
  const __u64 loss = LOSS, duplication = DUPLICATION, reordering = REORDERING;
  if ((__u32)dice < loss) return TC_ACT_SHOT;
  if (dice >> 32 < duplication) bpf_clone_redirect(skb, way->target, 0);
  if ((__u32)more >= reordering) return bpf_redirect(way->target, 0);
  skb->mark = 0; /* the copy ends at the exit of the lane */
  bpf_clone_redirect(skb, way->lane, 0);
  skb->mark = way->target;
  return bpf_redirect(way->lane, 0);
}

SEC("tc") int merge(struct __sk_buff *skb) {
  const __u32 target = skb->mark;
  skb->mark = 0;
  return target ? bpf_redirect(target, 0) : TC_ACT_SHOT;
}

char terms[] SEC("license") = "Apache-2.0";
