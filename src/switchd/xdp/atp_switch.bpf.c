/* The aggregation stage of ATP in the kernel: switch/aggregate.h for packets of up to 64 elements
 * without a seal. The unit tests hold it to that stage, packet by packet.
 *
 * Sums and what passes on leave by redirect to their server. Everything else goes up to the
 * process: parameter packets, which have freed their slots here and are fanned out there, larger
 * and sealed packets, and what is none of ours. A slot is one packet's at a time, by its lock. */
#include "atp_maps.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#define AF_INET_FAMILY 2

enum { KIND_GRADIENT = 'G', KIND_PARAMETER = 'P' };
enum {
  FLAG_RESEND = 1,
  FLAG_COLLISION = 2,
  FLAG_CONGESTED = 4,
  FLAG_SATURATED = 8,
  FLAG_KEYED = 16
};
enum { SECOND_LEVEL_PLACE = 0xff, FIRST_LEVEL = 0, SECOND_LEVEL = 1 };
/* AggregateAction::Cause */
enum cause {
  STORED,
  ADDED,
  COMPLETED,
  RESENT,
  FLUSHED,
  COLLISION,
  LIMITED,
  TOO_LARGE,
  NOT_HERE,
  ALONE,
  DUPLICATE,
  OVERLAP,
  REPEATED,
  FREED,
  UNNEEDED,
  UNKNOWN_JOB,
  MISMATCH,
  STALE,
  OUT_OF_WINDOW,
  BAD_KIND,
  FLAGGED
};

/* wire/atp_packet.h; little-endian, as this program is. */
struct atp_header {
  __u8 version;
  __u8 kind;
  __u8 flags;
  __u8 level;
  __u32 job;
  __u64 sequence;
  __u32 workers;
  __u32 groups;
  __u8 group;
  __u8 fan_in;
  __u8 group_count;
  __s8 exponent;
  __s8 next_exponent;
  __u8 reserved;
  __u16 elements;
};
_Static_assert(sizeof(struct atp_header) == 32, "as on the wire");

/* Where they lie in a packet. */
struct frame {
  struct ethhdr* eth;
  struct iphdr* ip;
  struct udphdr* udp;
  struct atp_header* atp;
};
enum {
  IP_PLACE = sizeof(struct ethhdr),
  UDP_PLACE = IP_PLACE + sizeof(struct iphdr),
  ATP_PLACE = UDP_PLACE + sizeof(struct udphdr),
  VALUES_PLACE = ATP_PLACE + sizeof(struct atp_header),
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct atp_xdp_config);
} config SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 4096);
  __type(key, __u32);
  __type(value, struct atp_xdp_job);
} jobs SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* the loader says how many */
  __type(key, __u32);
  __type(value, struct atp_xdp_slot);
} slots SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
  __uint(max_entries, 4096);
  __type(key, __u32);
  __type(value, struct atp_xdp_counters);
} counters SEC(".maps");

/* What the stage decided. */
struct verdict {
  enum cause cause;
  __u8 emit;    /* the packet goes on, its header as rewritten */
  __u8 partial; /* with a sum of some, not all */
};

static __always_inline __u32 all_of(__u32 count) { return count >= 32 ? ~0U : (1U << count) - 1; }
static __always_inline __u32 bit(__u32 i) { return 1U << (i & 31); }

static __always_inline struct atp_xdp_slot* slot_of(const struct atp_xdp_job* job, __u32 count,
                                                    __u64 sequence, __u8 place) {
  const __u32 which = place == SECOND_LEVEL_PLACE ? ATP_XDP_ENDS : place & (ATP_XDP_ENDS - 1);
  const __u32 index = (__u32)((job->starts[which] + sequence) % count);
  return bpf_map_lookup_elem(&slots, &index);
}

