#include "run.h"

#include <fmt/core.h>
#include <ns3/boolean.h>
#include <ns3/config.h>
#include <ns3/double.h>
#include <ns3/inet-socket-address.h>
#include <ns3/rtt-estimator.h>
#include <ns3/simulator.h>
#include <ns3/tcp-congestion-ops.h>
#include <ns3/tcp-l4-protocol.h>
#include <ns3/tcp-recovery-ops.h>
#include <ns3/uinteger.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>

#include "base/check.h"

namespace thalweg {
namespace {

constexpr std::uint16_t kFirstPort = 10'000;
// Handshakes are spread out, so that none is lost to the others; then the network falls silent.
constexpr Duration kBetweenHandshakes = Duration::microseconds(20);
constexpr Duration kSilence = Duration::milliseconds(1'000);

ns3::Time to_ns3(Duration duration) {
  return ns3::PicoSeconds(static_cast<std::uint64_t>(duration.ps()));
}
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
Duration now_in_ns3() { return Duration::picoseconds(ns3::Simulator::Now().GetPicoSeconds()); }

void set_defaults(const PeerOptions& options, std::int64_t largest_flow) {
  const auto set = [](const char* name, const ns3::AttributeValue& value) {
    ns3::Config::SetDefault(name, value);
  };
  // A buffer holds the largest flow: neither end's memory ever bounds the window.
  const ns3::UintegerValue buffer(static_cast<std::uint64_t>(largest_flow) + (1 << 20));
  set("ns3::TcpSocket::SndBufSize", buffer);
  set("ns3::TcpSocket::RcvBufSize", buffer);
  set("ns3::TcpSocket::SegmentSize", ns3::UintegerValue(options.mss));
  set("ns3::TcpSocket::InitialCwnd", ns3::UintegerValue(options.initial_window));
  set("ns3::TcpSocket::DelAckCount", ns3::UintegerValue(options.ack_every));
  set("ns3::TcpSocket::DelAckTimeout", ns3::TimeValue(ns3::MilliSeconds(1)));
  set("ns3::TcpSocket::TcpNoDelay", ns3::BooleanValue(true));
  set("ns3::TcpSocket::DataRetries", ns3::UintegerValue(1'000'000));
  set("ns3::TcpSocketBase::MinRto", ns3::TimeValue(to_ns3(options.rto_min)));
  set("ns3::TcpSocketBase::ClockGranularity", ns3::TimeValue(ns3::MicroSeconds(1)));
  set("ns3::TcpSocketBase::Sack", ns3::BooleanValue(false));
  set("ns3::TcpSocketBase::Timestamp", ns3::BooleanValue(options.timestamps));
  set("ns3::TcpSocketBase::LimitedTransmit", ns3::BooleanValue(options.limited_transmit));
  set("ns3::TcpDctcp::DctcpShiftG", ns3::DoubleValue(options.dctcp_g));
}

ns3::Ptr<ns3::TcpCongestionOps> make_control(const PeerOptions& options) {
  if (options.transport == PeerTransport::kNewReno) {
    const auto control = ns3::CreateObject<PeerNewReno>();
    control->set_mended(options.mended);
    return control;
  }
  const auto control = ns3::CreateObject<PeerDctcp>();
  control->set_mended(options.mended);
  return control;
}

ns3::Ptr<PeerSocket> make_socket(ns3::Ptr<ns3::Node> node, const PeerOptions& options) {
  const auto tcp = node->GetObject<ns3::TcpL4Protocol>();
  const auto socket = ns3::CreateObject<PeerSocket>();
  socket->SetNode(node);
  socket->SetTcp(tcp);
  socket->SetRtt(ns3::CreateObject<ns3::RttMeanDeviation>());
  socket->SetCongestionControlAlgorithm(make_control(options));
  // Without SACK, what RFC 6582 says. ns-3's default, PRR, is made for SACK.
  socket->SetRecoveryAlgorithm(ns3::CreateObject<ns3::TcpClassicRecovery>());
  socket->set_mended(options.mended);
  tcp->AddSocket(socket);
  return socket;
}

// The two ends of one flow.
class Connection {
 public:
  Connection(const PeerFlow& flow, const Fabric& fabric, const PeerOptions& options,
             std::uint16_t port)
      : flow_(flow), peer_(path_address(flow.target, flow.path), port) {
    listener_ = make_socket(fabric.host(flow.target), options);
    CHECK(listener_->Bind(peer_) == 0, "the port is taken");
    CHECK(listener_->Listen() == 0);
    listener_->SetAcceptCallback(
        ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
        ns3::MakeCallback(&Connection::on_accept, this));
    sender_ = make_socket(fabric.host(flow.source), options);
    CHECK(sender_->Bind() == 0, "no local port");
  }

  void connect() { CHECK(sender_->Connect(peer_) == 0, "no route"); }
  void start() {
    started_ = now_in_ns3();
    sender_->reset_counters();
    const auto data = ns3::Create<ns3::Packet>(static_cast<std::uint32_t>(flow_.bytes));
    const int taken = sender_->Send(data, 0);
    CHECK(taken == flow_.bytes, "the send buffer is too small");
  }

  [[nodiscard]] bool established() const { return sender_->established() && receiver_; }
  [[nodiscard]] bool done() const { return received_ == flow_.bytes; }
  [[nodiscard]] Duration ended() const { return ended_; }
  [[nodiscard]] PeerFlowResult result() const {
    PeerFlowResult result{.completion_time = std::nullopt, .counters = sender_->counters()};
    if (done()) result.completion_time = ended_ - started_;
    return result;
  }

 private:
  // ns-3 fixes the signatures of callbacks.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  void on_accept(ns3::Ptr<ns3::Socket> socket, const ns3::Address&) {
    receiver_ = socket;
    receiver_->SetRecvCallback(ns3::MakeCallback(&Connection::on_data, this));
  }
  void on_data(ns3::Ptr<ns3::Socket> socket) {
    while (const auto packet = socket->Recv()) received_ += packet->GetSize();
    if (done()) ended_ = now_in_ns3();
  }

  const PeerFlow& flow_;
  ns3::InetSocketAddress peer_;
  ns3::Ptr<PeerSocket> listener_;
  ns3::Ptr<PeerSocket> sender_;
  ns3::Ptr<ns3::Socket> receiver_;
  std::int64_t received_ = 0;
  Duration started_;
  Duration ended_;
};

class Run {
 public:
  Run(const std::vector<PeerFlow>& flows, const PeerOptions& options, Fabric& fabric)
      : options_(options), fabric_(fabric) {
    std::uint16_t port = kFirstPort;
    for (const PeerFlow& flow : flows) {
      connections_.push_back(std::make_unique<Connection>(flow, fabric, options, port++));
    }
    zero_ = kBetweenHandshakes * static_cast<std::int64_t>(flows.size()) + kSilence;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      Connection* connection = connections_[f].get();
      ns3::Simulator::Schedule(to_ns3(kBetweenHandshakes * static_cast<std::int64_t>(f)),
                               &Connection::connect, connection);
      ns3::Simulator::Schedule(to_ns3(zero_ + flows[f].start), &Connection::start, connection);
    }
    ns3::Simulator::Schedule(to_ns3(zero_ - Duration::nanoseconds(1)), &Run::begin, this);
    if (options.until > Duration()) ns3::Simulator::Stop(to_ns3(zero_ + options.until));
  }

