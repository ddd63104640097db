// An IPv4 or IPv6 address with a port.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

// "host:port" or "[v6]:port", taken apart; nothing is looked up.
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
  // Without names: nothing is looked up, and nothing waits.
  static Result<SocketAddress> numeric(const std::string& text);
  // Of family AF_INET or AF_INET6.
  static SocketAddress from(const sockaddr& address);
  // The two ends of a socket.
  static SocketAddress local_of(int fd);
  static SocketAddress remote_of(int fd);

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t size() const { return size_; }
  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] bool loopback() const;  // of this host alone
  [[nodiscard]] bool wildcard() const;  // all addresses of a host: none to send to
  void set_port(std::uint16_t port);
  // An IPv4 address that came in IPv6 clothes, as itself.
  [[nodiscard]] SocketAddress unmapped() const;
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] std::string host() const;  // without the port
  bool operator==(const SocketAddress& other) const;

 private:
  // `flags` of getaddrinfo.
  static Result<SocketAddress> find(const std::string& text, int flags);

  sockaddr_storage storage_ = {};
  socklen_t size_ = 0;
};

// numeric() of each.
Result<std::vector<SocketAddress>> numeric_addresses(const std::vector<std::string>& texts);

// The speed of the interface that has this address, in bits per second; 0 if it is not of hardware
// or does not say.
std::int64_t interface_bps(const SocketAddress& local);

}  // namespace thalweg
