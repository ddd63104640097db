// Static routes of one node, looked up by (path, host): what ns-3's own protocols cannot do, which
// know one route a destination or a random choice a packet.
//
// A host has one address for each path. The address that a connection was opened to thus says
// which of the equal paths its packets take, and the source address that goes with it takes the
// acknowledgements back the same way.
#pragma once

#include <ns3/ipv4-route.h>
#include <ns3/ipv4-routing-protocol.h>
#include <ns3/ipv4.h>

#include <cstdint>
#include <vector>

#include "base/units.h"

namespace thalweg {

// 10.path.x.y, where x.y counts the hosts from 1.
ns3::Ipv4Address path_address(Rank host, int path);

class PathRouting : public ns3::Ipv4RoutingProtocol {
 public:
  static ns3::TypeId GetTypeId();  // NOLINT(readability-identifier-naming)

  // `own`: the host that this node is; invalid for a switch.
  void set_host(Rank own, int host_count, int path_count);
  void set_next(Rank target, int path, const ns3::Ptr<ns3::NetDevice>& device);

  ns3::Ptr<ns3::Ipv4Route> RouteOutput(ns3::Ptr<ns3::Packet> packet, const ns3::Ipv4Header& header,
                                       ns3::Ptr<ns3::NetDevice> device,
                                       ns3::Socket::SocketErrno& error) override;
  bool RouteInput(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header,
                  ns3::Ptr<const ns3::NetDevice> device, UnicastForwardCallback forward,
                  MulticastForwardCallback multicast, LocalDeliverCallback deliver,
                  ErrorCallback fail) override;
  void NotifyInterfaceUp(std::uint32_t) override {}
  void NotifyInterfaceDown(std::uint32_t) override {}
  void NotifyAddAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
  void NotifyRemoveAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
  void SetIpv4(ns3::Ptr<ns3::Ipv4> ipv4) override { ipv4_ = ipv4; }
  void PrintRoutingTable(ns3::Ptr<ns3::OutputStreamWrapper>, ns3::Time::Unit) const override {}

 private:
  [[nodiscard]] ns3::Ptr<ns3::Ipv4Route> find(ns3::Ipv4Address target) const;

  ns3::Ptr<ns3::Ipv4> ipv4_;
  Rank own_;
  int host_count_ = 0;
  std::vector<ns3::Ptr<ns3::Ipv4Route>> routes_;  // [path · host_count_ + target]
};

}  // namespace thalweg
