// The grants of one endpoint (receiver grants, docs/protocol-dlcp.md): the scheduler that all its
// peers share, and what the driver does for it. It decides nothing: it tells the scheduler the
// round trip, and hands each grant to the peer that it is for.
//
// next_number() may be called from any thread, everything else only from the loop's. Peers own it
// together with the endpoint, because a Peer may outlive its Endpoint.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <thalweg/endpoint.h>

#include "base/units.h"
#include "proto/dlcp/grants.h"

namespace thalweg::net {

class DlcpPeer;

class HostGrants {
 public:
  using Peers = std::vector<std::shared_ptr<DlcpPeer>>;

  // Fails if the rate of the host's link is not known.
  static Result<std::shared_ptr<HostGrants>> make(const EndpointOptions& options);

  // A peer's name in the scheduler.
  [[nodiscard]] std::uint32_t next_number() { return numbers_++; }
  [[nodiscard]] proto::GrantScheduler& scheduler() { return scheduler_; }

  // Sends all grants that the scheduler has to give. Call it after anything that a peer's endpoint
  // was told. Returns whether there was one.
  bool give(const Peers& peers, Time now);
  // Puts the peers into the order in which they may send.
  static void sort(Peers& peers);

 private:
  HostGrants(const proto::GrantOptions& options, Duration underway, bool measures)
      : scheduler_(options), underway_(underway), measures_(measures) {}
  void measure(const Peers& peers, Time now);

  std::atomic<std::uint32_t> numbers_ = 0;
  proto::GrantScheduler scheduler_;
  Duration underway_;         // the time of the grants that are on the line
  bool measures_;             // the round trip; false: the options gave it
  std::size_t measured_ = 0;  // peers that the last measurement covered
  Time measure_at_;           // the next measurement
  std::vector<proto::GrantScheduler::Grant> due_;
};

}  // namespace thalweg::net
