#include "net/group/dlcp/dlcp_peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "net/dlcp/net_counters.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr std::string_view kRankName = "rank ";
constexpr std::string_view kInterfaceName = ", interface ";

// The name of an endpoint. `interfaces`: how many interfaces the rank has.
std::string name_of_rank(int rank, std::size_t interface = 0, std::size_t interfaces = 1) {
  std::string name = fmt::format("{}{}", kRankName, rank);
  if (interfaces > 1) name += fmt::format("{}{}", kInterfaceName, interface);
  return name;
}

// Reads a number at the front of `text` and removes it.
template <class T>
std::optional<T> take_number(std::string_view& text) {
  T number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

struct Name {
  int rank = 0;
  std::size_t interface = 0;
};
// Parses a peer's name, "rank 3, interface 1 (10.0.0.1:7000)".
std::optional<Name> read_name(std::string_view name) {
  if (!name.starts_with(kRankName)) return std::nullopt;
  name.remove_prefix(kRankName.size());
  const std::optional<int> rank = take_number<int>(name);
  if (!rank || !name.starts_with(kInterfaceName)) {
    return rank ? std::optional(Name{*rank, 0}) : std::nullopt;
  }
  name.remove_prefix(kInterfaceName.size());
  const auto interface = take_number<std::size_t>(name);
  return interface ? std::optional(Name{*rank, *interface}) : std::nullopt;
}

// Waits for other ranks are divided into tries, because the communicator may fail meanwhile.
constexpr Duration kConnectTry = Duration::milliseconds(250);
// One that ends while a greeting is on its way begins anew, so these tries are longer.
constexpr Duration kGreetTry = Duration::milliseconds(5000);

std::chrono::nanoseconds left_until(Time until) {
  return std::chrono::nanoseconds(std::max<std::int64_t>(0, (until - monotonic_now()).ps() / 1000));
}

}  // namespace

Result<std::vector<DlcpWays>> DlcpPeers::connect(const std::vector<int>& ranks, Time until) {
  const std::lock_guard lock(mutex_);
  THALWEG_TRY_STATUS(listen(until));
  std::vector<DlcpWays> all;
  for (const int rank : ranks) {
    auto known = ways_.find(rank);
    if (known == ways_.end()) {
      Result<DlcpWays> ways = ways_to(rank, until);
      if (!ways.ok()) {
        // That rank may only have given up because of another one.
        const std::optional<Error> broken = options_.broken();
        return broken.value_or(ways.error());
      }
      known = ways_.emplace(rank, std::move(*ways)).first;
    }
    all.push_back(known->second);
  }
  return all;
}

Result<DlcpWays> DlcpPeers::ways_to(int rank, Time until) {
  THALWEG_TRY(const StreamAddress theirs, find(rank, until));
  return rank < options_.rank ? connect_to(rank, theirs.host_ports, until)
                              : wait_for(rank, theirs.host_ports, until);
}

Result<StreamAddress> DlcpPeers::find(int rank, Time until) {
  while (true) {
    const Result<std::string> text =
        options_.find(rank, std::min(until, monotonic_now() + kConnectTry));
    if (text.ok()) return StreamAddress::parse(*text);
    if (text.error().code() != ErrorCode::kTimeout) return text.error();
    if (monotonic_now() >= until) return text.error().blaming(rank);
    if (const auto broken = options_.broken()) return *broken;
  }
}

Status DlcpPeers::listen(Time until) {
  if (!endpoints_.empty()) return ok_status();
  std::vector<Endpoint> endpoints;
  std::vector<std::string> places;
  const std::size_t count = options_.addresses.size();
  for (std::size_t i = 0; i < count; ++i) {
    EndpointOptions options = options_.endpoint;
    options.name = name_of_rank(options_.rank, i, count);
    options.listen = options_.addresses[i].to_string();
    if (count > 1) options.connect_from = options_.addresses[i].host();
    THALWEG_TRY(Endpoint endpoint, Endpoint::create(options));
    places.push_back(endpoint.address());
    endpoints.push_back(std::move(endpoint));
  }
  THALWEG_TRY_STATUS(options_.publish(fmt::format("{}", fmt::join(places, ",")), until));
  endpoints_ = std::move(endpoints);
  return ok_status();
}

Result<DlcpWays> DlcpPeers::connect_to(int rank, const std::vector<std::string>& theirs,
                                       Time until) {
  DlcpWays ways;
  for (std::size_t way = 0; way < std::max(theirs.size(), endpoints_.size()); ++way) {
    THALWEG_TRY(Peer peer, reach(rank, endpoints_[way % endpoints_.size()],
                                 theirs[way % theirs.size()], until));
    ways.push_back(std::move(peer));
  }
  return ways;
}

// The rank listened before it published its address: one that refuses for a whole try is gone.
Result<Peer> DlcpPeers::reach(int rank, const Endpoint& from, const std::string& address,
                              Time until) const {
  while (true) {
    const Time limit = std::min(until, monotonic_now() + kGreetTry);
    Result<Peer> peer = from.connect(address, left_until(limit));
    if (peer.ok()) return peer;
    const bool late = peer.error().code() == ErrorCode::kTimeout;
    if (!late || monotonic_now() >= until) {
      return peer.error().within(name_of_rank(rank)).blaming(rank);
    }
    if (const auto broken = options_.broken()) return *broken;
  }
}

Result<DlcpWays> DlcpPeers::wait_for(int rank, const std::vector<std::string>& theirs, Time until) {
  std::vector<std::tuple<int, std::size_t, std::size_t>> all;
  for (std::size_t way = 0; way < std::max(theirs.size(), endpoints_.size()); ++way) {
    const std::size_t own = way % endpoints_.size();
    const std::tuple wanted(rank, way % theirs.size(), own);
    all.push_back(wanted);
    while (!newcomers_.contains(wanted)) {
      const Time limit = std::min(until, monotonic_now() + kConnectTry);
      Result<Peer> peer = endpoints_[own].accept(left_until(limit));
      if (!peer.ok()) {
        if (const auto broken = options_.broken()) return *broken;
        if (monotonic_now() < until) continue;
        return Error(ErrorCode::kTimeout,
                     fmt::format("rank {} did not connect for DLCP in time", rank), rank);
      }
      const std::optional<Name> who = read_name(peer->name());
      // If the same peer connected before, its rank has given up that connection.
      if (who) newcomers_.insert_or_assign({who->rank, who->interface, own}, std::move(*peer));
    }
  }
  // Takes them only when all are there, because a later call needs all of them as well.
  DlcpWays ways;
  for (const auto& wanted : all) ways.push_back(newcomers_.extract(wanted).mapped());
  return ways;
}

NetCounters DlcpPeers::counters() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return last_;
  last_ = {};
  for (const Endpoint& endpoint : endpoints_) add(last_, endpoint.counters());
  return last_;
}

}  // namespace thalweg::net
