// An IPv4 or IPv6 address with a port.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::net {

// The two parts of "host:port" or "[v6]:port". Parsing looks up no names.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  static Result<HostPort> parse(const std::string& text);
  [[nodiscard]] std::string to_string() const;
};

class SocketAddress {
 public:
  SocketAddress() = default;
  // "host:port" or "[v6]:port"; the host may be a name, which is looked up.
  static Result<SocketAddress> resolve(const std::string& text);
  // The same for numeric hosts only: looks nothing up, so it never blocks.
  static Result<SocketAddress> numeric(const std::string& text);
  // Requires a family of AF_INET or AF_INET6.
  static SocketAddress from(const sockaddr& address);
  // The local and the remote address of a socket.
  static SocketAddress local_of(int fd);
  static SocketAddress remote_of(int fd);

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t size() const { return size_; }
  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] bool loopback() const;  // reachable only from this host
  [[nodiscard]] bool wildcard() const;  // stands for all addresses of a host; cannot be sent to
  [[nodiscard]] bool multicast() const;
  // Reaches all hosts of a network: the address 255.255.255.255, or the broadcast address of an
  // interface of this host.
  [[nodiscard]] bool broadcast() const;
  // Whether both name the same host, whatever their ports. An IPv4 address and the same one mapped
  // to IPv6 are the same host.
  [[nodiscard]] bool same_host(const SocketAddress& other) const;
  void set_port(std::uint16_t port);
  // The IPv4 address if this is an IPv4-mapped IPv6 address; otherwise this address.
  [[nodiscard]] SocketAddress unmapped() const;
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] std::string host() const;  // without the port
  bool operator==(const SocketAddress& other) const;

 private:
  // `flags`: ai_flags for getaddrinfo.
  static Result<SocketAddress> find(const std::string& text, int flags);

  sockaddr_storage storage_ = {};
  socklen_t size_ = 0;
};

// Applies SocketAddress::numeric() to each text; the first error is returned.
Result<std::vector<SocketAddress>> numeric_addresses(const std::vector<std::string>& texts);

// Whether packets to this address pass no router: it is an address of this host, or lies in the
// network of one of this host's interfaces.
bool reached_directly(const SocketAddress& address);

// The addresses of this host's interfaces, with port 0.
std::vector<SocketAddress> interface_addresses();

// The speed of the interface that has this address, in bits per second; 0 if the interface is not
// hardware or does not report a speed.
std::int64_t interface_bps(const SocketAddress& local);

}  // namespace thalweg::net
