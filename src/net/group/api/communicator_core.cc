#include "net/group/api/communicator_core.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/prng.h"
#include "base/segment_tag.h"
#include "net/io/system.h"

namespace thalweg {
namespace {

// Longer limits are cut to this, which is as good as forever.
constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 7);

Duration to_duration(std::chrono::nanoseconds ns) {
  return Duration::nanoseconds(std::min(ns, kLongest).count());
}

std::uint64_t hash_of(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = mix_bits(seed + kGoldenStep);
  for (std::size_t at = 0; at < text.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
    hash = mix_bits(hash ^ word) + kGoldenStep;
  }
  return mix_bits(hash ^ text.size());
}

}  // namespace

Result<std::unique_ptr<Communicator::Core>> Communicator::Core::make(
    const CommunicatorOptions& options) {
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("timeout: {} ns; it must be above 0", options.timeout.count()));
  }
  const Time until = net::monotonic_now() + to_duration(options.timeout);
  THALWEG_TRY(std::shared_ptr<net::Job> job, net::Job::join(options, until));
  if (options.join) {
    THALWEG_TRY(Members members, join(*job, options.group, until));
    return make(options, std::move(job), std::move(members), until);
  }
  Members members;
  members.group = options.group;
  members.rank = job->environment.rank;
  for (int r = 0; r < job->environment.size; ++r) members.ranks.push_back(r);
  return make(options, std::move(job), std::move(members), until);
}

Result<std::unique_ptr<Communicator::Core>> Communicator::Core::make(
    const CommunicatorOptions& options, std::shared_ptr<net::Job> job, Members members,
    Time until) {
  std::unique_ptr<Core> core(new Core(options, std::move(job), std::move(members)));
  const net::Environment& environment = core->job_->environment;
  // The same on all ranks: each host has fewer ranks than the job, or one has them all.
  const bool several_hosts = environment.local_size.value_or(environment.size) < environment.size;
  THALWEG_TRY(core->plans_, net::Plans::make(core->size_, core->rank_, options.topology,
                                             options.scheme, several_hosts));

  const std::string prefix = fmt::format("communicator/{}/", core->members_.group);
  net::EngineOptions engine;
  engine.rank = core->rank_;
  engine.size = core->size_;
  engine.signature = hash_of(core->members_.group, environment.token);
  engine.log = core->job_->log;
  engine.notes_steps = !net::process_environment()("THALWEG_TIMELINE").value_or("").empty();
  engine.checks = !environment.checksum              ? net::StreamChecks::kNone
                  : environment.checksum_within_host ? net::StreamChecks::kAll
                                                     : net::StreamChecks::kBetweenHosts;
  engine.line_bps = net::line_bps_of(options.dlcp_line_rate_gbps);
  THALWEG_TRY_STATUS(core->prepare_metrics(engine));
  THALWEG_TRY(Listening listening, core->prepare_streams(engine, prefix, until));
  const int local = environment.local_size.value_or(environment.size);
  engine.share_memory = options.shared_memory && environment.shared_memory;
  engine.crowded = local > static_cast<int>(std::thread::hardware_concurrency());
  if (core->job_->client) {
    core->board_ =
        std::make_shared<net::GroupNotices>(core->job_->open, core->members_.group, core->rank_);
    engine.compare_calls = [board = core->board_](const auto&... call) {
      return board->compare_calls(call...);
    };
    engine.announce_failure = [board = core->board_](const Error& why) {
      board->announce_failure(why);
    };
  }
  core->uses_network_ = several_hosts || !engine.share_memory;
  if (options.transport == Transport::kAuto && options.scheme.empty() && environment.trials) {
    core->auto_ = std::make_unique<net::AutoTable>();
  }
  THALWEG_TRY_STATUS(core->prepare_channels(engine, prefix, until));
  core->prepare_messages(engine, listening.own);
  const std::lock_guard messages_lock(core->messages_->mutex);  // until its options have `broken`
  THALWEG_TRY(core->engine_, net::Engine::make(std::move(engine), std::move(listening.sockets)));
  if (core->channels_) core->channels_->set_first(core->engine_);

  THALWEG_TRY_STATUS(core->prepare_dlcp(listening.addresses, prefix));
  THALWEG_TRY_STATUS(core->prepare_atp(listening.addresses.front(), prefix, until));
  THALWEG_TRY_STATUS(core->prepare_watchers());
  core->say_how(listening);
  core->messages_->options.broken = [engine = std::weak_ptr(core->engine_)] {
    const auto alive = engine.lock();
    return alive ? alive->broken() : std::optional<Error>(net::has_left());
  };
  return core;
}