/* check_atp_header(), of a gradient or a parameter. */
static __always_inline int header_holds(const struct atp_header* h) {
  if (h->version != ATP_WIRE_VERSION || h->reserved != 0 || (h->flags & ~31) != 0) return 0;
  if (h->fan_in < 1 || h->fan_in > 32 || h->group_count < 1 || h->group_count > 32) return 0;
  if (h->group >= h->group_count || h->elements == 0) return 0;
  if ((h->workers & ~all_of(h->fan_in)) != 0 || (h->groups & ~all_of(h->group_count)) != 0)
    return 0;
  if (h->workers == 0 ? h->groups == 0 : (h->groups & bit(h->group)) != 0) return 0;
  const __u8 passing = h->flags & (FLAG_RESEND | FLAG_COLLISION);
  if (h->kind == KIND_PARAMETER) return h->level == 0 && passing == 0;
  if (h->kind != KIND_GRADIENT || h->level > 2) return 0;
  if (h->level == FIRST_LEVEL) return h->groups == 0;
  return passing != 0 || h->workers == 0;
}

/* Adds the packet's elements to the slot's, saturating. True if any did. */
static __always_inline int add_values(struct atp_xdp_slot* slot, const __s32* values, __u32 count,
                                      const void* end) {
  __u64 over = 0;
  if (count == ATP_XDP_ELEMENTS && (const void*)(values + ATP_XDP_ELEMENTS) <= end) {
#pragma unroll
    for (int i = 0; i < ATP_XDP_ELEMENTS; ++i) {
      const __s64 sum = (__s64)slot->values[i] + values[i];
      const __s32 kept = (__s32)sum;
      if (sum != kept) {
        over = 1;
        slot->values[i] = sum < 0 ? (__s32)0x80000000 : 0x7fffffff;
      } else {
        slot->values[i] = kept;
      }
    }
    return (int)over;
  }
  for (__u32 i = 0; i < ATP_XDP_ELEMENTS; ++i) {
    if (i >= count || (const void*)(values + i + 1) > end) break;
    const __s64 sum = (__s64)slot->values[i] + values[i];
    const __s32 kept = (__s32)sum;
    over |= sum != kept;
    slot->values[i] = sum == kept ? kept : sum < 0 ? (__s32)0x80000000 : 0x7fffffff;
  }
  return (int)over;
}

/* Copies between slot and packet. */
static __always_inline void store_values(struct atp_xdp_slot* slot, const __s32* values,
                                         __u32 count, const void* end) {
  if (count == ATP_XDP_ELEMENTS && (const void*)(values + ATP_XDP_ELEMENTS) <= end) {
    __builtin_memcpy(slot->values, values, sizeof(slot->values));
    return;
  }
  for (__u32 i = 0; i < ATP_XDP_ELEMENTS; ++i) {
    if (i >= count || (const void*)(values + i + 1) > end) break;
    slot->values[i] = values[i];
  }
}
static __always_inline void load_values(const struct atp_xdp_slot* slot, __s32* values, __u32 count,
                                        const void* end) {
  if (count == ATP_XDP_ELEMENTS && (const void*)(values + ATP_XDP_ELEMENTS) <= end) {
    __builtin_memcpy(values, slot->values, sizeof(slot->values));
    return;
  }
  for (__u32 i = 0; i < ATP_XDP_ELEMENTS; ++i) {
    if (i >= count || (const void*)(values + i + 1) > end) break;
    values[i] = slot->values[i];
  }
}

/* The packet goes on with its own elements; not to be aggregated further up. */
static __always_inline struct verdict pass_on(struct atp_header* h, enum cause cause) {
  if (h->level == FIRST_LEVEL && h->workers == all_of(h->fan_in)) {
    h->groups = bit(h->group);
    h->workers = 0;
  }
  ++h->level;
  if (cause != RESENT && cause != ALONE) h->flags |= FLAG_COLLISION;
  return (struct verdict){cause, 1, 0};
}

static __always_inline void take_marks(struct atp_xdp_slot* slot, const struct atp_header* h) {
  slot->congested |= (h->flags & FLAG_CONGESTED) != 0;
  slot->saturated |= (h->flags & FLAG_SATURATED) != 0;
  if (h->next_exponent > slot->next_exponent) slot->next_exponent = h->next_exponent;
}

/* Makes the packet that of the slot's sum, headed for the next level. */
static __always_inline void become_sum(const struct atp_xdp_slot* slot, struct atp_header* h,
                                       __s32* values, const void* end) {
  ++h->level;
  if (slot->congested) h->flags |= FLAG_CONGESTED;
  h->flags = (h->flags & ~FLAG_SATURATED) | (slot->saturated ? FLAG_SATURATED : 0);
  h->next_exponent = slot->next_exponent;
  if (slot->place == SECOND_LEVEL_PLACE) {
    h->groups = slot->members;
    h->workers = 0;
  } else if (slot->members == all_of(slot->fan_in)) {
    h->groups = bit(slot->place);
    h->workers = 0;
  } else {
    h->groups = 0;
    h->workers = slot->members;
  }
  load_values(slot, values, h->elements, end);
}

