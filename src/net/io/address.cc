#include "net/io/address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <span>

#include "base/check.h"
#include "base/number.h"

namespace thalweg::net {
namespace {

Error bad_address(const std::string& text) {
  return Error(fmt::format(
      "'{}' is no address: write host:port or [IPv6]:port, with a port from 0 to 65535", text));
}

const in_addr& v4_host(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr;
}
const in6_addr& v6_host(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr;
}

using SystemInterfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;
// The interfaces of this host; null if the system does not tell.
SystemInterfaces interface_list() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) list = nullptr;
  return {list, freeifaddrs};
}

// `listed`: an address that getifaddrs() gave. It may be null or of another kind than IP.
bool names_host(const sockaddr* listed, const SocketAddress& host) {
  return listed != nullptr && (listed->sa_family == AF_INET || listed->sa_family == AF_INET6) &&
         SocketAddress::from(*listed).same_host(host);
}

// The bytes of an IP address in network order.
std::span<const std::byte> host_bytes(const SocketAddress& address) {
  return address.family() == AF_INET ? std::as_bytes(std::span(&v4_host(address), 1))
                                     : std::as_bytes(std::span(&v6_host(address), 1));
}

// Whether two addresses of one family agree in the bits of the mask, as getifaddrs() gives it: some
// systems leave out its family.
bool same_network(const SocketAddress& a, const SocketAddress& b, const sockaddr& mask) {
  const std::span<const std::byte> mask_bytes =
      a.family() == AF_INET
          ? std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in&>(mask).sin_addr, 1))
          : std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6&>(mask).sin6_addr, 1));
  const std::span<const std::byte> first = host_bytes(a);
  const std::span<const std::byte> second = host_bytes(b);
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (((first[i] ^ second[i]) & mask_bytes[i]) != std::byte{0}) return false;
  }
  return true;
}

}  // namespace

Result<HostPort> HostPort::parse(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad_address(text);
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad_address(text);
  }
  const std::optional<std::uint16_t> number = number_in<std::uint16_t>(port);
  if (!number) return bad_address(text);
  return HostPort{std::move(host), *number};
}

std::string HostPort::to_string() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<SocketAddress> SocketAddress::resolve(const std::string& text) { return find(text, 0); }

Result<SocketAddress> SocketAddress::numeric(const std::string& text) {
  return find(text, AI_NUMERICHOST);
}

Result<SocketAddress> SocketAddress::find(const std::string& text, int flags) {
  THALWEG_TRY(const HostPort parsed, HostPort::parse(text));
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(parsed.host.c_str(), nullptr, &hints, &found);
  if (failure != 0 && flags == AI_NUMERICHOST) {
    return Error(fmt::format("'{}' is no number: an IPv4 or IPv6 address is allowed", parsed.host));
  }
  if (failure != 0) {
    return Error(fmt::format("no address of '{}': {}", parsed.host, gai_strerror(failure)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  SocketAddress address;
  std::memcpy(&address.storage_, found->ai_addr, found->ai_addrlen);
  address.size_ = found->ai_addrlen;
  address.set_port(parsed.port);
  return address;
}

SocketAddress SocketAddress::from(const sockaddr& address) {
  CHECK(address.sa_family == AF_INET || address.sa_family == AF_INET6);
  SocketAddress copy;
  copy.size_ = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&copy.storage_, &address, copy.size_);
  return copy;
}

SocketAddress SocketAddress::local_of(int fd) {
  SocketAddress address;
  address.size_ = sizeof(address.storage_);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage_), &address.size_);
  return address;
}

SocketAddress SocketAddress::remote_of(int fd) {
  SocketAddress address;
  address.size_ = sizeof(address.storage_);
  getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage_), &address.size_);
  return address;
}

std::uint16_t SocketAddress::port() const {
  // The port has the same offset in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

bool SocketAddress::loopback() const {
  const SocketAddress plain = unmapped();
  if (plain.family() == AF_INET) return ntohl(v4_host(plain).s_addr) >> 24 == 127;
  return plain.family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6_host(plain));
}