// Only sets the options: the endpoint is made when an operation first needs it.
Status Communicator::Core::prepare_dlcp(const std::vector<net::SocketAddress>& addresses,
                                        const std::string& prefix) {
  net::DlcpPeersOptions dlcp;
  const net::Environment& environment = job_->environment;
  dlcp.rank = rank_;
  dlcp.addresses = addresses;
  dlcp.endpoint.job_token = environment.token;
  dlcp.endpoint.checksum = environment.checksum;
  dlcp.endpoint.packet_payload = dlcp_payload();
  dlcp.endpoint.paths = static_cast<std::uint32_t>(environment.dlcp_paths);
  dlcp.endpoint.line_rate_gbps = options_.dlcp_line_rate_gbps;
  if (!environment.key_file.empty()) {
    THALWEG_TRY(dlcp.endpoint.job_key, read_job_key(environment.key_file));
  }
  dlcp.publish = [job = job_, prefix, rank = rank_](const std::string& address, Time by) -> Status {
    return job->set(fmt::format("{}dlcp/{}", prefix, rank), address, by);
  };
  dlcp.find = [job = job_, prefix](int rank, Time by) {
    return job->get(fmt::format("{}dlcp/{}", prefix, rank), by);
  };
  dlcp_ = std::make_unique<net::DlcpPeers>(std::move(dlcp));
  return ok_status();
}

Result<std::shared_ptr<net::Mailbox>> Communicator::Core::Messages::get() {
  const std::lock_guard lock(mutex);
  if (!box) {
    THALWEG_TRY(box, net::Mailbox::make(options));
  }
  return box;
}

Result<std::shared_ptr<Operation::State>> Communicator::Core::message(const Message& message,
                                                                      const CallOptions& options) {
  THALWEG_TRY_STATUS(at_home());
  if (options.deadline <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("deadline: {} ns; it must be above 0", options.deadline.count()));
  }
  const bool any = !message.sends && message.peer == kAnyPeer;
  if (!any && (message.peer < 0 || message.peer >= size_)) {
    return Error(fmt::format("{}: {}; from 0 to {} are allowed",
                             message.sends ? "target" : "source", message.peer, size_ - 1));
  }
  if (message.tag < 0) return Error(fmt::format("tag: {}; 0 or more is allowed", message.tag));
  THALWEG_TRY(const std::shared_ptr<net::Mailbox> box, messages_->get());
  auto op = std::make_shared<Operation::State>();
  op->host = box;
  op->type = message.type;
  op->elements = message.elements;
  op->tensor = message.data;
  op->sends = message.sends;
  op->peer = message.peer;
  op->tag = static_cast<std::uint32_t>(message.tag);
  op->limit = to_duration(options.deadline);
  op->on_over = options.on_over;
  op->text = fmt::format("{} of {} {} {} {}, tag {}", message.sends ? "send" : "recv",
                         message.elements, name_of(message.type), message.sends ? "to" : "from",
                         any ? "any rank" : fmt::format("rank {}", message.peer), message.tag);
  watch(
      *op,
      {.name = message.sends ? "send" : "recv", .elements = message.elements, .transport = "tcp"});
  if (message.sends) {
    box->send(op);
  } else {
    box->receive(op);
  }
  return op;
}

