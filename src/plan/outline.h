// An Outline: what a scheme sends in which round, without the plan itself. The plan of a ring of
// 4,096 ranks has 33 million transfers; its outline is one round of 4,096 flows, repeated.
//
// predict.h turns it into a time. A scheme without an outline is predicted from its plan.
#pragma once

#include <optional>
#include <vector>

#include "plan/plan.h"
#include "plan/verify.h"
#include "topology/loads.h"

namespace thalweg::plan {

struct OutlineFlow {
  Rank from;
  Rank to;
  double bytes = 0;
};

// Each of `from` sends to each other of `to` the product of their weights, in bytes.
struct OutlineExchange {
  std::vector<topology::HostWeight> from;
  std::vector<topology::HostWeight> to;
};

// What may be under way at the same time.
struct OutlineRound {
  std::vector<OutlineFlow> flows = {};
  std::vector<OutlineExchange> exchanges = {};
  int repeat = 1;  // this round comes so many times, one after the other
  std::optional<double> drift = std::nullopt;  // instead of the outline's

  [[nodiscard]] bool empty() const { return flows.empty() && exchanges.empty(); }
};

struct Outline {
  std::vector<OutlineRound> rounds = {};  // in order; each needs what the one before it brought
  double chunk = 0;  // bytes of the largest chunk: what a round passes on as one
  // How many chunks travel through the same rounds one after the other, so that rounds overlap.
  double units = 1;
  // A round that starts early takes half of the link from the one before it, which others still
  // wait for. Which part of that is lost: nothing if all rounds use the same connections or one
  // round's hosts are done at the same time, all of it if a rank receives from another than it
  // sends to, half of it if hosts swap or exchange, 0.4 of it in a tree, where few hosts have
  // several connections, and 0.3 of it where rings follow rings. These parts come from the packet
  // simulator.
  double drift = 0;

  [[nodiscard]] int steps() const;
};

// The same rounds backwards, with senders and receivers swapped: a broadcast from a reduce.
std::vector<OutlineRound> reversed(const std::vector<OutlineRound>& rounds);

// The outline of any plan: one round for every step of its proof.
Outline outline_of(const Plan& plan, const PlanProof& proof);

}  // namespace thalweg::plan