static __always_inline struct verdict claim(struct atp_xdp_slot* slot, struct atp_header* h,
                                            __s32* values, const void* end, __u64 now) {
  const int first = h->level == FIRST_LEVEL;
  slot->sequence = h->sequence;
  slot->touched = now;
  slot->job = h->job;
  slot->place = first ? h->group : SECOND_LEVEL_PLACE;
  slot->members = first ? h->workers : h->groups;
  slot->fan_in = first ? h->fan_in : h->group_count;
  slot->elements = h->elements;
  slot->exponent = h->exponent;
  slot->next_exponent = h->next_exponent;
  slot->congested = (h->flags & FLAG_CONGESTED) != 0;
  slot->saturated = (h->flags & FLAG_SATURATED) != 0;
  store_values(slot, values, h->elements, end);
  if (slot->members != all_of(slot->fan_in)) return (struct verdict){STORED, 0, 0};
  become_sum(slot, h, values, end);
  return (struct verdict){COMPLETED, 1, 0};
}

/* Steps 4 to 6 of the paper's figure 4. */
static __always_inline struct verdict aggregate(struct atp_xdp_slot* slot, struct atp_header* h,
                                                __s32* values, const void* end, __u64 now) {
  const __u32 members = slot->place == SECOND_LEVEL_PLACE ? h->groups : h->workers;
  slot->touched = now;
  if ((members & ~slot->members) == 0) return (struct verdict){DUPLICATE, 0, 0};
  if ((members & slot->members) != 0) return pass_on(h, OVERLAP);
  slot->members |= members;
  take_marks(slot, h);
  if (add_values(slot, values, h->elements, end)) slot->saturated = 1;
  if (slot->members != all_of(slot->fan_in)) return (struct verdict){ADDED, 0, 0};
  become_sum(slot, h, values, end);
  return (struct verdict){COMPLETED, 1, 0};
}

/* Steps 7 to 10. */
static __always_inline struct verdict flush(struct atp_xdp_slot* slot, struct atp_header* h,
                                            __s32* values, const void* end) {
  const int second = slot->place == SECOND_LEVEL_PLACE;
  const __u32 members = second ? h->groups : h->workers;
  const int part = second && h->workers != 0;
  const int has_own = (slot->members & bit(h->group)) != 0;
  const int within = (members & ~slot->members) == 0 && (!part || has_own);
  const int disjoint = (members & slot->members) == 0 && (!part || !has_own);
  if (!within && !disjoint) {
    slot->members = 0;
    return pass_on(h, RESENT);
  }
  const __u32 partly = part && disjoint ? h->workers : 0;
  if (disjoint) {
    slot->members |= members;
    take_marks(slot, h);
    if (add_values(slot, values, h->elements, end)) slot->saturated = 1;
  }
  const int some = slot->members != all_of(slot->fan_in);
  become_sum(slot, h, values, end);
  if (second) h->workers = partly;
  slot->members = 0;
  return (struct verdict){FLUSHED, 1, (__u8)some};
}

/* With the slot's lock held. */
static __always_inline struct verdict decide(struct atp_xdp_slot* slot, struct atp_header* h,
                                             __s32* values, const void* end, __u8 place,
                                             __u32 window, __u64 now, __u64 lifetime) {
  const int ours = slot->members != 0 && slot->sequence == h->sequence && slot->job == h->job &&
                   slot->place == place;
  if (ours) {
    const __u8 fan_in = place == SECOND_LEVEL_PLACE ? h->group_count : h->fan_in;
    if (slot->fan_in != fan_in || slot->elements != h->elements || slot->exponent != h->exponent) {
      return (struct verdict){MISMATCH, 0, 0};
    }
  }
  if (h->flags & FLAG_RESEND) return ours ? flush(slot, h, values, end) : pass_on(h, RESENT);
  if (ours) return aggregate(slot, h, values, end, now);
  if (slot->members != 0) {
    const int past = slot->job == h->job && h->sequence > slot->sequence &&
                     h->sequence - slot->sequence >= 2 * (__u64)window;
    if (!past && now - slot->touched < lifetime) return pass_on(h, COLLISION);
  }
  return claim(slot, h, values, end, now);
}

