// The job of a process: its place among the ranks, and the store that the ranks meet by.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "base/units.h"
#include "net/io/address.h"
#include "net/job/environment.h"
#include "net/job/meeting_place.h"
#include "net/store/store.h"
#include "net/store/store_client.h"
#include "net/store/store_server.h"
#include "net/store/token_desk.h"

namespace thalweg::net {

inline constexpr Duration kStoreStays = Duration::milliseconds(5000);

// What the communicators of a process share: a client of the store, and the store itself if it runs
// in this process.
struct Job {
  Job() = default;
  // Where the store runs in this process, waits until the other ranks no longer use it, kStoreStays
  // at most: one that makes a stream late must still find the address of the rank it sends to.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Environment environment;
  DebugLog log;
  // The key that store and streams must prove; none if the job has no key.
  std::optional<wire::JobKey> job_key;
  // Where this process hands out a random token. Opened before the store listens and closed after
  // it, so that who reaches the store finds its token.
  std::unique_ptr<TokenDesk> desk;
  std::unique_ptr<TokenDesk> newcomers_desk;
  std::optional<StoreServer> server;
  // The address of this host that reaches the store. Its port has no meaning.
  SocketAddress own_address;
  OpenStore open;                 // opens another connection to the store
  std::mutex mutex;               // guards client
  std::unique_ptr<Store> client;  // null if the process is alone
  // With meeting places: [rank]: its StreamAddress, and the sockets of this rank. The first
  // communicator takes both.
  std::vector<std::string> streams;
  std::optional<PlaceSockets> sockets;
  std::shared_ptr<MeetingPlace> place;  // if its store is the one of this job

  // Reads the environment and connects to the store; rank 0 may start it.
  static Result<std::shared_ptr<Job>> join(const CommunicatorOptions& options, Time until);
  // The part of join() for ranks that have meeting places. Connects to nothing: the store is for
  // what the ranks say to each other later.
  static Result<std::shared_ptr<Job>> join_places(const CommunicatorOptions& options);
  // The part of join() for ranks that meet by Thalweg's store, which rank 0 may start.
  Status meet_at_store(Time until);
  // The part of join() for a job that meets by the caller's store.
  Status meet_by(const CommunicatorOptions& options, Time until);

  // Both may be called from any thread. get() waits until the key exists. It lets other threads use
  // the client meanwhile, because one of them may have to set that key.
  Status set(const std::string& key, const std::string& value, Time until);
  Result<std::string> get(const std::string& key, Time until);
};

// Connects to the store of the job. If rank 0 hands out a random token, sets environment.token to
// it.
[[nodiscard]] Result<StoreClient> connect_store(Environment& environment, Time until,
                                                const std::optional<wire::JobKey>& key);

}  // namespace thalweg::net
