// How long a scheme takes as packets over TCP, from its outline. cost.h has the fluid model, which
// knows only the bytes of the plan; this one adds what makes schemes of equal bytes differ. Every
// term is computed from the network and the outline:
//
//   headers     a packet carries `header` bytes beside its payload, and each is acknowledged by a
//               packet in the other direction, so both directions of a link are loaded at once
//   collisions  a flow stays on one of m equal paths. The fullest of m paths carries more than the
//               m-th part of k flows: all of it if k is 1. All ranks wait for the fullest path of
//               all groups of flows that choose
//   chunks      ranks pass on a packet when it arrives. With p packets a chunk, the rounds take
//               B + (R − B)/p, where B is the time of the busiest arc over all rounds, and R the
//               sum over the rounds of each round's busiest arc
//   latency     the first packet of a round is stored and forwarded by every switch. A rank that
//               repeats a round sends meanwhile what it has, and waits only for what is left.
//               Each repetition, and each further stream of a host in a round, costs a
//               `per_follow_up` of the processor
//   incast      a sum is complete when the last of its packets is there, and that one waited in
//               the queue of its host, behind those to other ranks, if the host has several flows
//   drift       see Outline::drift: a round that starts early takes half of the link from the one
//               before it, which others still wait for. Where an arc between switches decides, it
//               waits for hosts instead: for a quarter of the rounds that hosts decide
//
// docs/measurements/2026-11-19-planner.md compares it with the packet simulator.
#pragma once

#include "plan/cost.h"
#include "plan/outline.h"
#include "topology/loads.h"

namespace thalweg::plan {

struct Prediction {
  Duration total;
  // The terms of `total`.
  Duration busiest;   // B: the busiest arc over all rounds, with headers and collisions
  Duration unfilled;  // (R − B)/p
  Duration latency;   // one packet through all rounds
  Duration incast;
  Duration drift;
  // R − B: how much longer the rounds take if none overlaps another.
  Duration overlapped;
  topology::ArcId busiest_arc;  // invalid if nothing moves
  int steps = 0;
};

class Predictor {
 public:
  // The topology and the routing must outlive this object.
  Predictor(const topology::Topology& topology, const topology::Routing& routing,
            const CostOptions& options);

  [[nodiscard]] Prediction predict(const Outline& outline);

 private:
  struct RoundTime {
    double busiest = 0;   // of one repetition, in seconds
    double at_hosts = 0;  // the same over the arcs from and to hosts
    double latency = 0;
    // Whether the links of hosts decide it.
    [[nodiscard]] bool by_hosts() const { return at_hosts >= busiest; }
    double wave = 0;  // the longest that a packet waits in the queue of a host with several flows
  };
  RoundTime time_of(const OutlineRound& round, double chunk);
  double latency_of(const OutlineRound& round, double payload) const;
  double equal_choices(std::span<const topology::ArcLoad> loads) const;

  const CostOptions options_;
  topology::ArcLoads loads_;
  std::vector<double> rates_;     // [arc], bytes per second
  std::vector<bool> at_host_;     // [arc]: whether it starts or ends at a host
  std::vector<double> busy_;      // [arc], seconds in the last round
  std::vector<double> totals_;    // [arc], seconds over all rounds so far
  std::vector<double> by_hosts_;  // [arc], the same over the rounds that hosts' links decide
};

// How many of k flows the fullest of m paths carries on the mean, if each takes one at random. If
// several groups of k flows choose among m paths each, `of_paths` are the paths of all groups.
[[nodiscard]] double fullest_path(double flows, double paths, double of_paths = 0);

}  // namespace thalweg::plan
