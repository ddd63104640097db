// The DLCP connections of a communicator: an endpoint for every interface, and peers of them for
// every rank that an operation over DLCP has needed, one a way. As with streams, the higher rank
// connects, and the i-th interface of the rank with more goes with the i-th, counted round, of the
// other.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "base/units.h"
#include "net/address.h"

namespace thalweg {

using DlcpWays = std::vector<Peer>;

struct DlcpLinksOptions {
  int rank = 0;
  EndpointOptions endpoint;              // of each, but for its address and name
  std::vector<SocketAddress> addresses;  // of our interfaces, port 0
  // Makes this rank's addresses known to all, with commas between, and says a rank's; the latter
  // waits until they are there.
  std::function<Status(const std::string& addresses, Time until)> publish;
  std::function<Result<std::string>(int rank, Time until)> find;
};

class DlcpLinks {
 public:
  explicit DlcpLinks(DlcpLinksOptions options) : options_(std::move(options)) {}

  // The peers of these ranks, one a way, connected; waits until the time at the latest. From any
  // thread.
  Result<std::vector<DlcpWays>> connect(const std::vector<int>& ranks, Time until);
  // What the endpoints have seen, or had when they were last free to say. From one thread at a
  // time.
  NetCounters counters();

 private:
  Status listen(Time until);
  // By these addresses of the rank.
  Result<DlcpWays> connect_to(int rank, const std::vector<std::string>& theirs, Time until);
  // Takes newcomers until all of this one's are there.
  Result<DlcpWays> wait_for(int rank, const std::vector<std::string>& theirs, Time until);

  DlcpLinksOptions options_;
  std::mutex mutex_;                 // guards what follows
  std::vector<Endpoint> endpoints_;  // one an address
  std::map<int, DlcpWays> ways_;
  // Connected, by rank, its interface and ours.
  std::map<std::tuple<int, std::size_t, std::size_t>, Peer> newcomers_;
  NetCounters last_;  // of counters()
};

}  // namespace thalweg
