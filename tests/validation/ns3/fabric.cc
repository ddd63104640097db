#include "fabric.h"

#include <fmt/core.h>
#include <ns3/boolean.h>
#include <ns3/data-rate.h>
#include <ns3/double.h>
#include <ns3/drop-tail-queue.h>
#include <ns3/internet-stack-helper.h>
#include <ns3/ipv4-routing-helper.h>
#include <ns3/net-device-queue-interface.h>
#include <ns3/point-to-point-channel.h>
#include <ns3/queue-size.h>
#include <ns3/traffic-control-helper.h>
#include <ns3/traffic-control-layer.h>
#include <ns3/uinteger.h>

#include <deque>

namespace thalweg {
namespace {

// A host's NIC never drops: TCP's own window bounds what waits there.
constexpr const char* kHostQueue = "10000000p";

class PathRoutingHelper : public ns3::Ipv4RoutingHelper {
 public:
  [[nodiscard]] PathRoutingHelper* Copy() const override { return new PathRoutingHelper(*this); }
  [[nodiscard]] ns3::Ptr<ns3::Ipv4RoutingProtocol> Create(ns3::Ptr<ns3::Node>) const override {
    return ns3::CreateObject<PathRouting>();
  }
};

// Links from every node to `target`; hosts do not forward.
std::vector<int> distances_to(const topology::Topology& topology, topology::NodeId target) {
  std::vector<int> distance(topology.nodes().size(), -1);
  std::deque<topology::NodeId> open{target};
  distance[target.index()] = 0;
  while (!open.empty()) {
    const topology::NodeId at = open.front();
    open.pop_front();
    if (at != target && topology.node(at).kind == topology::NodeKind::kHost) continue;
    for (const topology::ArcId arc : topology.arcs_from(at)) {
      const topology::NodeId next = topology.arc(arc).to;
      if (distance[next.index()] >= 0) continue;
      distance[next.index()] = distance[at.index()] + 1;
      open.push_back(next);
    }
  }
  return distance;
}

constexpr std::int64_t kPppBytes = 2;

std::int64_t full_packet(QueueLength unit, const PeerOptions& options) {
  return unit.in_bytes ? options.mss + options.header_bytes() : 1;
}

// What is left for a queue disc when one full packet waits in the device behind it.
QueueLength behind_device(QueueLength port, const PeerOptions& options) {
  const std::int64_t left = port.count - full_packet(port, options);
  return {.count = std::max<std::int64_t>(left, 1), .in_bytes = port.in_bytes};
}

// A device counts PPP's bytes, the option does not: room for as many full packets.
QueueLength with_ppp(QueueLength port, const PeerOptions& options) {
  if (port.in_bytes) port.count += kPppBytes * (port.count / full_packet(port, options));
  return port;
}

}  // namespace

Fabric::Fabric(const topology::Topology& topology, const PeerOptions& options, int path_count)
    : topology_(topology), options_(options), path_count_(path_count) {
  add_nodes();
  add_links();
  add_routes();
}

void Fabric::add_nodes() {
  ns3::InternetStackHelper stack;
  stack.SetRoutingHelper(PathRoutingHelper());
  stack.SetIpv6StackInstall(false);
  for (std::size_t n = 0; n < topology_.nodes().size(); ++n) {
    const auto node = ns3::CreateObject<ns3::Node>();
    stack.Install(node);
    const auto routing =
        ns3::DynamicCast<PathRouting>(node->GetObject<ns3::Ipv4>()->GetRoutingProtocol());
    routing->set_host(topology_.rank_of(topology::NodeId(static_cast<std::int32_t>(n))),
                      topology_.host_count(), path_count_);
    nodes_.push_back(node);
    routing_.push_back(routing);
  }
}

void Fabric::add_links() {
  for (std::size_t l = 0; l < topology_.links().size(); ++l) {
    const topology::Arc there = topology_.arc(topology::ArcId(static_cast<std::int32_t>(2 * l)));
    const topology::Arc back = topology_.arc(topology::ArcId(static_cast<std::int32_t>(2 * l + 1)));
    const auto channel = ns3::CreateObject<ns3::PointToPointChannel>();
    channel->SetAttribute(
        "Delay",
        ns3::TimeValue(ns3::PicoSeconds(static_cast<std::uint64_t>(there.spec.delay.ps()))));
    for (const topology::Arc& arc : {there, back}) {
      Port port = make_port(arc);
      port.device->Attach(channel);
      add_interface(port, arc.from);
      ports_.push_back(std::move(port));
    }
  }
}

Fabric::Port Fabric::make_port(const topology::Arc& arc) {
  Port port;
  port.of_switch = topology_.node(arc.from).kind == topology::NodeKind::kSwitch;
  const bool marks = port.of_switch && options_.transport != PeerTransport::kNewReno;
  port.device = ns3::CreateObject<ns3::PointToPointNetDevice>();
  port.device->SetAddress(ns3::Mac48Address::Allocate());
  port.device->SetDataRate(ns3::DataRate(static_cast<std::uint64_t>(arc.spec.rate.bps())));
  port.device->SetMtu(static_cast<std::uint16_t>(options_.mss + options_.header_bytes()));
  port.device->TraceConnectWithoutContext("PhyTxEnd",
                                          ns3::MakeCallback(&Fabric::on_transmitted, this));
  nodes_[arc.from.index()]->AddDevice(port.device);

  const auto queue = ns3::CreateObject<ns3::DropTailQueue<ns3::Packet>>();
  const std::string limit = marks            ? "1p"
                            : port.of_switch ? to_string(with_ppp(options_.buffer, options_))
                                             : std::string(kHostQueue);
  queue->SetMaxSize(ns3::QueueSize(limit));
  port.device->SetQueue(queue);
  if (marks) {
    const auto flow_control = ns3::CreateObject<ns3::NetDeviceQueueInterface>();
    flow_control->GetTxQueue(0)->ConnectQueueTraces(queue);
    port.device->AggregateObject(flow_control);
    add_disc(port, arc);
  }
  return port;
}

// With MinTh = MaxTh, the average equal to the instantaneous length (QW = 1) and neither Gentle nor
// UseHardDrop, every ECN-capable arrival that finds MinTh or more in the disc is marked, and none
// else. One above K makes that "more than K", which is how our switch counts.
void Fabric::add_disc(Port& port, const topology::Arc& arc) {
  const QueueLength limit = behind_device(options_.buffer, options_);
  const auto threshold = static_cast<double>(behind_device(options_.mark, options_).count + 1);
  ns3::TrafficControlHelper helper;
  helper.SetRootQueueDisc(
      "ns3::RedQueueDisc", "MaxSize", ns3::QueueSizeValue(ns3::QueueSize(to_string(limit))),
      "MinTh", ns3::DoubleValue(threshold), "MaxTh", ns3::DoubleValue(threshold), "QW",
      ns3::DoubleValue(1), "Gentle", ns3::BooleanValue(false), "UseEcn", ns3::BooleanValue(true),
      "UseHardDrop", ns3::BooleanValue(false), "MeanPktSize",
      ns3::UintegerValue(options_.mss + options_.header_bytes()), "LinkBandwidth",
      ns3::DataRateValue(ns3::DataRate(static_cast<std::uint64_t>(arc.spec.rate.bps()))),
      "LinkDelay",
      ns3::TimeValue(ns3::PicoSeconds(static_cast<std::uint64_t>(arc.spec.delay.ps()))));
  port.disc = helper.Install(port.device).Get(0);
}

void Fabric::add_interface(const Port& port, topology::NodeId node) {
  const auto ipv4 = nodes_[node.index()]->GetObject<ns3::Ipv4>();
  const std::uint32_t interface = ipv4->AddInterface(port.device);
  const Rank rank = topology_.rank_of(node);
  for (int path = 0; rank.valid() && path < path_count_; ++path) {
    ipv4->AddAddress(interface, ns3::Ipv4InterfaceAddress(path_address(rank, path),
                                                          ns3::Ipv4Mask("255.255.255.255")));
  }
  ipv4->SetUp(interface);
}

void Fabric::add_routes() {
  for (std::int32_t h = 0; h < topology_.host_count(); ++h) {
    const std::vector<int> distance = distances_to(topology_, topology_.host(Rank(h)));
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      std::vector<topology::ArcId> nearer;
      for (const topology::ArcId arc :
           topology_.arcs_from(topology::NodeId(static_cast<std::int32_t>(n)))) {
        const int there = distance[topology_.arc(arc).to.index()];
        if (there >= 0 && there == distance[n] - 1) nearer.push_back(arc);
      }
      if (nearer.empty()) continue;
      for (int path = 0; path < path_count_; ++path) {
        const topology::ArcId arc = nearer[static_cast<std::size_t>(path) % nearer.size()];
        routing_[n]->set_next(Rank(h), path, ports_[arc.index()].device);
      }
    }
  }
}

