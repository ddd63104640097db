#include "ps/dlcp_peers.h"

#include <utility>

#include "net/io/address.h"
#include "net/io/system.h"

namespace thalweg::ps {

Result<DlcpPeers> DlcpPeers::listen(const std::string& host, const std::string& key) {
  EndpointOptions options;
  options.listen = net::HostPort{host, 0}.to_string();
  options.job_token = net::random_number();
  options.job_key = key;
  options.name = "the parameter server";
  THALWEG_TRY(Endpoint endpoint, Endpoint::create(options));
  THALWEG_TRY(const net::HostPort at, net::HostPort::parse(endpoint.address()));
  return DlcpPeers(std::move(endpoint), at.port, options.job_token);
}

std::optional<Peer> DlcpPeers::find(const std::string& name) {
  while (!peers_.contains(name)) {
    const Result<Peer> next = endpoint_.accept(std::chrono::nanoseconds(0));
    if (!next.ok()) return std::nullopt;
    std::erase_if(peers_, [](const auto& peer) { return !peer.second.connected(); });
    // Peer::name() is "name (address)".
    peers_.insert_or_assign(next->name().substr(0, next->name().rfind(" (")), *next);
  }
  return peers_.at(name);
}

void DlcpPeers::forget(const std::string& name) {
  const auto found = peers_.find(name);
  if (found == peers_.end()) return;
  found->second.close();
  peers_.erase(found);
}

}  // namespace thalweg::ps
