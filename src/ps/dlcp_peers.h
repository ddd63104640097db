// The DLCP connections of a parameter server's clients: one endpoint. Each client connects under
// the name that the server gave it. Used by the server's thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

namespace thalweg::ps {

class DlcpPeers {
 public:
  // `host`: the address that the endpoint listens at, with any port. `key`: of its packets, as
  // EndpointOptions::job_key.
  [[nodiscard]] static Result<DlcpPeers> listen(const std::string& host, const std::string& key);

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::uint64_t token() const { return token_; }
  // The peer of this name; none if it has not connected yet.
  [[nodiscard]] std::optional<Peer> find(const std::string& name);
  // Closes the connection of this peer, if there is one.
  void forget(const std::string& name);

 private:
  DlcpPeers(Endpoint endpoint, std::uint16_t port, std::uint64_t token)
      : endpoint_(std::move(endpoint)), port_(port), token_(token) {}

  Endpoint endpoint_;
  std::uint16_t port_;
  std::uint64_t token_;
  std::map<std::string, Peer> peers_;
};

}  // namespace thalweg::ps
