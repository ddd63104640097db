#include "net/bootstrap/interfaces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

#include "net/system.h"

namespace thalweg {
namespace {

struct Interfaces {
  std::vector<Interface> with_address;
  std::set<std::string> names;  // of all, up or down
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
    if (!all.names.contains(name)) {
      return Error(fmt::format("interface '{}' does not exist; there are: {}", name,
                               fmt::join(all.names, ", ")));
    }
    const SocketAddress* best = nullptr;
    for (const Interface& one : all.with_address) {
      if (one.name != name) continue;
      const bool same = one.address.family() == towards_store.unmapped().family();
      if (best == nullptr || (same && best->family() != one.address.family())) best = &one.address;
    }
    if (best == nullptr) {
      return Error(fmt::format("interface '{}' is down or has no IP address", name));
    }
    chosen.push_back(*best);
  }
  return chosen;
}

}  // namespace thalweg
