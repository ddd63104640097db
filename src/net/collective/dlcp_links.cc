#include "net/collective/dlcp_links.h"

#include <fmt/format.h>

#include <charconv>

#include "net/system.h"

namespace thalweg {
namespace {

constexpr std::string_view kRankName = "rank ";

std::string name_of_rank(int rank) { return fmt::format("{}{}", kRankName, rank); }

// The rank in a peer's name, "rank 3 (10.0.0.1:7000)".
std::optional<int> rank_in(std::string_view name) {
  if (!name.starts_with(kRankName)) return std::nullopt;
  name.remove_prefix(kRankName.size());
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  return error == std::errc() ? std::optional(rank) : std::nullopt;
}

std::chrono::nanoseconds left_until(Time until) {
  return std::chrono::nanoseconds(std::max<std::int64_t>(0, (until - monotonic_now()).ps() / 1000));
}

}  // namespace

Result<std::vector<Peer>> DlcpLinks::connect(const std::vector<int>& ranks, Time until) {
  const std::lock_guard lock(mutex_);
  THALWEG_TRY_STATUS(listen(until));
  std::vector<Peer> peers;
  for (const int rank : ranks) {
    auto known = peers_.find(rank);
    if (known == peers_.end()) {
      THALWEG_TRY(Peer peer,
                  rank < options_.rank ? connect_to(rank, until) : wait_for(rank, until));
      known = peers_.emplace(rank, std::move(peer)).first;
    }
    peers.push_back(known->second);
  }
  return peers;
}

Status DlcpLinks::listen(Time until) {
  if (endpoint_) return ok_status();
  EndpointOptions options = options_.endpoint;
  options.name = name_of_rank(options_.rank);
  THALWEG_TRY(endpoint_, Endpoint::create(options));
  return options_.publish(endpoint_->address(), until);
}

Result<Peer> DlcpLinks::connect_to(int rank, Time until) {
  THALWEG_TRY(const std::string address, options_.find(rank, until));
  Result<Peer> peer = endpoint_->connect(address, left_until(until));
  if (!peer.ok()) return peer.error().within(name_of_rank(rank));
  return peer;
}

Result<Peer> DlcpLinks::wait_for(int rank, Time until) {
  while (true) {
    Result<Peer> peer = endpoint_->accept(left_until(until));
    if (!peer.ok()) {
      return Error(fmt::format("rank {} did not connect for DLCP in time", rank));
    }
    const std::optional<int> who = rank_in(peer->name());
    if (!who) continue;
    if (*who == rank) return peer;
    peers_.emplace(*who, std::move(*peer));
  }
}

NetCounters DlcpLinks::counters() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && endpoint_) last_ = endpoint_->counters();
  return last_;
}

}  // namespace thalweg
