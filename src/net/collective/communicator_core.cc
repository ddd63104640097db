#include "net/collective/communicator_core.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "base/prng.h"
#include "net/bootstrap/interfaces.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {
namespace {

Duration to_duration(std::chrono::nanoseconds ns) { return Duration::nanoseconds(ns.count()); }

std::uint64_t hash_of(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = mix_bits(seed + kGoldenStep);
  for (const char c : text) {
    hash = mix_bits(hash ^ static_cast<unsigned char>(c)) + kGoldenStep;
  }
  return hash;
}

Result<Environment> environment_of(const CommunicatorOptions& options) {
  const EnvironmentLookup outer = process_environment();
  // What the caller says stands where the launcher's word would.
  return environment_from([&](const std::string& name) -> std::optional<std::string> {
    if (name == "THALWEG_RANK" && options.rank) return std::to_string(*options.rank);
    if (name == "THALWEG_SIZE" && options.size) return std::to_string(*options.size);
    if (name == "THALWEG_STORE" && !options.store.empty()) return options.store;
    return outer(name);
  });
}

}  // namespace

Result<std::shared_ptr<Job>> Job::join(const CommunicatorOptions& options, Time until) {
  auto job = std::make_shared<Job>();
  THALWEG_TRY(job->environment, environment_of(options));
  const Environment& environment = job->environment;
  if (environment.size == 1 && environment.store.empty()) return job;
  if (environment.rank == 0 && environment.rank0_starts_store) {
    THALWEG_TRY(const std::string listen, store_listen_address(environment.store));
    THALWEG_TRY(job->server, StoreServer::start(listen, environment.token));
  }
  THALWEG_TRY(job->client, StoreClient::connect(environment.store, environment.token, until));
  return job;
}

Result<std::unique_ptr<Communicator::Core>> Communicator::Core::make(
    const CommunicatorOptions& options) {
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("timeout: {} ns; it must be above 0", options.timeout.count()));
  }
  const Time until = monotonic_now() + to_duration(options.timeout);
  THALWEG_TRY(std::shared_ptr<Job> job, Job::join(options, until));
  Members members;
  members.group = options.group;
  members.rank = job->environment.rank;
  for (int r = 0; r < job->environment.size; ++r) members.ranks.push_back(r);
  return make(options, std::move(job), std::move(members), until);
}

Result<std::unique_ptr<Communicator::Core>> Communicator::Core::make(
    const CommunicatorOptions& options, std::shared_ptr<Job> job, Members members, Time until) {
  std::unique_ptr<Core> core(new Core(options, std::move(job), std::move(members)));
  THALWEG_TRY(core->plans_,
              Plans::make(core->size_, core->rank_, options.topology, options.scheme));

  const Environment& environment = core->job_->environment;
  const std::string prefix = fmt::format("communicator/{}/", core->members_.group);
  std::string listen = "127.0.0.1:0";
  if (core->job_->client) {
    const std::lock_guard lock(core->job_->mutex);
    THALWEG_TRY(const std::vector<SocketAddress> addresses,
                rank_addresses(environment.interfaces, core->job_->client->local_address()));
    SocketAddress own = addresses.front();
    own.set_port(0);
    listen = own.to_string();
  }
  THALWEG_TRY(Fd listener, listen_tcp(listen));
  if (core->job_->client) {
    const std::lock_guard lock(core->job_->mutex);
    THALWEG_TRY_STATUS(core->job_->client->set(
        fmt::format("{}{}", prefix, core->rank_),
        SocketAddress::local_of(listener.get()).unmapped().to_string(), until));
  }
  EngineOptions engine;
  engine.rank = core->rank_;
  engine.size = core->size_;
  engine.signature = hash_of(core->members_.group, environment.token);
  const int local = environment.local_size.value_or(core->size_);
  engine.crowded = local > static_cast<int>(std::thread::hardware_concurrency());
  engine.connect = [job = core->job_, prefix](int rank, Time by) -> Result<Fd> {
    const std::lock_guard lock(job->mutex);
    THALWEG_TRY(const std::string address, job->client->get(fmt::format("{}{}", prefix, rank), by));
    THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(address));
    return connect_tcp(remote, address, by);
  };
  THALWEG_TRY(core->engine_, Engine::make(std::move(engine), std::move(listener)));

  DlcpLinksOptions dlcp;
  dlcp.rank = core->rank_;
  dlcp.endpoint.listen = listen;
  dlcp.endpoint.job_token = environment.token;
  dlcp.endpoint.packet_payload = options.dlcp_payload;
  dlcp.endpoint.line_rate_gbps = options.dlcp_line_rate_gbps;
  dlcp.endpoint.lose = options.dlcp_lose;
  if (!environment.key_file.empty()) {
    THALWEG_TRY(dlcp.endpoint.job_key, read_job_key(environment.key_file));
  }
  dlcp.publish = [job = core->job_, prefix, rank = core->rank_](const std::string& address,
                                                                Time by) -> Status {
    const std::lock_guard lock(job->mutex);
    return job->client->set(fmt::format("{}dlcp/{}", prefix, rank), address, by);
  };
  dlcp.find = [job = core->job_, prefix](int rank, Time by) {
    const std::lock_guard lock(job->mutex);
    return job->client->get(fmt::format("{}dlcp/{}", prefix, rank), by);
  };
  core->dlcp_ = std::make_unique<DlcpLinks>(std::move(dlcp));
  return core;
}

