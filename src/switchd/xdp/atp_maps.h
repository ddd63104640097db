/* The values of the maps that the XDP data plane (atp_switch.bpf.c) and its loader (xdp_plane.cc)
 * share. Compiles as C and as C++. Addresses and ports are in network order, unless noted. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

enum {
  ATP_WIRE_VERSION = 6,  /* kAtpVersion */
  ATP_XDP_ELEMENTS = 64, /* of a slot; packets with more elements are left to the process */
  ATP_XDP_ENDS = 32,     /* the most workers, and the most servers, of a job */
  ATP_XDP_CAUSES = 21,   /* kAggregateCauseCount; in the order of AggregateAction::Cause */
};

/* A worker or server. */
struct atp_xdp_end {
  __u32 ip;
  __u16 port;
  __u8 mac[6]; /* zeros: the route is looked up for every packet */
};

struct atp_xdp_config {
  __u32 slots;
  __u32 ip;
  __u16 first_port; /* of the first shard, in host order */
  __u16 shards;
  __u64 lifetime_ns;
};

struct atp_xdp_job {
  __u32 groups;
  __u32 second_level;
  __u32 window;
  __u32 worker_count;
  __u32 server_count;
  /* The slot of sequence 0 at the first level of each group, then at the second level. */
  __u32 starts[ATP_XDP_ENDS + 1];
  struct atp_xdp_end workers[ATP_XDP_ENDS];
  struct atp_xdp_end servers[ATP_XDP_ENDS];
};

struct atp_xdp_slot {
  struct bpf_spin_lock lock;
  __u32 members; /* 0: free */
  __u64 sequence;
  __u64 touched; /* when a packet last used the slot, in ns */
  __u64 check;
  __u32 job;
  __u16 elements;
  __u8 place;
  __u8 fan_in;
  __s8 exponent;
  __s8 next_exponent;
  __s8 needed_exponent;
  __u8 congested;
  __u8 saturated;
  __s32 values[ATP_XDP_ELEMENTS];
};

struct atp_xdp_traffic {
  __u64 packets;
  __u64 bytes; /* of UDP payload */
};

/* The counters of a job on one processor. */
struct atp_xdp_counters {
  __u64 packets[ATP_XDP_CAUSES];
  __u64 partial_sums;
  struct atp_xdp_traffic from_workers[ATP_XDP_ENDS];
  struct atp_xdp_traffic to_servers[ATP_XDP_ENDS];
};
