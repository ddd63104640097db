#include "net/collective/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "net/bootstrap/rendezvous_store.h"
#include "net/bootstrap/store_client.h"
#include "net/system.h"

namespace thalweg {
namespace {

// How long one who waits for a key keeps the store to itself.
constexpr Duration kStoreTurn = Duration::milliseconds(20);
constexpr auto kStorePause = std::chrono::milliseconds(1);

Result<Environment> environment_of(const CommunicatorOptions& options) {
  const EnvironmentLookup outer = process_environment();
  // What the caller says stands where the launcher's word would.
  return environment_from([&](const std::string& name) -> std::optional<std::string> {
    if (name == "THALWEG_RANK" && options.rank) return std::to_string(*options.rank);
    if (name == "THALWEG_SIZE" && options.size) return std::to_string(*options.size);
    if (name == "THALWEG_STORE" && !options.store.empty()) return options.store;
    if (name == "THALWEG_INTERFACE" && !options.interfaces.empty()) {
      return fmt::format("{}", fmt::join(options.interfaces, ","));
    }
    if (name == "THALWEG_STREAMS" && options.streams) return std::to_string(*options.streams);
    if (name == "THALWEG_CHANNELS" && options.channels) return std::to_string(*options.channels);
    // A newcomer is none of the ranks that the launcher knows, and does not start a store.
    if (options.join && name == "THALWEG_RANK") return "1";
    if (options.join && name == "THALWEG_SIZE") return "2";
    return outer(name);
  });
}

// Where the caller says the rank, as PyTorch's backend does, the launcher may still know how many
// there are on this host.
void ask_launcher(Environment& environment) {
  if (environment.local_size) return;
  const Result<Environment> launched = environment_from(process_environment());
  if (!launched.ok() || launched->launcher.empty()) return;
  environment.local_rank = launched->local_rank;
  environment.local_size = launched->local_size;
}

}  // namespace

Result<std::shared_ptr<Job>> Job::join(const CommunicatorOptions& options, Time until) {
  auto job = std::make_shared<Job>();
  THALWEG_TRY(job->environment, environment_of(options));
  ask_launcher(job->environment);
  THALWEG_TRY(job->job_key, job_key_from(process_environment()));
  const Environment& environment = job->environment;
  if (environment.size == 1 && environment.store.empty()) return job;
  if (options.rendezvous) {
    THALWEG_TRY_STATUS(job->meet_by(options, until));
    return job;
  }
  if (environment.rank == 0 && environment.rank0_starts_store) {
    THALWEG_TRY(const std::string listen, store_listen_address(environment.store));
    THALWEG_TRY(job->server, StoreServer::start(listen, environment.token, job->job_key));
  }
  THALWEG_TRY(StoreClient client,
              StoreClient::connect(environment.store, environment.token, until, job->job_key));
  job->own_address = client.local_address();
  job->client = std::make_unique<StoreClient>(std::move(client));
  job->open = [store = environment.store, token = environment.token,
               key = job->job_key](Time by) -> Result<std::unique_ptr<Store>> {
    THALWEG_TRY(StoreClient another, StoreClient::connect(store, token, by, key));
    return std::unique_ptr<Store>(std::make_unique<StoreClient>(std::move(another)));
  };
  return job;
}

Status Job::meet_by(const CommunicatorOptions& options, Time until) {
  THALWEG_TRY(own_address, address_towards(environment.store));
  open = [rendezvous = options.rendezvous](Time /*until*/) -> Result<std::unique_ptr<Store>> {
    return std::unique_ptr<Store>(std::make_unique<RendezvousStore>(rendezvous));
  };
  client = std::make_unique<RendezvousStore>(options.rendezvous);
  if (process_environment()("THALWEG_TOKEN").value_or("").empty()) {
    const std::string key = fmt::format("communicator/{}/token", options.group);
    if (environment.rank == 0) {
      THALWEG_TRY_STATUS(client->set(key, fmt::format("{}", random_number()), until));
    }
    THALWEG_TRY(const std::string token, client->get(key, until));
    const char* const end = token.data() + token.size();
    const auto [read, failure] = std::from_chars(token.data(), end, environment.token);
    if (failure != std::errc() || read != end) {
      return Error(fmt::format("rendezvous: '{}' is '{}'; a whole number is allowed", key, token));
    }
  }
  return ok_status();
}

Status Job::set(const std::string& key, const std::string& value, Time until) {
  const std::lock_guard lock(mutex);
  return client->set(key, value, until);
}

Result<std::string> Job::get(const std::string& key, Time until) {
  while (true) {
    const Time turn = std::min(until, monotonic_now() + kStoreTurn);
    {
      const std::lock_guard lock(mutex);
      if (turn == until) return client->get(key, until);
      THALWEG_TRY(std::optional<std::string> value, client->find(key, turn, until));
      if (value) return *std::move(value);
    }
    // A mutex is not fair: others would not get it.
    std::this_thread::sleep_for(kStorePause);
  }
}

}  // namespace thalweg
