// The DLCP connections of a parameter server's clients: one endpoint, whose peers have the names
// that their clients were told. For the server's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

namespace thalweg {

class DlcpPeers {
 public:
  // `host`: where the endpoint listens, at any port. `lose`: EndpointOptions::lose.
  [[nodiscard]] static Result<DlcpPeers> listen(const std::string& host,
                                                std::function<bool(std::uint64_t)> lose);

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::uint64_t token() const { return token_; }
  // None: it has not connected yet.
  [[nodiscard]] std::optional<Peer> find(const std::string& name);
  void forget(const std::string& name);

 private:
  DlcpPeers(Endpoint endpoint, std::uint16_t port, std::uint64_t token)
      : endpoint_(std::move(endpoint)), port_(port), token_(token) {}

  Endpoint endpoint_;
  std::uint16_t port_;
  std::uint64_t token_;
  std::map<std::string, Peer> peers_;
};

}  // namespace thalweg