Status Communicator::Core::check_bound(const Call& call, const CallOptions& options) const {
  const double bound = options.loss_bound;
  const double result_bound = options.result_loss_bound.value_or(0);
  if (!(bound >= 0 && bound < 1)) {
    return Error(fmt::format("loss_bound: {}; from 0 to below 1 is allowed", bound));
  }
  if (!(result_bound >= 0 && result_bound <= bound)) {
    return Error(fmt::format("result_loss_bound: {}; from 0 to loss_bound, {}, is allowed",
                             result_bound, bound));
  }
  if (bound == 0) return ok_status();
  const bool averages = options.op == ReduceOp::kSum || options.op == ReduceOp::kMean;
  if (call.collective != Collective::kAllreduce || !call.reduces || !averages ||
      !is_floating(call.type)) {
    return Error(
        fmt::format("loss_bound: {} on {} of {} by {}; only allreduces of floats by sum or "
                    "mean may lose anything",
                    bound, call.name, name_of(call.type), name_of(options.op)));
  }
  if (options.transport.value_or(options_.transport) != Transport::kDlcp) {
    return Error(fmt::format("loss_bound: {} needs the transport dlcp", bound));
  }
  return ok_status();
}

Result<std::shared_ptr<Operation::State>> Communicator::Core::prepare(
    const Call& call, const CallOptions& options, std::shared_ptr<const PreparedPlan>& plan) {
  if (options.deadline <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("deadline: {} ns; it must be above 0", options.deadline.count()));
  }
  if (call.root < 0 || call.root >= size_) {
    return Error(fmt::format("root: {}; from 0 to {} are allowed", call.root, size_ - 1));
  }
  THALWEG_TRY_STATUS(check_bound(call, options));
  auto op = std::make_shared<Operation::State>();
  op->engine = engine_;
  op->type = call.type;
  op->op = options.op == ReduceOp::kMean ? ReduceOp::kSum : options.op;
  op->priority = options.priority;
  op->limit = to_duration(options.deadline);
  op->text = fmt::format("{} of {} {}", call.name, call.elements, name_of(call.type));
  if (call.reduces) op->text += fmt::format(", {}", name_of(options.op));
  if (call.collective == Collective::kReduce || call.collective == Collective::kBroadcast) {
    op->text += fmt::format(", root {}", call.root);
  }
  if (options.transport.value_or(options_.transport) == Transport::kDlcp) {
    op->text += fmt::format(", over dlcp with bound {}", options.loss_bound);
  }
  if (!options.scheme.empty()) op->text += fmt::format(", by {}", options.scheme);
  op->signature = hash_of(op->text, 1);
  if (call.elements == 0 || size_ == 1) return op;
  THALWEG_TRY(plan, plans_->get({.collective = call.collective,
                                 .elements = call.elements,
                                 .element_bytes = static_cast<int>(size_of(call.type)),
                                 .root = call.root,
                                 .scheme = options.scheme}));
  op->plan = std::shared_ptr<const RankPlan>(plan, &plan->rank_plan);
  THALWEG_TRY_STATUS(use_dlcp(call, options, *op));
  return op;
}