static __always_inline void add_traffic(struct atp_xdp_traffic* to, __u32 bytes) {
  ++to->packets;
  to->bytes += bytes;
}

static __always_inline void count(struct atp_xdp_counters* of, __u64 sequence, __u32 servers,
                                  __u32 bytes, struct verdict verdict) {
  const __u32 cause = verdict.cause;
  if (cause >= ATP_XDP_CAUSES || servers == 0) return;
  ++of->packets[cause];
  of->partial_sums += verdict.partial;
  if (verdict.emit) add_traffic(&of->to_servers[sequence % servers & (ATP_XDP_ENDS - 1)], bytes);
}

static __always_inline void free_slot(const struct atp_xdp_job* about, __u32 count,
                                      const struct atp_header* h, __u8 place) {
  struct atp_xdp_slot* slot = slot_of(about, count, h->sequence, place);
  if (!slot) return;
  const __u64 sequence = h->sequence;
  const __u32 job = h->job;
  bpf_spin_lock(&slot->lock);
  if (slot->sequence == sequence && slot->job == job && slot->place == place) slot->members = 0;
  bpf_spin_unlock(&slot->lock);
}

/* A parameter packet frees what its sequence holds; the process counts it and fans it out. */
static __always_inline int on_parameter(const struct atp_header* h, const struct atp_xdp_job* job,
                                        const struct atp_xdp_config* about) {
  for (__u32 g = 0; g < 32; ++g) {
    if (job->groups & bit(g)) free_slot(job, about->slots, h, (__u8)g);
  }
  if (job->second_level) free_slot(job, about->slots, h, SECOND_LEVEL_PLACE);
  return XDP_PASS;
}

static __always_inline __u16 ip_checksum(struct iphdr* ip) {
  __u64 sum = (__u64)bpf_csum_diff(0, 0, (__be32*)ip, sizeof(*ip), 0);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum = (sum & 0xffff) + (sum >> 16);
  return (__u16)~sum;
}

/* To the server of the sequence, by whatever device leads there. */
static __always_inline int send_on(struct xdp_md* context, const struct frame* f,
                                   const struct atp_xdp_job* job) {
  const __u32 servers = job->server_count;
  if (servers == 0) return XDP_DROP;
  const __u64 index = f->atp->sequence % servers & (ATP_XDP_ENDS - 1);
  const struct atp_xdp_end* server = &job->servers[index];
  f->ip->saddr = f->ip->daddr;
  f->ip->daddr = server->ip;
  f->ip->ttl = 64;
  f->ip->check = 0;
  f->ip->check = ip_checksum(f->ip);
  f->udp->source = f->udp->dest;
  f->udp->dest = server->port;
  f->udp->check = 0; /* none: allowed in IPv4 */
  if (server->mac[0] | server->mac[1] | server->mac[2] | server->mac[3] | server->mac[4] |
      server->mac[5]) {
    __builtin_memcpy(f->eth->h_source, f->eth->h_dest, ETH_ALEN);
    __builtin_memcpy(f->eth->h_dest, server->mac, ETH_ALEN);
    return XDP_TX;
  }
  struct bpf_fib_lookup way = {};
  way.family = AF_INET_FAMILY;
  way.ipv4_src = f->ip->saddr;
  way.ipv4_dst = f->ip->daddr;
  way.tot_len = bpf_ntohs(f->ip->tot_len);
  way.ifindex = context->ingress_ifindex;
  if (bpf_fib_lookup(context, &way, sizeof(way), 0) != BPF_FIB_LKUP_RET_SUCCESS) return XDP_DROP;
  __builtin_memcpy(f->eth->h_source, way.smac, ETH_ALEN);
  __builtin_memcpy(f->eth->h_dest, way.dmac, ETH_ALEN);
  return way.ifindex == context->ingress_ifindex ? XDP_TX : bpf_redirect(way.ifindex, 0);
}