bool SocketAddress::wildcard() const {
  const SocketAddress plain = unmapped();
  if (plain.family() == AF_INET) return v4_host(plain).s_addr == INADDR_ANY;
  return plain.family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6_host(plain));
}

bool SocketAddress::multicast() const {
  const SocketAddress plain = unmapped();
  if (plain.family() == AF_INET) return IN_MULTICAST(ntohl(v4_host(plain).s_addr));
  return plain.family() == AF_INET6 && IN6_IS_ADDR_MULTICAST(&v6_host(plain));
}

bool SocketAddress::broadcast() const {
  const SocketAddress plain = unmapped();
  if (plain.family() != AF_INET) return false;
  if (v4_host(plain).s_addr == INADDR_BROADCAST) return true;
  const SystemInterfaces list = interface_list();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_BROADCAST) != 0 && names_host(entry->ifa_broadaddr, plain) &&
        !names_host(entry->ifa_addr, plain)) {
      return true;
    }
  }
  return false;
}

bool SocketAddress::same_host(const SocketAddress& other) const {
  const SocketAddress a = unmapped();
  const SocketAddress b = other.unmapped();
  if (a.family() != b.family()) return false;
  if (a.family() == AF_INET) return v4_host(a).s_addr == v4_host(b).s_addr;
  return a.family() == AF_INET6 && IN6_ARE_ADDR_EQUAL(&v6_host(a), &v6_host(b));
}

void SocketAddress::set_port(std::uint16_t port) {
  reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
}

SocketAddress SocketAddress::unmapped() const {
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
  if (family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return *this;
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage_);
  v4->sin_family = AF_INET;
  v4->sin_port = v6->sin6_port;
  std::memcpy(&v4->sin_addr, &v6->sin6_addr.s6_addr[12], sizeof(v4->sin_addr));
  address.size_ = sizeof(sockaddr_in);
  return address;
}

std::string SocketAddress::host() const {
  char host[NI_MAXHOST] = "?";
  getnameinfo(get(), size_, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

std::string SocketAddress::to_string() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", host(), port())
                              : fmt::format("{}:{}", host(), port());
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return size_ == other.size_ && std::memcmp(&storage_, &other.storage_, size_) == 0;
}

Result<std::vector<SocketAddress>> numeric_addresses(const std::vector<std::string>& texts) {
  std::vector<SocketAddress> addresses;
  for (const std::string& text : texts) {
    THALWEG_TRY(addresses.emplace_back(), SocketAddress::numeric(text));
  }
  return addresses;
}

bool reached_directly(const SocketAddress& address) {
  const SocketAddress plain = address.unmapped();
  if (plain.loopback()) return true;
  const SystemInterfaces list = interface_list();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const bool usable = entry->ifa_addr != nullptr && entry->ifa_netmask != nullptr &&
                        entry->ifa_addr->sa_family == plain.family();
    if (usable && same_network(plain, SocketAddress::from(*entry->ifa_addr), *entry->ifa_netmask)) {
      return true;
    }
  }
  return false;
}

std::vector<SocketAddress> interface_addresses() {
  std::vector<SocketAddress> addresses;
  const SystemInterfaces list = interface_list();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const sockaddr* address = entry->ifa_addr;
    if (address == nullptr) continue;
    if (address->sa_family != AF_INET && address->sa_family != AF_INET6) continue;
    addresses.push_back(SocketAddress::from(*address));
  }
  return addresses;
}

std::int64_t interface_bps(const SocketAddress& local) {
  const SystemInterfaces list = interface_list();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (!names_host(entry->ifa_addr, local)) continue;
    const std::string folder = fmt::format("/sys/class/net/{}", entry->ifa_name);
    if (access((folder + "/device").c_str(), F_OK) != 0) return 0;
    std::int64_t mbps = 0;
    std::ifstream(folder + "/speed") >> mbps;
    return mbps > 0 ? mbps * 1'000'000 : 0;
  }
  return 0;
}

}  // namespace thalweg::net
