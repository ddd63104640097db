/* The aggregation stage of ATP in the kernel: does what switch/aggregation/aggregate.h does, for
 * packets of up to 64 elements without a seal. The unit tests compare the two packet by packet.
 *
 * Sums and packets that pass on leave by redirect to their server. Everything else goes up to the
 * process: parameter packets, which free their slots here and are sent to all workers there, larger
 * and sealed packets, and packets that are not for this switch. Each slot has a lock, under which
 * one packet at a time uses it. */
#include "atp_slot.bpf.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#define AF_INET_FAMILY 2

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

/* A parameter packet frees the slots of its sequence; the process counts it and sends it to the
 * workers. */
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

/* Sends the packet to the server of its sequence, through the device that leads there. */
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
  f->atp->header_check = header_check(f->atp);
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

/* The index of the end with this address; -1 if there is none. */
static __always_inline int place_of(const struct atp_xdp_end* ends, __u32 count, __u32 ip,
                                    __u16 port) {
  for (__u32 i = 0; i < ATP_XDP_ENDS; ++i) {
    if (i >= count) break;
    if (ends[i].ip == ip && ends[i].port == port) return (int)i;
  }
  return -1;
}

/* Whether this program handles the packet: it is for a data socket, IPv4 without options, not a
 * fragment, small and unsealed. */
static __always_inline int is_ours(const struct frame* f, const struct atp_xdp_config* about) {
  if (f->eth->h_proto != bpf_htons(ETH_P_IP) || f->ip->ihl != 5 || f->ip->protocol != IPPROTO_UDP) {
    return 0;
  }
  if ((f->ip->frag_off & bpf_htons(0x3fff)) != 0 || f->ip->daddr != about->ip) return 0;
  const __u16 shard = (__u16)(bpf_ntohs(f->udp->dest) - about->first_port);
  if (shard >= about->shards || !header_holds(f->atp)) return 0;
  if (f->atp->header_check != header_check(f->atp)) return 0; /* the process counts it */
  if ((f->atp->flags & FLAG_KEYED) != 0 || f->atp->elements > ATP_XDP_ELEMENTS) return 0;
  const __u16 size = sizeof(struct udphdr) + HEADER_SIZE + 4 * f->atp->elements;
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
  if (!job) return XDP_PASS; /* the process counts it */
  const int up = h->kind == KIND_GRADIENT;
  const int member = up ? place_of(job->workers, job->worker_count, f->ip->saddr, f->udp->source)
                        : place_of(job->servers, job->server_count, f->ip->saddr, f->udp->source);
  if (member < 0) return XDP_PASS;
  if (!up) return on_parameter(h, job, about);
  const __u32 bytes = HEADER_SIZE + 4 * (__u32)h->elements;
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
