#include "path_routing.h"

#include <ns3/net-device.h>
#include <ns3/packet.h>

#include "base/check.h"

namespace thalweg {
namespace {

constexpr std::uint32_t kNetwork = 0x0a000000;  // 10.0.0.0

Rank host_of(ns3::Ipv4Address address) {
  return Rank(static_cast<std::int32_t>(address.Get() & 0xffff) - 1);
}
int path_of(ns3::Ipv4Address address) { return static_cast<int>(address.Get() >> 16 & 0xff); }

}  // namespace

NS_OBJECT_ENSURE_REGISTERED(PathRouting);

ns3::Ipv4Address path_address(Rank host, int path) {
  return ns3::Ipv4Address(kNetwork | static_cast<std::uint32_t>(path) << 16 |
                          static_cast<std::uint32_t>(host.value() + 1));
}

ns3::TypeId PathRouting::GetTypeId() {
  static ns3::TypeId id = ns3::TypeId("thalweg::PathRouting")
                              .SetParent<ns3::Ipv4RoutingProtocol>()
                              .AddConstructor<PathRouting>();
  return id;
}

void PathRouting::set_host(Rank own, int host_count, int path_count) {
  own_ = own;
  host_count_ = host_count;
  routes_.resize(static_cast<std::size_t>(host_count) * static_cast<std::size_t>(path_count));
}

void PathRouting::set_next(Rank target, int path, const ns3::Ptr<ns3::NetDevice>& device) {
  const auto route = ns3::Create<ns3::Ipv4Route>();
  route->SetDestination(path_address(target, path));
  // ns-3 insists on a gateway; a point-to-point device does not look at it.
  route->SetGateway(path_address(target, path));
  if (own_.valid()) route->SetSource(path_address(own_, path));
  route->SetOutputDevice(device);
  routes_[static_cast<std::size_t>(path * host_count_) + target.index()] = route;
}

ns3::Ptr<ns3::Ipv4Route> PathRouting::find(ns3::Ipv4Address target) const {
  CHECK(host_of(target).valid() && host_of(target).value() < host_count_, "not one of our hosts");
  return routes_.at(static_cast<std::size_t>(path_of(target) * host_count_) +
                    host_of(target).index());
}

ns3::Ptr<ns3::Ipv4Route> PathRouting::RouteOutput(ns3::Ptr<ns3::Packet>,
                                                  const ns3::Ipv4Header& header,
                                                  ns3::Ptr<ns3::NetDevice>,
                                                  ns3::Socket::SocketErrno& error) {
  error = ns3::Socket::ERROR_NOTERROR;
  return find(header.GetDestination());
}

bool PathRouting::RouteInput(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header,
                             ns3::Ptr<const ns3::NetDevice> device, UnicastForwardCallback forward,
                             MulticastForwardCallback, LocalDeliverCallback deliver,
                             ErrorCallback) {
  if (own_.valid() && host_of(header.GetDestination()) == own_) {
    deliver(packet, header, static_cast<std::uint32_t>(ipv4_->GetInterfaceForDevice(device)));
  } else {
    forward(find(header.GetDestination()), packet, header);
  }
  return true;
}

}  // namespace thalweg
