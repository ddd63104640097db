// The job of a process: who its ranks are, and the store by which they find each other.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <thalweg/communicator.h>

#include "base/units.h"
#include "net/address.h"
#include "net/bootstrap/environment.h"
#include "net/bootstrap/store.h"
#include "net/bootstrap/store_server.h"

namespace thalweg {

// What the communicators of a process share: the store, and the one of rank 0 if it runs there.
struct Job {
  Environment environment;
  std::optional<JobKey> job_key;  // that store and streams are to prove; none: the job has none
  std::optional<StoreServer> server;
  // Where ranks of this host are found, as far as the way to the store says; port 0.
  SocketAddress own_address;
  OpenStore open;                 // another connection to the store
  std::mutex mutex;               // guards what follows
  std::unique_ptr<Store> client;  // none: the process is alone

  static Result<std::shared_ptr<Job>> join(const CommunicatorOptions& options, Time until);
  // join(), by the caller's store.
  Status meet_by(const CommunicatorOptions& options, Time until);

  // Both from any thread. get() waits until the key exists, and lets others have the client
  // meanwhile: what it waits for may be for one of them to set.
  Status set(const std::string& key, const std::string& value, Time until);
  Result<std::string> get(const std::string& key, Time until);
};

}  // namespace thalweg
