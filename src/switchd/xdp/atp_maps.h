/* What the XDP data plane (atp_switch.bpf.c) and its loader (xdp_plane.cc) share: the maps' values.
 * C and C++; addresses and ports as in packets. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

enum {
  ATP_WIRE_VERSION = 1,  /* kWireVersion */
  ATP_XDP_ELEMENTS = 64, /* of a slot: larger packets are left to the process */
  ATP_XDP_ENDS = 32,
  ATP_XDP_CAUSES = 21, /* AggregateAction::Cause, in its order */
};

struct atp_xdp_end {
  __u32 ip;
  __u16 port;
  __u8 mac[6]; /* zeros: looked up for every packet */
};

struct atp_xdp_config {
  __u32 slots;
  __u32 ip;
  __u16 first_port; /* host order: of the first shard */
  __u16 shards;
  __u64 lifetime_ns;
};

struct atp_xdp_job {
  __u32 groups;
  __u32 second_level;
  __u32 window;
  __u32 worker_count;
  __u32 server_count;
  __u32 starts[ATP_XDP_ENDS +
               1]; /* slots where each group's sequences begin, then the second level's */
  struct atp_xdp_end workers[ATP_XDP_ENDS];
  struct atp_xdp_end servers[ATP_XDP_ENDS];
};

struct atp_xdp_slot {
  struct bpf_spin_lock lock;
  __u32 members; /* 0: free */
  __u64 sequence;
  __u64 touched;
  __u32 job;
  __u16 elements;
  __u8 place;
  __u8 fan_in;
  __s8 exponent;
  __s8 next_exponent;
  __u8 congested;
  __u8 saturated;
  __s32 values[ATP_XDP_ELEMENTS];
};

struct atp_xdp_traffic {
  __u64 packets;
  __u64 bytes; /* of UDP's payload */
};

/* Of a job, on one processor. */
struct atp_xdp_counters {
  __u64 packets[ATP_XDP_CAUSES];
  __u64 partial_sums;
  struct atp_xdp_traffic from_workers[ATP_XDP_ENDS];
  struct atp_xdp_traffic to_servers[ATP_XDP_ENDS];
};
