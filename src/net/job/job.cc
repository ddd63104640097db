#include "net/job/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "net/io/system.h"
#include "net/store/late_store.h"
#include "net/store/rendezvous_store.h"

namespace thalweg::net {
namespace {

// How long a thread that waits for a key keeps the client to itself.
constexpr Duration kStoreTurn = Duration::milliseconds(20);
constexpr auto kStorePause = std::chrono::milliseconds(1);

Result<Environment> environment_of(const CommunicatorOptions& options) {
  const EnvironmentLookup outer = process_environment();
  // The caller's options take precedence over the launcher's variables.
  return environment_from([&](const std::string& name) -> std::optional<std::string> {
    if (name == "THALWEG_RANK" && options.rank) return std::to_string(*options.rank);
    if (name == "THALWEG_SIZE" && options.size) return std::to_string(*options.size);
    if (name == "THALWEG_STORE" && !options.store.empty()) return options.store;
    if (name == "THALWEG_INTERFACE" && !options.interfaces.empty()) {
      return fmt::format("{}", fmt::join(options.interfaces, ","));
    }
    if (name == "THALWEG_STREAMS" && options.streams) return std::to_string(*options.streams);
    if (name == "THALWEG_CHANNELS" && options.channels) return std::to_string(*options.channels);
    if (name == "THALWEG_DLCP_PAYLOAD" && options.dlcp_payload) {
      return std::to_string(*options.dlcp_payload);
    }
    if (name == "THALWEG_DLCP_PATHS" && options.dlcp_paths) {
      return std::to_string(*options.dlcp_paths);
    }
    // A newcomer is not one of the launcher's ranks, and must not be rank 0, which starts the
    // store.
    if (options.join && name == "THALWEG_RANK") return "1";
    if (options.join && name == "THALWEG_SIZE") return "2";
    return outer(name);
  });
}

// If the caller gives the rank, as PyTorch's backend does, the launcher may still tell the number
// of ranks on this host.
void ask_launcher(Environment& environment) {
  if (environment.local_size && environment.one_host) return;
  const Result<Environment> launched = environment_from(process_environment());
  if (!launched.ok() || launched->launcher.empty()) return;
  environment.one_host |= launched->one_host;
  if (environment.local_size) return;
  environment.local_rank = launched->local_rank;
  environment.local_size = launched->local_size;
}

// Opens connections to the store of the job, whose token is known.
OpenStore opener(const Environment& environment, const std::optional<wire::JobKey>& key) {
  return [store = environment.store, token = environment.token, key,
          checks = environment.stream_checks()](Time by) -> Result<std::unique_ptr<Store>> {
    THALWEG_TRY(StoreClient another, StoreClient::connect(store, token, by, key, checks));
    return std::unique_ptr<Store>(std::make_unique<StoreClient>(std::move(another)));
  };
}

}  // namespace

Job::~Job() {
  if (!server) return;
  client.reset();
  const Time until = monotonic_now() + kStoreStays;
  while (server->counters().clients > 0 && monotonic_now() < until) {
    std::this_thread::sleep_for(kStorePause);
  }
}

Result<std::shared_ptr<Job>> Job::join(const CommunicatorOptions& options, Time until) {
  if (options.place || !options.places.empty()) return join_places(options);
  auto job = std::make_shared<Job>();
  THALWEG_TRY(job->environment, environment_of(options));
  if (options.join) job->environment.token_desk = job->environment.newcomers_desk;
  ask_launcher(job->environment);
  THALWEG_TRY(job->job_key, job_key_from(process_environment()));
  const Environment& environment = job->environment;
  job->log = DebugLog(environment.debug, environment.rank);
  job->log.info("rank {} of {} by {}; {}; {}; {}", environment.rank, environment.size,
                options.rank                   ? "its caller"
                : environment.launcher.empty() ? "itself"
                                               : environment.launcher,
                environment.local_size
                    ? fmt::format("{} ranks on this host", *environment.local_size)
                    : "ranks on this host not known",
                options.rendezvous          ? "meets the others by the caller's store"
                : environment.store.empty() ? "alone"
                                            : "store at " + environment.store,
                job->job_key ? "with a job key" : "without a job key");
  if (environment.size == 1 && environment.store.empty()) return job;
  if (options.rendezvous) {
    THALWEG_TRY_STATUS(job->meet_by(options, until));
    return job;
  }
  THALWEG_TRY_STATUS(job->meet_at_store(until));
  return job;
}

Status Job::meet_at_store(Time until) {
  if (environment.rank == 0 && environment.rank0_starts_store) {
    Status opened = ok_status();
    if (!environment.token_desk.empty() && environment.one_host) {
      environment.token = random_number();
      auto made = TokenDesk::open(environment.token_desk, environment.token);
      if (made.ok()) desk = *std::move(made);
      if (!made.ok()) opened = made.error();
      // Another job of this user may have it while it ends. Then nobody can join this one.
      auto newcomers = TokenDesk::open(environment.newcomers_desk, environment.token);
      if (newcomers.ok()) newcomers_desk = *std::move(newcomers);
    }
    THALWEG_TRY(const std::string listen, store_listen_address(environment.store));
    // If another process is rank 0 of this job, the store's error says it in better words.
    THALWEG_TRY(server, StoreServer::start(listen, environment.token, job_key));
    THALWEG_TRY_STATUS(opened);
  }
  THALWEG_TRY(StoreClient made, connect_store(environment, until, job_key));
  own_address = made.local_address();
  client = std::make_unique<StoreClient>(std::move(made));
  open = opener(environment, job_key);
  return ok_status();
}

Result<std::shared_ptr<Job>> Job::join_places(const CommunicatorOptions& options) {
  const auto size = static_cast<int>(options.places.size());
  if (!options.place || size == 0 || options.join || options.rendezvous) {
    return Error("places: they need `place`, and allow neither `join` nor `rendezvous`");
  }
  if (!options.rank || *options.rank < 0 || *options.rank >= size ||
      options.size.value_or(size) != size) {
    return Error(fmt::format("places: {} ranks; `rank` is {}, and from 0 to {} are allowed", size,
                             options.rank ? std::to_string(*options.rank) : "not given", size - 1));
  }
  std::vector<PlaceAddress> places;
  for (const std::string& text : options.places) {
    THALWEG_TRY(PlaceAddress place, PlaceAddress::parse(text));
    places.push_back(std::move(place));
  }
  CommunicatorOptions told = options;
  told.size = size;
  told.store = places.front().store;
  auto job = std::make_shared<Job>();
  Environment& environment = job->environment;
  THALWEG_TRY(environment, environment_of(told));
  environment.token = places.front().token;
  environment.rank0_starts_store = false;
  const auto own = static_cast<std::size_t>(*options.rank);
  // All ranks count the same, whatever launched them.
  environment.local_rank = 0;
  environment.local_size = 0;
  for (std::size_t r = 0; r < places.size(); ++r) {
    if (places[r].host() != places[own].host()) continue;
    if (r < own) ++*environment.local_rank;
    ++*environment.local_size;
  }
  THALWEG_TRY(job->job_key, job_key_from(process_environment()));
  if (size == 1) return job;
  THALWEG_TRY(job->sockets, options.place->core().take(options.places[own]));
  job->own_address = job->sockets->addresses.front();
  for (const PlaceAddress& place : places) job->streams.push_back(place.streams);
  job->open = opener(environment, job->job_key);
  job->client = std::make_unique<LateStore>(job->open);
  if (own == 0) job->place = options.place;
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
      return Error(ErrorCode::kInternal,
                   fmt::format("rendezvous: '{}' is '{}'; a whole number is allowed", key, token));
    }
  }
  return ok_status();
}

Result<StoreClient> connect_store(Environment& environment, Time until,
                                  const std::optional<wire::JobKey>& key) {
  const auto find_token = [&environment] {
    if (!environment.token_desk.empty()) {
      environment.token = TokenDesk::ask(environment.token_desk).value_or(environment.token);
    }
    return environment.token;
  };
  return StoreClient::connect(environment.store, find_token, until, key,
                              environment.stream_checks());
}

Status Job::set(const std::string& key, const std::string& value, Time until) {
  if (place) {
    place->core().put(key, value);
    return ok_status();
  }
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
    // Without a pause other threads would not get the mutex, which is not fair.
    std::this_thread::sleep_for(kStorePause);
  }
}

}  // namespace thalweg::net
