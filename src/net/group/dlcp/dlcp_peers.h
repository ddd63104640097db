// The DLCP connections of a communicator: one endpoint per interface, and, for every rank that an
// operation over DLCP has needed, one peer per way. As with streams, the higher rank connects. If
// one rank has n interfaces and the other m < n, interface i of the first is paired with interface
// i mod m of the second.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/stream_key.h"
#include "net/io/address.h"

namespace thalweg::net {

using DlcpWays = std::vector<Peer>;

struct DlcpPeersOptions {
  int rank = 0;
  EndpointOptions endpoint;              // options of every endpoint, except address and name
  std::vector<SocketAddress> addresses;  // of this rank's interfaces, with port 0
  // publish() makes this rank's addresses, separated by commas, known to all ranks. find() returns
  // those of a rank, and waits until they are known.
  std::function<Status(const std::string& addresses, Time until)> publish;
  std::function<Result<std::string>(int rank, Time until)> find;
  // How the communicator failed, if it did. Asked from time to time while connect() waits.
  std::function<std::optional<Error>()> broken;
};

class DlcpPeers {
 public:
  explicit DlcpPeers(DlcpPeersOptions options) : options_(std::move(options)) {}

  // Connects to these ranks and returns the peers of each, one per way. Waits until `until` at the
  // latest, or until the communicator fails. Any thread may call it.
  Result<std::vector<DlcpWays>> connect(const std::vector<int>& ranks, Time until);
  // The sum of the endpoints' counters; while connect() runs, the sum that was returned before. For
  // one thread at a time.
  NetCounters counters();

 private:
  Status listen(Time until);
  // The addresses of the rank.
  Result<StreamAddress> find(int rank, Time until);
  Result<DlcpWays> ways_to(int rank, Time until);
  // Connects to the rank at its addresses.
  Result<DlcpWays> connect_to(int rank, const std::vector<std::string>& theirs, Time until);
  Result<Peer> reach(int rank, const Endpoint& from, const std::string& address, Time until) const;
  // Accepts peers until all those of this rank have connected.
  Result<DlcpWays> wait_for(int rank, const std::vector<std::string>& theirs, Time until);

  DlcpPeersOptions options_;
  std::mutex mutex_;                 // guards what follows
  std::vector<Endpoint> endpoints_;  // one per address
  std::map<int, DlcpWays> ways_;
  // Peers that connected and are not in ways_ yet, by their rank, their interface and ours.
  std::map<std::tuple<int, std::size_t, std::size_t>, Peer> newcomers_;
  NetCounters last_;  // what counters() returned last
};

}  // namespace thalweg::net