/* Which of the ends; -1: none. */
static __always_inline int place_of(const struct atp_xdp_end* ends, __u32 count, __u32 ip,
                                    __u16 port) {
  for (__u32 i = 0; i < ATP_XDP_ENDS; ++i) {
    if (i >= count) break;
    if (ends[i].ip == ip && ends[i].port == port) return (int)i;
  }
  return -1;
}

/* Ours is what is for a data socket, IPv4 without options, not a fragment, small and unsealed. */
static __always_inline int is_ours(const struct frame* f, const struct atp_xdp_config* about) {
  if (f->eth->h_proto != bpf_htons(ETH_P_IP) || f->ip->ihl != 5 || f->ip->protocol != IPPROTO_UDP) {
    return 0;
  }
  if ((f->ip->frag_off & bpf_htons(0x3fff)) != 0 || f->ip->daddr != about->ip) return 0;
  const __u16 shard = (__u16)(bpf_ntohs(f->udp->dest) - about->first_port);
  if (shard >= about->shards || !header_holds(f->atp)) return 0;
  if ((f->atp->flags & FLAG_KEYED) != 0 || f->atp->elements > ATP_XDP_ELEMENTS) return 0;
  const __u16 size = sizeof(struct udphdr) + sizeof(struct atp_header) + 4 * f->atp->elements;
  return bpf_ntohs(f->udp->len) == size;
}

SEC("xdp")
int atp_switch(struct xdp_md* context) {
  void* const data = (void*)(long)context->data;
  void* const end = (void*)(long)context->data_end;
  if (data + VALUES_PLACE > end) return XDP_PASS;
  const struct frame at = {data, data + IP_PLACE, data + UDP_PLACE, data + ATP_PLACE};
  const struct frame* const f = &at;
  const __u32 zero = 0;
  const struct atp_xdp_config* about = bpf_map_lookup_elem(&config, &zero);
  if (!about || about->slots == 0 || !is_ours(f, about)) return XDP_PASS;
  struct atp_header* h = f->atp;
  __s32* values = data + VALUES_PLACE;
  if ((void*)values + 4 * (__u64)h->elements > end) return XDP_PASS;
  const __u32 id = h->job;
  const struct atp_xdp_job* job = bpf_map_lookup_elem(&jobs, &id);
  if (!job) return XDP_PASS; /* which counts it */
  const int up = h->kind == KIND_GRADIENT;
  const int member = up ? place_of(job->workers, job->worker_count, f->ip->saddr, f->udp->source)
                        : place_of(job->servers, job->server_count, f->ip->saddr, f->udp->source);
  if (member < 0) return XDP_PASS;
  if (!up) return on_parameter(h, job, about);
  const __u32 bytes = (__u32)sizeof(struct atp_header) + 4 * (__u32)h->elements;
  struct atp_xdp_counters* of = bpf_map_lookup_elem(&counters, &id);
  if (!of) return XDP_PASS;
  add_traffic(&of->from_workers[member & (ATP_XDP_ENDS - 1)], bytes);
  if ((f->ip->tos & 3) == 3) h->flags |= FLAG_CONGESTED;

  const int first = h->level == FIRST_LEVEL;
  const int here =
      first ? (job->groups & bit(h->group)) != 0 : h->level == SECOND_LEVEL && job->second_level;
  struct verdict verdict;
  if (!here) {
    verdict = (struct verdict){NOT_HERE, 1, 0};
  } else if (h->flags & FLAG_COLLISION) {
    verdict = pass_on(h, FLAGGED);
  } else if ((first ? h->fan_in : h->group_count) == 1) {
    verdict = pass_on(h, ALONE);
  } else {
    const __u8 place = first ? h->group : SECOND_LEVEL_PLACE;
    struct atp_xdp_slot* slot = slot_of(job, about->slots, h->sequence, place);
    if (!slot) return XDP_PASS;
    const __u64 now = bpf_ktime_get_ns();
    const __u64 lifetime = about->lifetime_ns;
    const __u32 window = job->window;
    bpf_spin_lock(&slot->lock);
    verdict = decide(slot, h, values, end, place, window, now, lifetime);
    bpf_spin_unlock(&slot->lock);
  }
  count(of, h->sequence, job->server_count, bytes, verdict);
  return verdict.emit ? send_on(context, f, job) : XDP_DROP;
}

char atp_license[] SEC("license") = "Dual MIT/GPL";