// Every rank computes the same from the colors and keys of all ranks.
Result<std::unique_ptr<Communicator::Core>> Communicator::Core::part(
    std::span<const std::int64_t> colors_and_keys, Time until) {
  const std::string name = fmt::format("{}/{}", members_.group, ++parts_);
  const auto color = [&](int r) { return colors_and_keys[static_cast<std::size_t>(r) * 2]; };
  const auto key = [&](int r) { return colors_and_keys[static_cast<std::size_t>(r) * 2 + 1]; };
  if (color(rank_) == kNoColor) return std::unique_ptr<Core>();
  std::vector<int> together;
  for (int r = 0; r < size_; ++r) {
    if (color(r) == color(rank_)) together.push_back(r);
  }
  std::ranges::sort(together, {}, [&](int r) { return std::pair(key(r), r); });
  CommunicatorOptions options = options_;
  options.topology.clear();
  return make(options, job_, members_of(together, fmt::format("{}.{}", name, color(rank_))), until);
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
  if (options.dlcp_queue <= kControlPriority || options.dlcp_queue >= kPriorityCount) {
    return Error(fmt::format("dlcp_queue: {}; from {} to {} are allowed", options.dlcp_queue,
                             kControlPriority + 1, kPriorityCount - 1));
  }
  if (bound == 0) return ok_status();
  const bool averages = options.op == ReduceOp::kSum || options.op == ReduceOp::kMean;
  if (call.collective != plan::Collective::kAllreduce || !call.reduces || !averages ||
      !is_floating(call.type)) {
    return Error(
        fmt::format("loss_bound: {} on {} of {} by {}; only allreduces of floats by sum or "
                    "mean may lose anything",
                    bound, call.name, name_of(call.type), name_of(options.op)));
  }
  // Every segment begins with its number of contributions, in the place of one element.
  if (size_of(call.type) < sizeof(std::uint16_t)) {
    return Error(
        fmt::format("loss_bound: {} on {} of {}; elements must have at least 16 bits to "
                    "lose anything",
                    bound, call.name, name_of(call.type)));
  }
  if (options.transport.value_or(options_.transport) != Transport::kDlcp) {
    return Error(fmt::format("loss_bound: {} needs the transport dlcp", bound));
  }
  return ok_status();
}

Result<std::shared_ptr<Operation::State>> Communicator::Core::prepare(
    const Call& call, const CallOptions& options, std::shared_ptr<const net::PreparedPlan>& plan,
    bool awaited) {
  THALWEG_TRY_STATUS(at_home());
  if (options.deadline <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("deadline: {} ns; it must be above 0", options.deadline.count()));
  }
  if (call.root < 0 || call.root >= size_) {
    return Error(fmt::format("root: {}; from 0 to {} are allowed", call.root, size_ - 1));
  }
  THALWEG_TRY_STATUS(check_bound(call, options));
  std::shared_ptr<Operation::State> op = awaited ? spare_.take(key_of(call, options)) : nullptr;
  if (!op) {
    THALWEG_TRY(op, make_operation(call, options));
  }
  op->awaited = awaited;
  op->priority = options.priority;
  op->limit = to_duration(options.deadline);
  if (options.on_over) op->on_over = options.on_over;
  // A pointer without ownership: the operation holds the plan.
  plan = {std::shared_ptr<void>(), op->known->plan.get()};
  if (plan) THALWEG_TRY_STATUS(use_dlcp(call, options, *op));
  watch(*op, {.name = call.name,
              .elements = call.elements,
              .transport = op->dlcp ? "dlcp" : "tcp",
              .number = timeline_ ? calls_++ : 0});
  return op;
}

Status Communicator::Core::end(std::shared_ptr<Operation::State> op) {
  Status status = op->at_once ? *op->result : op->host->wait(*op);
  const bool whole_over_streams = op->known && !op->dlcp && op->parts.empty();
  if (status.ok() && whole_over_streams && op.use_count() == 1) spare_.put(std::move(op));
  return status;
}

Result<std::shared_ptr<Operation::State>> Communicator::Core::make_operation(
    const Call& call, const CallOptions& options) {
  auto op = std::make_shared<Operation::State>();
  op->host = engine_;
  op->type = call.type;
  op->op = options.op == ReduceOp::kMean ? ReduceOp::kSum : options.op;
  THALWEG_TRY(op->known, know(call, options));
  op->text = op->known->text;
  op->signature = op->known->signature;
  const std::shared_ptr<const net::PreparedPlan>& plan = op->known->plan;
  if (plan) op->plan = {plan, &plan->rank_plan};
  return op;
}

net::CallKey Communicator::Core::key_of(const Call& call, const CallOptions& options) const {
  const bool dlcp = options.transport.value_or(options_.transport) == Transport::kDlcp;
  return {call.name,      call.elements, call.type, call.root,
          options.scheme, options.op,    dlcp,      options.loss_bound};
}