Status Communicator::Core::use_dlcp(const Call& call, const CallOptions& options,
                                    Operation::State& op) {
  if (options.transport.value_or(options_.transport) != Transport::kDlcp) return ok_status();
  std::vector<int> ranks;
  for (const Rank peer : op.plan->peers()) ranks.push_back(peer.value());
  THALWEG_TRY(op.dlcp_peers, dlcp_->connect(ranks, monotonic_now() + op.limit));
  op.dlcp = Operation::State::Dlcp{
      .reduce_bound = options.loss_bound,
      .copy_bound = options.result_loss_bound.value_or(options.loss_bound / 2)};
  if (options.loss_bound == 0) return ok_status();
  const std::size_t payload = options_.dlcp_payload;
  for (const Peer& peer : op.dlcp_peers) {
    if (peer.packet_payload() == payload) continue;
    return Error(fmt::format("{}: packets to {} take {} bytes of a tensor; dlcp_payload is {}",
                             call.name, peer.name(), peer.packet_payload(), payload));
  }
  op.dlcp->segment_elements = static_cast<std::int64_t>(payload / size_of(call.type));
  return ok_status();
}

// Every survivor says that it is there; the lowest of those that did within the window makes the
// list of members, which all others read.
Result<std::unique_ptr<Communicator::Core>> Communicator::Core::shrink(
    std::chrono::nanoseconds window) {
  if (!job_->client) return Error("shrink: the process is alone, and has no store to meet others");
  engine_->leave();
  const Time gathered = monotonic_now() + to_duration(window);
  const Time until = gathered + to_duration(window) + Duration::milliseconds(1000);
  Members members;
  members.group = members_.group + "'";
  const std::string prefix = fmt::format("shrink/{}/", members.group);
  std::string list;
  {
    const std::lock_guard lock(job_->mutex);
    StoreClient& store = *job_->client;
    THALWEG_TRY_STATUS(store.set(fmt::format("{}{}", prefix, rank_), "here", until));
    std::vector<int> here;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_ || store.wait(fmt::format("{}{}", prefix, r), gathered).ok()) {
        here.push_back(members_.ranks[static_cast<std::size_t>(r)]);
      }
    }
    if (here.front() == members_.ranks[static_cast<std::size_t>(rank_)]) {
      THALWEG_TRY([[maybe_unused]] const bool first,
                  store.compare_and_set(prefix + "members", std::nullopt,
                                        fmt::format("{}", fmt::join(here, " ")), until));
    }
    THALWEG_TRY(list, store.get(prefix + "members", until));
  }
  const int own = members_.ranks[static_cast<std::size_t>(rank_)];
  bool listed = false;
  for (const char* at = list.data(); at < list.data() + list.size();) {
    int member = 0;
    const auto [end, error] = std::from_chars(at, list.data() + list.size(), member);
    if (error != std::errc()) break;
    if (member == own) {
      listed = true;
      members.rank = static_cast<int>(members.ranks.size());
    }
    members.ranks.push_back(member);
    at = end + 1;
  }
  if (!listed) {
    return Error(fmt::format("shrink: this rank came too late; the others went on as {}", list));
  }
  CommunicatorOptions options = options_;
  // Its ranks are not the topology's hosts any more.
  options.topology.clear();
  return make(options, job_, std::move(members), until);
}

}  // namespace thalweg
