// How long a scheme takes as packets over TCP, from its outline. cost.h has the fluid model, which
// knows only the bytes of the plan; this one adds what makes schemes of equal bytes differ. Every
// term is computed from the network and the outline:
//
//   headers     a packet carries `header` bytes beside its payload, and each is acknowledged by a
//               packet in the other direction, so both directions of a link are loaded at once
//   chunks      ranks pass on messages of at most `message` bytes. Rounds overlap only as far as
//               there are several messages: with p of them, the rounds take B + (R − B)/p, where B
//               is the time of the busiest arc over all rounds, and R the sum over the rounds of
//               each round's busiest arc
//   latency     a message that a connection sends alone leaves a gap until its last packet is
//   there:
//               each hop stores and forwards it. Other flows on the same arc fill the gap
//   incast      a sum is complete when the last of its messages is there. If f flows share an arc,
//               the next round waits on the mean for half of f messages
//   collisions  a flow stays on one of m equal paths. The fullest of m paths carries more than the
//               m-th part of k flows: all of it if k is 1
//   drift       see Outline::drift: a round that starts early takes half of the link from the one
//               before it, which others still wait for
//
// docs/measurements/2026-11-16-planner.md compares it with the packet simulator.
#pragma once

#include "plan/cost.h"
#include "plan/outline.h"
#include "topology/loads.h"

namespace thalweg::plan {

struct Prediction {
  Duration total;
  // The terms of `total`.
  Duration busiest;   // the busiest arc over all rounds, with headers, gaps and collisions
  Duration unfilled;  // (R − B)/p
  Duration latency;   // one message through all rounds
  Duration incast;
  Duration drift;
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
    double wave = 0;  // a message of every flow over the arc that takes longest for it
  };
  // `gaps`: whether nothing else is sent while a connection waits for its message to arrive.
  RoundTime time_of(const OutlineRound& round, double message, bool gaps);
  double latency_of(const OutlineRound& round, double message) const;

  const CostOptions options_;
  topology::ArcLoads loads_;
  std::vector<double> rates_;   // [arc], bytes per second
  std::vector<bool> at_host_;   // [arc]: whether it starts or ends at a host
  std::vector<double> totals_;  // [arc], seconds over all rounds so far
};

// How many of k flows the fullest of m paths carries on the mean, if each takes one at random.
[[nodiscard]] double fullest_path(double flows, double paths);

}  // namespace thalweg::plan
