// The DLCP connections of a communicator: one endpoint, and a peer of it for every rank that an
// operation over DLCP has needed. As with streams, the higher rank connects.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg {

struct DlcpLinksOptions {
  int rank = 0;
  EndpointOptions endpoint;
  // Makes this rank's address known to all, and says a rank's; the latter waits until it is there.
  std::function<Status(const std::string& address, Time until)> publish;
  std::function<Result<std::string>(int rank, Time until)> find;
};

class DlcpLinks {
 public:
  explicit DlcpLinks(DlcpLinksOptions options) : options_(std::move(options)) {}

  // The peers of these ranks, connected; waits until the time at the latest. From any thread.
  Result<std::vector<Peer>> connect(const std::vector<int>& ranks, Time until);
  // What the endpoint has seen, or had when it was last free to say. From one thread at a time.
  NetCounters counters();

 private:
  Status listen(Time until);
  Result<Peer> connect_to(int rank, Time until);
  // Takes newcomers until this one is there.
  Result<Peer> wait_for(int rank, Time until);

  DlcpLinksOptions options_;
  std::mutex mutex_;  // guards what follows
  std::optional<Endpoint> endpoint_;
  std::map<int, Peer> peers_;
  NetCounters last_;  // of counters()
};

}  // namespace thalweg