Result<std::shared_ptr<const net::KnownCall>> Communicator::Core::know(const Call& call,
                                                                       const CallOptions& options) {
  const net::CallKey key = key_of(call, options);
  {
    const std::lock_guard lock(known_mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  auto known = std::make_shared<net::KnownCall>();
  known->scheme = options.scheme;
  known->key = key;
  known->key.scheme = known->scheme;
  std::string& text = known->text;
  text = fmt::format("{} of {} {}", call.name, call.elements, name_of(call.type));
  if (call.reduces) text += fmt::format(", {}", name_of(options.op));
  if (plan::has_root(call.collective)) text += fmt::format(", root {}", call.root);
  if (key.dlcp) text += fmt::format(", over dlcp with bound {}", options.loss_bound);
  if (call.elements > 0 && size_ > 1) {
    THALWEG_TRY(known->plan, plans_->get({.collective = call.collective,
                                          .elements = call.elements,
                                          .element_bytes = static_cast<int>(size_of(call.type)),
                                          .root = call.root,
                                          .scheme = options.scheme}));
    text += fmt::format(", by {}", known->plan->plan.scheme);
  }
  known->signature = signature_of(text);
  say_call(*known);
  const std::lock_guard lock(known_mutex_);
  if (known_.size() >= kMostKnown) known_.clear();
  // Another thread may have added it already. The key views the scheme of the KnownCall that it
  // leads to.
  return known_.try_emplace(known->key, known).first->second;
}

std::uint64_t Communicator::Core::signature_of(const std::string& text) { return hash_of(text, 1); }

std::uint32_t Communicator::Core::dlcp_payload() const {
  const std::optional<int> given = job_->environment.dlcp_payload;
  return given ? static_cast<std::uint32_t>(*given) : CommunicatorOptions::kUsualDlcpPayload;
}

Status Communicator::Core::use_dlcp(const Call& call, const CallOptions& options,
                                    Operation::State& op) {
  if (options.transport.value_or(options_.transport) != Transport::kDlcp) return ok_status();
  std::vector<int> ranks;
  for (const Rank peer : op.plan->peers()) ranks.push_back(peer.value());
  THALWEG_TRY(op.dlcp_peers, dlcp_->connect(ranks, net::monotonic_now() + op.limit));
  op.dlcp = Operation::State::Dlcp{
      .reduce_bound = options.loss_bound,
      .copy_bound = options.result_loss_bound.value_or(options.loss_bound / 2),
      .queue = options.dlcp_queue};
  if (options.loss_bound == 0) return ok_status();
  const std::size_t payload = dlcp_payload();
  for (const net::DlcpWays& ways : op.dlcp_peers) {
    for (const Peer& peer : ways) {
      if (peer.packet_payload() == payload) continue;
      return Error(fmt::format("{}: packets to {} take {} bytes of a tensor; dlcp_payload is {}",
                               call.name, peer.name(), peer.packet_payload(), payload));
    }
  }
  op.dlcp->segment_elements = static_cast<std::int64_t>(payload / size_of(call.type));
  return ok_status();
}

Result<std::unique_ptr<Communicator::Core>> Communicator::Core::shrink(
    std::chrono::nanoseconds window) {
  THALWEG_TRY_STATUS(at_home());
  if (window <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("window: {} ns; it must be above 0", window.count()));
  }
  if (!board_) return Error("shrink: the process is alone, and has no store to meet others");
  leave();
  const Result<std::vector<int>> here = board_->gather_survivors(size_, to_duration(window));
  if (!here.ok()) return here.error().within("shrink");
  CommunicatorOptions options = options_;
  // The ranks are no longer the topology's hosts.
  options.topology.clear();
  return make(options, job_, members_of(*here, members_.group + "'"),
              net::monotonic_now() + to_duration(options_.timeout));
}

void Communicator::Core::say_goodbye() {
  if (!home_.here()) return;
  if (channels_) channels_->say_goodbye();
  engine_->say_goodbye();
  const std::lock_guard lock(messages_->mutex);
  if (messages_->box) messages_->box->say_goodbye();
}

void Communicator::Core::leave() {
  if (atp_) atp_->settle();
  if (straggler_) straggler_->leave();
  // If construction failed, there is no engine yet.
  if (channels_) channels_->leave();
  if (engine_) engine_->leave();
  if (atp_) atp_->leave();
  if (!messages_) return;
  const std::lock_guard lock(messages_->mutex);
  if (messages_->box) messages_->box->leave();
}

Communicator::Core::Members Communicator::Core::members_of(const std::vector<int>& ranks,
                                                           std::string group) const {
  Members members;
  members.group = std::move(group);
  for (const int r : ranks) {
    if (r == rank_) members.rank = static_cast<int>(members.ranks.size());
    members.ranks.push_back(members_.ranks[static_cast<std::size_t>(r)]);
  }
  return members;
}

}  // namespace thalweg
