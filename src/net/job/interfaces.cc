#include "net/job/interfaces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <set>

#include "net/io/fd.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

struct Interfaces {
  std::vector<Interface> with_address;
  std::set<std::string> names;  // of all interfaces, up or down
};

bool usable(const ifaddrs& entry) {
  if ((entry.ifa_flags & IFF_UP) == 0 || entry.ifa_addr == nullptr) return false;
  if (entry.ifa_addr->sa_family == AF_INET) return true;
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  const in6_addr& host = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr;
  return !IN6_IS_ADDR_LINKLOCAL(&host);
}

Result<Interfaces> all_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return system_error("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  Interfaces all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    all.names.insert(entry->ifa_name);
    if (usable(*entry)) {
      all.with_address.push_back({entry->ifa_name, SocketAddress::from(*entry->ifa_addr)});
    }
  }
  return all;
}

std::string list_of(const Interfaces& all) {
  std::vector<std::string> texts;
  for (const std::string& name : all.names) {
    std::vector<std::string> hosts;
    for (const Interface& one : all.with_address) {
      if (one.name == name) hosts.push_back(one.address.host());
    }
    texts.push_back(hosts.empty() ? fmt::format("{} (no address)", name)
                                  : fmt::format("{} ({})", name, fmt::join(hosts, ", ")));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Parses a numeric address without a port; none if `text` is not one.
std::optional<SocketAddress> numeric_host(const std::string& text) {
  const Result<SocketAddress> address = SocketAddress::numeric(
      text.find(':') == std::string::npos ? text + ":0" : "[" + text + "]:0");
  return address.ok() ? std::optional(*address) : std::nullopt;
}

bool is_of_this_host(const SocketAddress& address) {
  const Fd fd(socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return fd.valid() && !address.wildcard() && bind(fd.get(), address.get(), address.size()) == 0;
}

// The address of the named interface, of `family` if it has one of that family.
Result<SocketAddress> address_of(const std::string& name, const Interfaces& all, int family) {
  if (const auto address = numeric_host(name); address && !all.names.contains(name)) {
    if (is_of_this_host(*address)) return address->unmapped();
    return Error(fmt::format("interface '{}' is no address of this host; there are: {}", name,
                             list_of(all)));
  }
  if (!all.names.contains(name)) {
    return Error(fmt::format("interface '{}' does not exist; there are: {}", name, list_of(all)));
  }
  const SocketAddress* best = nullptr;
  for (const Interface& one : all.with_address) {
    if (one.name != name) continue;
    const bool same = one.address.family() == family;
    if (best == nullptr || (same && best->family() != one.address.family())) best = &one.address;
  }
  if (best != nullptr) return *best;
  return Error(fmt::format("interface '{}' is down or has no IP address; there are: {}", name,
                           list_of(all)));
}

}  // namespace

Result<std::vector<Interface>> interfaces() {
  THALWEG_TRY(Interfaces all, all_interfaces());
  return std::move(all.with_address);
}

Result<std::vector<SocketAddress>> rank_addresses(const std::vector<std::string>& names,
                                                  const SocketAddress& towards_store) {
  if (names.empty()) {
    SocketAddress address = towards_store.unmapped();
    address.set_port(0);
    return std::vector{address};
  }
  THALWEG_TRY(const Interfaces all, all_interfaces());
  std::vector<SocketAddress> chosen;
  for (const std::string& name : names) {
    THALWEG_TRY(chosen.emplace_back(), address_of(name, all, towards_store.unmapped().family()));
    const SocketAddress& own = chosen.back();
    if (std::ranges::count(chosen, own) > 1) {
      return Error(
          fmt::format("interface '{}' is named twice: {} is its address; each once is "
                      "allowed",
                      name, own.host()));
    }
  }
  return chosen;
}

}  // namespace thalweg::net
