// The rendezvous store of a job: one thread, in rank 0's process or in the launcher's, that serves
// all ranks over TCP.
//
// Invariants:
// 1. No client can make another wait: all sockets are non-blocking, and the server does not read
//    from a client that does not read its replies.
// 2. The server closes a client that sends nonsense, another job's token or nothing at all. When a
//    client dies, only its own waits end.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <thalweg/result.h>

#include "net/store/store_table.h"
#include "wire/authenticate.h"

namespace thalweg::net {

// The most clients at a time. When the process reaches its limit of open files, the limit is raised
// towards twice this number.
inline constexpr std::size_t kMaxStoreClients = 65'536;

class StoreServer {
 public:
  // `listen_address` as for listen_tcp(): "host:port" or "*:port"; port 0: any free port. With a
  // key, clients must prove that they hold it, and the store proves the same to them.
  [[nodiscard]] static Result<StoreServer> start(const std::string& listen_address,
                                                 wire::JobToken token,
                                                 const std::optional<wire::JobKey>& key = {},
                                                 const StoreLimits& limits = {});
  // Closes all connections.
  ~StoreServer();
  StoreServer(StoreServer&&) noexcept;
  StoreServer& operator=(StoreServer&&) noexcept;

  // The address that the store listens at, with the port that was chosen.
  [[nodiscard]] const std::string& address() const;

  // Sets a key, soon and without waiting. Any thread may call it.
  void put(std::string key, std::string value);

  struct Counters {
    std::size_t clients = 0;  // connected now
    std::size_t refused = 0;  // since the start: wrong token, key or version, nonsense, no room
    std::size_t keys = 0;
    std::size_t waiting = 0;  // requests that wait for a key
  };
  [[nodiscard]] Counters counters() const;

 private:
  class Core;
  explicit StoreServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg::net
