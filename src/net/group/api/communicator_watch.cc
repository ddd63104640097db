// What watches a communicator's calls from outside: metrics, the timeline and the debug log.
#include <fmt/format.h>

#include <utility>

#include "net/group/api/communicator_core.h"
#include "net/io/system.h"

namespace thalweg {
namespace {

// Kinds of calls in the debug log at level INFO. Programs whose sizes vary have thousands.
constexpr int kMostCallsSaid = 12;

}  // namespace

Status Communicator::Core::prepare_metrics(net::EngineOptions& engine) {
  const net::Environment& environment = job_->environment;
  const std::string metrics = net::process_environment()("THALWEG_METRICS").value_or("");
  if (metrics.empty()) return ok_status();
  THALWEG_TRY(metrics_,
              net::Metrics::of_process(metrics, environment.rank,
                                       environment.local_rank.value_or(0), job_->job_key));
  engine.streams.joiner.on_spoiled_frame = [counts = metrics_] { counts->count_spoiled_frame(); };
  engine.streams.on_moved_stream = [counts = metrics_] { counts->count_moved_stream(); };
  return ok_status();
}

Status Communicator::Core::prepare_watchers() {
  const net::EnvironmentLookup variables = net::process_environment();
  const net::Environment& environment = job_->environment;
  const std::string timeline = variables("THALWEG_TIMELINE").value_or("");
  if (!timeline.empty()) {
    THALWEG_TRY(timeline_, net::Timeline::of_process(timeline, environment.rank, environment.size));
    timeline_->add_group(members_.group, members_.ranks);
  }
  if (!metrics_) return ok_status();
  packet_metrics_ = metrics_->add([peers = dlcp_.get(), atp = atp_.get()] {
    NetCounters counters = peers->counters();
    if (atp != nullptr) counters.packets_corrupt += atp->corrupt();
    return counters;
  });
  return ok_status();
}

void Communicator::Core::say_how(const Listening& listening) const {
  const net::DebugLog& log = job_->log;
  if (!log.shows(net::DebugLevel::kInfo)) return;
  const net::Environment& environment = job_->environment;
  log.info("communicator '{}' of {} ranks, this is {}: listens at {}", members_.group, size_, rank_,
           listening.own);
  log.info("transport {}, scheme {}, streams to a rank {}, {}, {}", name_of(options_.transport),
           options_.scheme.empty() ? "by size" : options_.scheme, environment.streams,
           environment.channels ? fmt::format("{} channels", *environment.channels)
                                : std::string("channels by the network"),
           options_.shared_memory && environment.shared_memory ? "memory shared within a host"
                                                               : "no shared memory");
  if (!environment.interfaces.empty()) {
    log.info("interfaces {}", fmt::join(environment.interfaces, ", "));
  }
  if (atp_) {
    log.info("atp: {}, {} servers, blocks of {} elements",
             atp_->has_switch() ? fmt::format("switches sum on {} levels", atp_->levels())
                                : std::string("no switch answers"),
             atp_->servers(), atp_->elements());
  } else if (options_.transport == Transport::kAuto) {
    log.info("no switch sums: every call goes over tcp");
  }
  if (timeline_) log.info("writes a timeline");
}

void Communicator::Core::say_call(const net::KnownCall& known) {
  if (!job_->log.shows(net::DebugLevel::kInfo)) return;
  const int said = ++calls_said_;
  if (said > kMostCallsSaid && !job_->log.shows(net::DebugLevel::kTrace)) return;
  job_->log.info("{}", known.text);
  if (said == kMostCallsSaid) job_->log.info("further kinds of calls: THALWEG_DEBUG=TRACE");
}

void Communicator::Core::watch(Operation::State& op, const Watched& call) {
  if (metrics_) metrics_->watch(op, call.name, call.bytes);
  if (timeline_) {
    timeline_->watch(op, {.name = call.name,
                          .group = members_.group,
                          .scheme = call.scheme,
                          .transport = call.transport,
                          .size = Bytes(call.bytes),
                          .number = call.number});
  }
  if (!job_->log.shows(net::DebugLevel::kTrace)) return;
  job_->log.trace("{}: called", op.text);
  op.on_over = [log = job_->log, raw = &op, called = net::monotonic_now(),
                then = std::move(op.on_over)] {
    log.trace("{}: {} after {:.3f} ms", raw->text, raw->result->ok() ? "over" : "failed",
              (net::monotonic_now() - called).ms());
    if (then) then();
  };
}

}  // namespace thalweg
