#include "net/dlcp/host_grants.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "net/dlcp/dlcp_peer.h"
#include "net/io/address.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

// A packet with its headers, where the options do not say that it is larger.
constexpr std::int64_t kUsualPacket = 1500;
constexpr std::int64_t kHeaders = 106;
// A grant covers what the line carries in this time, within these numbers of packets. Fewer cost
// more signals; more than one system call sends bring nothing.
constexpr Duration kGrantTime = Duration::microseconds(100);
constexpr std::uint32_t kLeastQuantum = 4;
constexpr std::uint32_t kMostQuantum = 32;
// From an arrival to the data that its grant releases the network's round trip passes, and two
// threads are woken; meanwhile so many grants are on the line.
constexpr Duration kWaking = Duration::microseconds(100);
constexpr int kGrantsUnderway = 4;
// So many transfers share what is in flight: more would all end late, and fewer would leave the
// link idle where one of their senders waits for a core.
constexpr std::uint32_t kParallel = 2;
// After so long a sender of which nothing comes gives up its places.
constexpr Duration kSilent = Duration::milliseconds(10);
constexpr Duration kUnmeasured = Duration::microseconds(100);
constexpr Duration kMeasureEvery = Duration::milliseconds(1000);

// The rate of the interface that has this host's address; 0 if that is not known.
std::int64_t bps_at(const std::string& address) {
  const Result<SocketAddress> local = SocketAddress::numeric(address);
  return local.ok() ? interface_bps(*local) : 0;
}

Result<Bandwidth> line_rate_of(const EndpointOptions& options) {
  if (options.line_rate_gbps > 0) {
    return Bandwidth::bits_per_second(static_cast<std::int64_t>(options.line_rate_gbps * 1e9));
  }
  std::int64_t bps = options.listen.empty() ? 0 : bps_at(options.listen);
  if (bps == 0 && !options.connect_from.empty()) {
    bps = bps_at(HostPort{options.connect_from, 0}.to_string());
  }
  if (bps > 0) return Bandwidth::bits_per_second(bps);
  return Error(
      fmt::format("grants: the rate of this host's link is not known (listen: '{}', connect_from: "
                  "'{}'): set line_rate_gbps",
                  options.listen, options.connect_from));
}

// What the scheduler takes for the round trip, for one of the network.
Duration loop_time(Duration round_trip, Duration underway) {
  return round_trip + kWaking + underway;
}

}  // namespace

Result<std::shared_ptr<HostGrants>> HostGrants::make(const EndpointOptions& options) {
  proto::GrantOptions grants;
  THALWEG_TRY(grants.line_rate, line_rate_of(options));
  const std::int64_t packet = std::max(kUsualPacket, options.packet_payload + kHeaders);
  const double packets =
      grants.line_rate.bytes_per_second() * kGrantTime.s() / static_cast<double>(packet);
  grants.quantum =
      static_cast<std::uint32_t>(std::clamp<double>(packets, kLeastQuantum, kMostQuantum));
  const Duration underway =
      grants.line_rate.transmission_time(Bytes(packet * grants.quantum * kGrantsUnderway));
  const bool given = options.grants_round_trip.count() > 0;
  grants.round_trip = loop_time(
      given ? Duration::nanoseconds(options.grants_round_trip.count()) : kUnmeasured, underway);
  grants.parallel = kParallel;
  grants.stall = kSilent;
  grants.seed = random_number();
  return std::shared_ptr<HostGrants>(new HostGrants(grants, underway, !given));
}

bool HostGrants::give(const Peers& peers, Time now) {
  measure(peers, now);
  scheduler_.on_timeout(now);
  due_.clear();
  for (proto::GrantScheduler::Grant grant; scheduler_.poll(grant);) {
    // A later grant of a transfer says all that an earlier one does.
    if (!due_.empty() && due_.back().peer == grant.peer && due_.back().transfer == grant.transfer) {
      due_.back() = grant;
    } else {
      due_.push_back(grant);
    }
  }
  for (std::span<const proto::GrantScheduler::Grant> left = due_; !left.empty();) {
    const std::uint32_t number = left.front().peer;
    const auto other = std::ranges::find_if(
        left, [&](const proto::GrantScheduler::Grant& grant) { return grant.peer != number; });
    const auto count = static_cast<std::size_t>(other - left.begin());
    const auto peer = std::ranges::find(peers, number, &DlcpPeer::number);
    CHECK(peer != peers.end());
    (*peer)->send_grants(left.first(count));
    left = left.subspan(count);
  }
  return !due_.empty();
}

void HostGrants::sort(Peers& peers) {
  std::vector<std::pair<std::optional<proto::SendKey>, std::size_t>> order;
  for (std::size_t i = 0; i < peers.size(); ++i) order.emplace_back(peers[i]->next_key(), i);
  const auto first = [](const auto& a, const auto& b) {
    if (!a.first || !b.first) return a.first.has_value() && !b.first.has_value();
    return *a.first < *b.first;
  };
  if (std::ranges::is_sorted(order, first)) return;
  std::ranges::stable_sort(order, first);
  Peers sorted;
  for (const auto& [key, index] : order) sorted.push_back(std::move(peers[index]));
  peers = std::move(sorted);
}

void HostGrants::measure(const Peers& peers, Time now) {
  if (!measures_ || (peers.size() == measured_ && now < measure_at_)) return;
  measured_ = peers.size();
  measure_at_ = now + kMeasureEvery;
  Duration longest;
  for (const auto& peer : peers) longest = std::max(longest, peer->round_trip());
  if (longest > Duration()) scheduler_.set_round_trip(loop_time(longest, underway_));
}

}  // namespace thalweg::net
