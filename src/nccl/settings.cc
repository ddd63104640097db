#include "nccl/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "base/number.h"
#include "nccl/greeting.h"

namespace thalweg::nccl {
namespace {

constexpr int kDefaultStreams = 4;
constexpr int kMaxThreads = 16;
constexpr int kMostDefaultThreads = 4;
// NCCL's own thread, which never sleeps, and the program's, which waits for the GPU.
constexpr int kBusyThreads = 2;
constexpr int kCoresOfRank = 5;  // where nothing says how many ranks the host has
constexpr int kDefaultInline = 16 << 10;
constexpr int kMaxInline = 16 << 20;
constexpr int kDefaultPiece = 128 << 10;
constexpr int kLeastPiece = 4 << 10;
constexpr int kMaxPiece = 1 << 20;
constexpr int kDefaultTimeoutS = 300;
constexpr int kMaxTimeoutS = 24 * 3600;
// A thread that sleeps costs tens of microseconds to wake. Spinning pays where every thread has a
// core.
constexpr Duration kSpin = Duration::microseconds(50);
constexpr int kUnknownSpeedMbps = 10'000;  // what NCCL takes

class SettingsReader {
 public:
  explicit SettingsReader(const net::EnvironmentLookup& lookup) : lookup_(lookup) {}

  Result<Settings> read();

 private:
  [[nodiscard]] std::string text(const std::string& name) const {
    return lookup_(name).value_or("");
  }
  [[nodiscard]] Result<int> number(const std::string& name, int otherwise, int low, int high) const;
  // Cores of this host for each of its ranks, as far as a launcher says how many there are.
  [[nodiscard]] Result<int> cores_of_rank() const;
  [[nodiscard]] Result<std::vector<net::Interface>> chosen() const;

