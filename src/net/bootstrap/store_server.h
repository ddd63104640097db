// The rendezvous store of a job: one thread that serves all its ranks over TCP, in rank 0's process
// or in the launcher's.
//
// 1. No client can make another wait: all sockets are non-blocking, and one that does not read its
//    replies is not read from either.
// 2. A client that sends nonsense, another job's token or nothing at all is closed; one that dies
//    takes nothing with it but its own waits.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <thalweg/result.h>

#include "net/bootstrap/store_table.h"
#include "wire/authenticate.h"

namespace thalweg {

// Sockets at once. The process's limit of open files is raised towards it when it is met.
inline constexpr std::size_t kMaxStoreClients = 65'536;

class StoreServer {
 public:
  // `listen_address` as for listen_tcp(): "host:port", "*:port", port 0 for any.
  // With a key, clients must hold it, and are shown that the store does.
  [[nodiscard]] static Result<StoreServer> start(const std::string& listen_address, JobToken token,
                                                 const std::optional<JobKey>& key = {},
                                                 const StoreLimits& limits = {});
  // Closes all connections.
  ~StoreServer();
  StoreServer(StoreServer&&) noexcept;
  StoreServer& operator=(StoreServer&&) noexcept;

  // Where it listens, with the port that was chosen.
  [[nodiscard]] const std::string& address() const;

  struct Counters {
    std::size_t clients = 0;  // now
    std::size_t refused = 0;  // so far: wrong token, key or version, nonsense, no room
    std::size_t keys = 0;
    std::size_t waiting = 0;
  };
  [[nodiscard]] Counters counters() const;

 private:
  class Core;
  explicit StoreServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