  Result<PeerResult> run() {
    ns3::Simulator::Run();
    if (!all_established_) return Error("ns-3: a connection was not open when the flows started");
    result_.wall_s = std::chrono::duration<double>(Clock::now() - began_).count();
    result_.cpu_s = cpu_seconds() - cpu_began_;
    for (const auto& connection : connections_) {
      const Duration end = connection->done() ? connection->ended() : now_in_ns3();
      result_.simulated = std::max(result_.simulated, end - zero_);
    }
    result_.events = ns3::Simulator::GetEventCount() - result_.events;
    result_.fabric = fabric_.counters();
    if (result_.queue_samples > 0) {
      result_.mean_queue /= static_cast<double>(result_.queue_samples);
    }
    for (const auto& connection : connections_) result_.flows.push_back(connection->result());
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Just before time 0 of the flows.
  void begin() {
    all_established_ = std::ranges::all_of(connections_, &Connection::established,
                                           [](const auto& c) -> const Connection& { return *c; });
    if (!all_established_) return ns3::Simulator::Stop();
    fabric_.reset_counters();
    result_.events = ns3::Simulator::GetEventCount();
    if (options_.sample_period > Duration()) sample();
    began_ = Clock::now();
    cpu_began_ = cpu_seconds();
  }

  void sample() {
    const std::uint32_t longest = fabric_.longest_queue();
    if (longest > 0) {
      result_.mean_queue += longest;
      result_.max_queue = std::max(result_.max_queue, longest);
      ++result_.queue_samples;
    }
    const auto running = [](const auto& connection) { return !connection->done(); };
    if (std::ranges::any_of(connections_, running)) {
      ns3::Simulator::Schedule(to_ns3(options_.sample_period), &Run::sample, this);
    }
  }

  const PeerOptions& options_;
  Fabric& fabric_;
  std::vector<std::unique_ptr<Connection>> connections_;
  Duration zero_;
  bool all_established_ = false;
  Clock::time_point began_;
  double cpu_began_ = 0;
  PeerResult result_;
};

}  // namespace

Result<PeerResult> run_peer(const topology::Topology& topology, const std::vector<PeerFlow>& flows,
                            const PeerOptions& options) {
  ns3::Time::SetResolution(ns3::Time::PS);
  std::int64_t largest = 0;
  int path_count = 1;
  for (const PeerFlow& flow : flows) {
    largest = std::max(largest, flow.bytes);
    path_count = std::max(path_count, flow.path + 1);
  }
  set_defaults(options, largest);
  Fabric fabric(topology, options, path_count);
  Result<PeerResult> result = Run(flows, options, fabric).run();
  ns3::Simulator::Destroy();
  return result;
}

}  // namespace thalweg