  const net::EnvironmentLookup& lookup_;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

std::string pci_path_of(const std::string& interface) {
  char path[PATH_MAX];
  const std::string link = fmt::format("/sys/class/net/{}/device", interface);
  return realpath(link.c_str(), path) == nullptr ? "" : path;
}

Device device_of(const net::Interface& interface) {
  constexpr std::int64_t kMega = 1'000'000;
  const std::int64_t mbps = net::interface_bps(interface.address) / kMega;
  return {.name = interface.name,
          .address = interface.address,
          .pci_path = pci_path_of(interface.name),
          .speed_mbps = mbps > 0 ? static_cast<int>(std::min<std::int64_t>(mbps, INT_MAX))
                                 : kUnknownSpeedMbps};
}

Result<int> SettingsReader::number(const std::string& name, int otherwise, int low,
                                   int high) const {
  const std::string given = text(name);
  if (given.empty()) return otherwise;
  const std::optional<int> value = number_in<int>(given);
  if (!value || *value < low || *value > high) {
    return Error(
        fmt::format("{}={}: must be a whole number from {} to {}", name, given, low, high));
  }
  return *value;
}

Result<int> SettingsReader::cores_of_rank() const {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (const char* name : {"THALWEG_LOCAL_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "MPI_LOCALNRANKS"}) {
    THALWEG_TRY(const int ranks, number(name, 0, 1, net::kMaxJobSize));
    if (ranks > 0) return cores / ranks;
  }
  return std::min(cores, kCoresOfRank);
}

Result<std::vector<net::Interface>> SettingsReader::chosen() const {
  THALWEG_TRY(const std::vector<net::Interface> all, net::interfaces());
  const std::vector<std::string> named = split(text("THALWEG_INTERFACE"));
  if (named.size() > net::kMaxInterfaces) {
    return Error(fmt::format("THALWEG_INTERFACE: {} interfaces; at most {} are allowed",
                             named.size(), net::kMaxInterfaces));
  }
  if (!named.empty()) {
    THALWEG_TRY(const net::SocketAddress v4, net::SocketAddress::numeric("127.0.0.1:0"));
    THALWEG_TRY(const auto addresses, net::rank_addresses(named, v4));
    std::vector<net::Interface> interfaces;
    for (std::size_t i = 0; i < named.size(); ++i) {
      const auto owner = std::ranges::find(all, addresses[i], &net::Interface::address);
      interfaces.push_back({owner == all.end() ? named[i] : owner->name, addresses[i]});
    }
    return interfaces;
  }
  const std::string family = text("NCCL_SOCKET_FAMILY");
  if (!family.empty() && family != "AF_INET" && family != "AF_INET6") {
    return Error(fmt::format("NCCL_SOCKET_FAMILY={}: must be AF_INET or AF_INET6", family));
  }
  const std::string rule = text("NCCL_SOCKET_IFNAME");
  auto found = interfaces_by_rule(all, rule,
                                  family == "AF_INET"    ? AF_INET
                                  : family == "AF_INET6" ? AF_INET6
                                                         : 0);
  if (found.empty()) {
    return Error(fmt::format("no network interface with an address{}",
                             rule.empty() ? "" : " is meant by NCCL_SOCKET_IFNAME=" + rule));
  }
  return found;
}

Result<Settings> SettingsReader::read() {
  Settings settings;
  THALWEG_TRY(const int cores, cores_of_rank());
  const int few = std::clamp(cores - 1, 1, kMostDefaultThreads);
  THALWEG_TRY(settings.streams,
              number("THALWEG_STREAMS", kDefaultStreams, 1, static_cast<int>(kMaxStreams)));
  THALWEG_TRY(settings.threads, number("THALWEG_NCCL_THREADS", few, 0, kMaxThreads));
  THALWEG_TRY(const int inlined, number("THALWEG_NCCL_INLINE", kDefaultInline, 0, kMaxInline));
  settings.inline_bytes = static_cast<std::size_t>(inlined);
  THALWEG_TRY(const int piece, number("THALWEG_NCCL_PIECE", kDefaultPiece, kLeastPiece, kMaxPiece));
  settings.piece_bytes = static_cast<std::size_t>(piece);
  THALWEG_TRY(const int seconds, number("THALWEG_NCCL_TIMEOUT", kDefaultTimeoutS, 1, kMaxTimeoutS));
  settings.timeout = Duration::milliseconds(std::int64_t{1000} * seconds);
  const bool room = cores >= settings.threads + kBusyThreads;
  settings.spin = room ? kSpin : Duration();
  THALWEG_TRY(settings.key, net::job_key_from(lookup_));
  THALWEG_TRY(const std::vector<net::Interface> interfaces, chosen());
  for (const net::Interface& interface : interfaces) {
    settings.devices.push_back(device_of(interface));
  }
  return settings;
}

bool matches(const std::string& name, const std::vector<std::string>& wanted, bool whole) {
  return std::ranges::any_of(wanted, [&](const std::string& text) {
    return whole ? name == text : name.starts_with(text);
  });
}

}  // namespace

std::vector<net::Interface> interfaces_by_rule(const std::vector<net::Interface>& all,
                                               const std::string& rule, int family) {
  std::string_view rest = rule;
  const auto skip = [&rest](char sign) {
    const bool there = rest.starts_with(sign);
    if (there) rest.remove_prefix(1);
    return there;
  };
  const bool except = skip('^');
  const bool whole = skip('=');
  const std::vector<std::string> wanted = split(std::string(rest));
  const auto is_loopback = [](const net::Interface& one) { return one.address.loopback(); };
  const auto is_docker = [](const net::Interface& one) { return one.name.starts_with("docker"); };
  std::vector<net::Interface> best;
  // Without a rule: cards, then docker's bridges, then loopback.
  for (int kind = wanted.empty() ? 0 : 3; kind <= 3 && best.empty(); ++kind) {
    for (const net::Interface& one : all) {
      if (family != 0 && one.address.family() != family) continue;
      const bool meant = !wanted.empty() ? matches(one.name, wanted, whole) != except
                         : kind == 0     ? !is_loopback(one) && !is_docker(one)
                         : kind == 1     ? is_docker(one)
                                         : true;
      if (!meant) continue;
      const auto same = std::ranges::find(best, one.name, &net::Interface::name);
      if (same == best.end()) {
        if (best.size() < net::kMaxInterfaces) best.push_back(one);
      } else if (one.address.family() == AF_INET && same->address.family() != AF_INET) {
        *same = one;
      }
    }
  }
  return best;
}

Result<CollSettings> coll_settings_from(const net::EnvironmentLookup& lookup) {
  CollSettings settings;
  Result<std::vector<net::ListedSwitch>> switches =
      net::read_switch_list(lookup("THALWEG_SWITCH").value_or(""));
  if (!switches.ok()) return switches.error().within("THALWEG_SWITCH");
  settings.switches = std::move(*switches);
  return settings;
}

Result<Settings> settings_from(const net::EnvironmentLookup& lookup) {
  return SettingsReader(lookup).read();
}

}  // namespace thalweg::nccl
