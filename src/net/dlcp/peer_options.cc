#include "net/dlcp/peer_options.h"

#include <algorithm>

#include "net/io/system.h"
#include "net/io/tcp.h"
#include "proto/dlcp/grants.h"

namespace thalweg::net {
namespace {

// Used if neither the options nor the interface give a line rate.
constexpr Bandwidth kUnknownRate = Bandwidth::gbps(100);
constexpr double kUnknownRateFactor = 1.5;
constexpr double kUnknownRateStep = 0.1;
constexpr Duration kBurst = Duration::microseconds(250);
constexpr std::int64_t kLeastBurst = 8;
// A report covers at least this many bursts. With fewer, a receiver that was busy would look like a
// congested path; and at half the rate every burst would end in a silence, which no report spans,
// so the rate would never rise again.
constexpr int kBurstsPerReport = 4;
constexpr double kPathGrowth = 1.3;
// Bytes that Ethernet adds: header, checksum, preamble and gap.
constexpr std::size_t kFrameBytes = 38;
// A sender that waits for a grant asks after at least so long, and after the time of so many
// packets: what it sent may wait in a queue of the network, and the receiver's thread for a core.
constexpr Duration kAskAfter = Duration::milliseconds(5);
constexpr std::int64_t kAskAfterPackets = 64;

Duration duration_of(std::chrono::nanoseconds time) { return Duration::nanoseconds(time.count()); }

}  // namespace

proto::DlcpOptions dlcp_options(const DlcpPeer::Parts& parts, const EndpointOptions& options) {
  proto::DlcpOptions dlcp;
  dlcp.peer = parts.name;
  const SocketAddress local = SocketAddress::local_of(parts.udp.front().fd());
  const std::int64_t known = options.line_rate_gbps > 0
                                 ? static_cast<std::int64_t>(options.line_rate_gbps * 1e9)
                                 : interface_bps(local);
  dlcp.rate.line_rate = known > 0 ? Bandwidth::bits_per_second(known) : kUnknownRate;
  if (known == 0) {
    dlcp.rate.learn_capacity = true;
    dlcp.rate.congestion_factor = kUnknownRateFactor;
    dlcp.rate.increase_step = kUnknownRateStep;
  }
  dlcp.grace.initial = duration_of(options.grace.initial);
  dlcp.grace.least = duration_of(options.grace.least);
  dlcp.grace.most = duration_of(options.grace.most);
  const std::size_t overhead = wire::data_overhead(parts.guard != nullptr);
  dlcp.packet_overhead =
      Bytes(static_cast<std::int64_t>(kFrameBytes + parts.udp.front().header_bytes() + overhead));
  const std::int64_t packet = std::int64_t{parts.payload} + dlcp.packet_overhead.count();
  const auto by_rate = static_cast<std::int64_t>(dlcp.rate.line_rate.bytes_per_second() *
                                                 kBurst.s() / static_cast<double>(packet));
  // Where nothing says that the line is fast, paths are dealt small batches, so that short tensors
  // use them all.
  const bool small = parts.udp.size() > 1 && known == 0;
  const std::int64_t most = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(UdpSocket::kMaxMessage / (parts.payload + overhead)), 1,
      small ? kLeastBurst : static_cast<std::int64_t>(UdpSocket::kMaxPackets));
  dlcp.burst_segments =
      static_cast<std::uint32_t>(std::clamp(by_rate, std::min(kLeastBurst, most), most));
  // Paths are dealt whole batches, so what one was given differs from its share by up to two of
  // them. Among so many packets that is less than what may be chance (PathShares).
  // Since they are judged less often then, their weights grow by more each time.
  if (parts.udp.size() > 1) {
    dlcp.paths.least_packets = dlcp.burst_segments * dlcp.burst_segments;
    dlcp.paths.growth = kPathGrowth;
  }
  const Duration queue = dlcp.rate.line_rate.transmission_time(Bytes(packet * kAskAfterPackets));
  dlcp.want.after = std::min(std::max(kAskAfter, queue), dlcp.want.most);
  if (options.grants) {
    dlcp.order = proto::GrantOptions().order;
    dlcp.order_seed = random_number();
  }
  const Duration reported =
      dlcp.rate.line_rate.transmission_time(Bytes(packet * dlcp.burst_segments * kBurstsPerReport));
  if (reported > dlcp.rate.report_period) {
    // Keeps the increase per second the same, with steps of at most a quarter of the line rate.
    const double longer = reported.s() / dlcp.rate.report_period.s();
    dlcp.rate.increase_step = std::min(0.25, dlcp.rate.increase_step * longer);
    dlcp.rate.report_period = reported;
  }
  return dlcp;
}

}  // namespace thalweg::net