ns3::Ptr<ns3::Node> Fabric::host(Rank rank) const { return nodes_[topology_.host(rank).index()]; }

void Fabric::on_transmitted(ns3::Ptr<const ns3::Packet> packet) {
  ++transmitted_.packet_hops;
  transmitted_.wire_bytes += packet->GetSize();
}

FabricCounters Fabric::totals() const {
  FabricCounters sum = transmitted_;
  for (const Port& port : ports_) {
    sum.drops += port.device->GetQueue()->GetTotalDroppedPackets();
    if (!port.disc) continue;
    sum.drops += port.disc->GetStats().nTotalDroppedPackets;
    sum.marks += port.disc->GetStats().nTotalMarkedPackets;
  }
  return sum;
}

void Fabric::reset_counters() { at_reset_ = totals(); }

FabricCounters Fabric::counters() const {
  const FabricCounters now = totals();
  return {.packet_hops = now.packet_hops - at_reset_.packet_hops,
          .wire_bytes = now.wire_bytes - at_reset_.wire_bytes,
          .drops = now.drops - at_reset_.drops,
          .marks = now.marks - at_reset_.marks};
}

std::uint32_t Fabric::longest_queue() const {
  std::uint32_t longest = 0;
  for (const Port& port : ports_) {
    if (!port.of_switch) continue;
    const std::uint32_t disc = port.disc ? port.disc->GetNPackets() : 0;
    longest = std::max(longest, disc + port.device->GetQueue()->GetNPackets());
  }
  return longest;
}

}  // namespace thalweg
