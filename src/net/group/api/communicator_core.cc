#include "net/group/api/communicator_core.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/prng.h"
#include "net/io/system.h"
#include "wire/atp_packet.h"

namespace thalweg {
namespace {

// Longer limits are cut to this.
constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 7);

std::uint64_t hash_of(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = mix_bits(seed + kGoldenStep);
  for (std::size_t at = 0; at < text.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
    hash = mix_bits(hash ^ word) + kGoldenStep;
  }
  return mix_bits(hash ^ text.size());
}

// What needs no other rank to be refused. Every rank says so at once: none waits for the store of a
// rank 0 that is gone.
Status check_alone(const CommunicatorOptions& options) {
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("timeout: {} ns; it must be above 0", options.timeout.count()));
  }
  if (options.channel_bytes == 0) return Error("channel_bytes: 0; it must be above 0");
  if (!(options.dlcp_line_rate_gbps >= 0)) {
    return Error(
        fmt::format("dlcp_line_rate_gbps: {}; 0 or more is allowed", options.dlcp_line_rate_gbps));
  }
  if (options.atp_elements < 1 || options.atp_elements > wire::kAtpMostElements) {
    return Error(fmt::format("atp_elements: {}; from 1 to {} are allowed", options.atp_elements,
                             wire::kAtpMostElements));
  }
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<Communicator::Core>> Communicator::Core::make(
    const CommunicatorOptions& options) {
  THALWEG_TRY_STATUS(check_alone(options));
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
  net::JoinerOptions& joiner = engine.streams.joiner;
  joiner.rank = core->rank_;
  joiner.size = core->size_;
  joiner.signature = hash_of(core->members_.group, environment.token);
  engine.streams.log = core->job_->log;
  engine.notes_steps = !net::process_environment()("THALWEG_TIMELINE").value_or("").empty();
  joiner.checks = environment.stream_checks();
  engine.streams.line_bps = net::line_bps_of(options.dlcp_line_rate_gbps);
  THALWEG_TRY_STATUS(core->prepare_metrics(engine));
  THALWEG_TRY(Listening listening, core->prepare_streams(engine, prefix, until));
  const int local = environment.local_size.value_or(environment.size);
  engine.streams.share_memory = options.shared_memory && environment.shared_memory;
  engine.crowded = local > static_cast<int>(std::thread::hardware_concurrency());
  if (core->job_->client) {
    core->board_ =
        std::make_shared<net::GroupNotices>(core->job_->open, core->members_.group, core->rank_);
    engine.consult = [board = core->board_](const std::optional<Error>& broken,
                                            const std::optional<net::CallInWords>& call) {
      if (broken) board->announce_failure(*broken);
      return call ? board->compare_calls(call->number, call->signature, call->text) : std::nullopt;
    };
  }
  core->uses_network_ = several_hosts || !engine.streams.share_memory;
  if (options.transport == Transport::kAuto && options.scheme.empty() && environment.trials) {
    core->auto_ = std::make_unique<net::AutoTable>();
  }
  THALWEG_TRY_STATUS(core->prepare_channels(engine, listening, prefix, until));
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

Result<std::shared_ptr<net::Mailbox>> Communicator::Core::Messages::get() {
  const std::lock_guard lock(mutex);
  if (!box) {
    THALWEG_TRY(box, net::Mailbox::make(options));
  }
  return box;
}

Result<std::shared_ptr<net::MessageOperation>> Communicator::Core::message(
    const Message& message, const CallOptions& options) {
  THALWEG_TRY_STATUS(at_home());
  THALWEG_TRY_STATUS(check_times(options));
  const bool any = !message.sends && message.peer == kAnyPeer;
  if (!any && (message.peer < 0 || message.peer >= size_)) {
    return Error(fmt::format("{}: {}; from 0 to {} are allowed",
                             message.sends ? "target" : "source", message.peer, size_ - 1));
  }
  if (message.tag < 0) return Error(fmt::format("tag: {}; 0 or more is allowed", message.tag));
  THALWEG_TRY(const std::shared_ptr<net::Mailbox> box, messages_->get());
  auto op = std::make_shared<net::MessageOperation>();
  op->host = box;
  op->type = message.type;
  op->elements = message.elements;
  op->tensor = message.data;
  op->sends = message.sends;
  op->peer = message.peer;
  op->tag = static_cast<std::uint32_t>(message.tag);
  op->stated = to_duration(options.deadline);
  op->limit = op->stated + to_duration(options.patience);
  op->on_over = options.on_over;
  op->text = fmt::format("{} of {} {} {} {}, tag {}", message.sends ? "send" : "recv",
                         message.elements, name_of(message.type), message.sends ? "to" : "from",
                         any ? "any rank" : fmt::format("rank {}", message.peer), message.tag);
  watch(*op, {.name = message.sends ? "send" : "recv",
              .bytes = message.elements * static_cast<std::int64_t>(size_of(message.type)),
              .transport = "tcp"});
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

Result<std::shared_ptr<net::PlannedOperation>> Communicator::Core::prepare(
    const Call& call, const CallOptions& options, std::shared_ptr<const net::PreparedPlan>& plan,
    bool awaited) {
  THALWEG_TRY_STATUS(at_home());
  THALWEG_TRY_STATUS(check_times(options));
  if (call.root < 0 || call.root >= size_) {
    return Error(fmt::format("root: {}; from 0 to {} are allowed", call.root, size_ - 1));
  }
  THALWEG_TRY_STATUS(check_bound(call, options));
  std::shared_ptr<net::PlannedOperation> op =
      awaited ? spare_.take(key_of(call, options)) : nullptr;
  if (!op) {
    THALWEG_TRY(op, make_operation(call, options));
  }
  op->awaited = awaited;
  op->priority = options.priority;
  op->stated = to_duration(options.deadline);
  op->limit = op->stated + to_duration(options.patience);
  if (options.on_over) op->on_over = options.on_over;
  // A pointer without ownership: the operation holds the plan.
  plan = {std::shared_ptr<void>(), op->known->plan.get()};
  watch(*op, {.name = call.name,
              .bytes = call.elements * static_cast<std::int64_t>(size_of(call.type)),
              .scheme = plan ? std::string_view(plan->plan.scheme) : std::string_view(),
              .transport = op->is_dlcp ? "dlcp" : "tcp",
              .number = timeline_ ? calls_++ : 0});
  return op;
}

Status Communicator::Core::end(std::shared_ptr<Operation::State> op) {
  Status status = op->at_once ? *op->result : op->host->wait(*op);
  if (status.ok() && op->is_renewable() && op.use_count() == 1) {
    spare_.put(std::static_pointer_cast<net::StreamOperation>(std::move(op)));
  }
  return status;
}

Result<std::shared_ptr<net::PlannedOperation>> Communicator::Core::make_operation(
    const Call& call, const CallOptions& options) {
  THALWEG_TRY(std::shared_ptr<const net::KnownCall> known, know(call, options));
  std::shared_ptr<net::PlannedOperation> op;
  if (known->key.dlcp && known->plan) {
    THALWEG_TRY(op, make_dlcp_operation(call, options, known->plan->rank_plan));
  } else {
    op = std::make_shared<net::StreamOperation>();
  }
  op->host = engine_;
  op->type = call.type;
  op->op = options.op == ReduceOp::kMean ? ReduceOp::kSum : options.op;
  op->text = known->text;
  op->signature = known->signature;
  if (known->plan) op->plan = {known->plan, &known->plan->rank_plan};
  op->known = std::move(known);
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

Status Communicator::Core::check_times(const CallOptions& options) {
  if (options.deadline <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("deadline: {} ns; it must be above 0", options.deadline.count()));
  }
  if (options.patience < std::chrono::nanoseconds(0)) {
    return Error(fmt::format("patience: {} ns; 0 or more is allowed", options.patience.count()));
  }
  return ok_status();
}

Duration Communicator::Core::to_duration(std::chrono::nanoseconds ns) {
  return Duration::nanoseconds(std::min(ns, kLongest).count());
}

std::uint64_t Communicator::Core::signature_of(const std::string& text) { return hash_of(text, 1); }

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
