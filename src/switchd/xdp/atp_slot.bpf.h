/* What the kernel's program decides about one slot: the states and causes of
 * switch/aggregation/aggregate.h, in C, for packets of up to 64 elements. */
#pragma once

#include "atp_maps.h"

#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>

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

/* The header of wire/atp_packet.h. Packets are little-endian, and so is this program. */
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
  __s8 needed_exponent;
  __u16 elements;
  __u64 check;
  __u32 header_check;
  /* The elements follow here, where the compiler may see padding. */
};
enum { HEADER_SIZE = 44 };
_Static_assert(__builtin_offsetof(struct atp_header, check) == 32, "as on the wire");
_Static_assert(__builtin_offsetof(struct atp_header, header_check) == HEADER_SIZE - 4,
               "as on the wire");

/* Pointers to the headers of a packet. */
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
  VALUES_PLACE = ATP_PLACE + HEADER_SIZE,
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
  __uint(max_entries, 1); /* the loader sets the number */
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
  __u8 emit;    /* the packet goes on with its rewritten header */
  __u8 partial; /* the packet carries a sum that lacks contributions */
};

static __always_inline __u32 all_of(__u32 count) { return count >= 32 ? ~0U : (1U << count) - 1; }
/* The kernel has no instruction that counts bits. */
static __always_inline __u32 count_of(__u32 members) {
  members -= members >> 1 & 0x55555555;
  members = (members & 0x33333333) + (members >> 2 & 0x33333333);
  members = (members + (members >> 4)) & 0x0f0f0f0f;
  return members * 0x01010101 >> 24;
}
/* atp_whole() of wire/atp_packet.h */
static __always_inline int whole(__u32 members, __u32 fan_in) {
  return count_of(members) == fan_in;
}
static __always_inline __u32 bit(__u32 i) { return 1U << (i & 31); }

static __always_inline struct atp_xdp_slot* slot_of(const struct atp_xdp_job* job, __u32 count,
                                                    __u64 sequence, __u8 place) {
  const __u32 which = place == SECOND_LEVEL_PLACE ? ATP_XDP_ENDS : place & (ATP_XDP_ENDS - 1);
  const __u32 index = (__u32)((job->starts[which] + sequence) % count);
  return bpf_map_lookup_elem(&slots, &index);
}

/* The header check of wire/atp_packet.cc, with the same weights. */
typedef __u32 __attribute__((may_alias)) header_word;
static __always_inline __u32 header_check(const struct atp_header* h) {
  const header_word* words = (const header_word*)h;
  __u64 sum = 0;
  sum += words[0] * 0xe220a8397b1dcdafULL;
  sum += words[1] * 0x6e789e6aa1b965f5ULL;
  sum += words[2] * 0x06c45d188009454fULL;
  sum += words[3] * 0xf88bb8a8724c81edULL;
  sum += words[4] * 0x1b39896a51a8749bULL;
  sum += words[5] * 0x53cb9f0c747ea2ebULL;
  sum += words[6] * 0x2c829abe1f4532e1ULL;
  sum += words[7] * 0xc584133ac916ab3dULL;
  sum += words[8] * 0x3ee5789041c98ac3ULL;
  sum += words[9] * 0xf3b8488c368cb0a7ULL;
  return (__u32)(sum >> 32);
}

/* check_atp_header() for gradient and parameter packets. */
static __always_inline int header_holds(const struct atp_header* h) {
  if (h->version != ATP_WIRE_VERSION || (h->flags & ~31) != 0) return 0;
  if (h->fan_in < 1 || h->fan_in > 32 || h->group_count < 1 || h->group_count > 32) return 0;
  if (h->group >= h->group_count || h->elements == 0) return 0;
  if ((h->workers & ~all_of(h->fan_in + 1U)) != 0 || count_of(h->workers) > h->fan_in) return 0;
  if ((h->groups & ~all_of(h->group_count)) != 0) return 0;
  if (h->workers == 0 ? h->groups == 0 : (h->groups & bit(h->group)) != 0) return 0;
  const __u8 passing = h->flags & (FLAG_RESEND | FLAG_COLLISION);
  if (h->kind == KIND_PARAMETER) return h->level == 0 && passing == 0;
  if (h->kind != KIND_GRADIENT || h->level > 2) return 0;
  if (h->level == FIRST_LEVEL) return h->groups == 0;
  return passing != 0 || h->workers == 0;
}

/* Adds the packet's elements to the slot's, saturating. Returns whether any element saturated. */
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

/* These two copy elements from a packet to a slot and back. */
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

/* The packet goes on with its own elements; the collision flag keeps it from being aggregated
 * further up. */
static __always_inline struct verdict pass_on(struct atp_header* h, enum cause cause) {
  if (h->level == FIRST_LEVEL && whole(h->workers, h->fan_in)) {
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
  slot->check += h->check;
  if (h->next_exponent > slot->next_exponent) slot->next_exponent = h->next_exponent;
  if (h->needed_exponent > slot->needed_exponent) slot->needed_exponent = h->needed_exponent;
}

/* Turns the packet into that of the slot's sum, for the next level. */
static __always_inline void become_sum(const struct atp_xdp_slot* slot, struct atp_header* h,
                                       __s32* values, const void* end) {
  ++h->level;
  if (slot->congested) h->flags |= FLAG_CONGESTED;
  h->flags = (h->flags & ~FLAG_SATURATED) | (slot->saturated ? FLAG_SATURATED : 0);
  h->check = slot->check;
  h->next_exponent = slot->next_exponent;
  h->needed_exponent = slot->needed_exponent;
  if (slot->place == SECOND_LEVEL_PLACE) {
    h->groups = slot->members;
    h->workers = 0;
  } else if (whole(slot->members, slot->fan_in)) {
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
  slot->needed_exponent = h->needed_exponent;
  slot->congested = (h->flags & FLAG_CONGESTED) != 0;
  slot->saturated = (h->flags & FLAG_SATURATED) != 0;
  slot->check = h->check;
  store_values(slot, values, h->elements, end);
  if (!whole(slot->members, slot->fan_in)) return (struct verdict){STORED, 0, 0};
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
  if (!whole(slot->members, slot->fan_in)) return (struct verdict){ADDED, 0, 0};
  become_sum(slot, h, values, end);
  return (struct verdict){COMPLETED, 1, 0};
}

/* Steps 7 to 10 of figure 4. */
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
  const int some = !whole(slot->members, slot->fan_in);
  become_sum(slot, h, values, end);
  if (second) h->workers = partly;
  slot->members = 0;
  return (struct verdict){FLUSHED, 1, (__u8)some};
}

/* Requires that the slot's lock is held. */
static __always_inline struct verdict decide(struct atp_xdp_slot* slot, struct atp_header* h,
                                             __s32* values, const void* end, __u8 place,
                                             __u32 window, __u64 now, __u64 lifetime) {
  const int ours = slot->members != 0 && slot->sequence == h->sequence && slot->job == h->job &&
                   slot->place == place;
  if (ours) {
    const __u8 fan_in = place == SECOND_LEVEL_PLACE ? h->group_count : h->fan_in;
    const __u32 members = place == SECOND_LEVEL_PLACE ? h->groups : h->workers;
    if (slot->fan_in != fan_in || slot->elements != h->elements || slot->exponent != h->exponent ||
        count_of(slot->members | members) > fan_in) {
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
