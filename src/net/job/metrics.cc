#include "net/job/metrics.h"

#include <fmt/core.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "net/auth/derived_key.h"
#include "net/dlcp/net_counters.h"
#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

struct NetMetric {
  const char* name;
  std::uint64_t NetCounters::* value;
  const char* help;
};
constexpr std::array kNetMetrics{
    NetMetric{"packets_sent", &NetCounters::packets_sent, "DLCP packets sent"},
    NetMetric{"packets_retransmitted", &NetCounters::packets_retransmitted,
              "DLCP packets sent again"},
    NetMetric{"packets_received", &NetCounters::packets_received,
              "DLCP packets placed in a tensor"},
    NetMetric{"packets_marked", &NetCounters::packets_marked, "DLCP packets marked as congested"},
    NetMetric{"packets_unused", &NetCounters::packets_unused, "DLCP packets that came too late"},
    NetMetric{"packets_bad", &NetCounters::packets_bad, "packets dropped: not of this job"},
    NetMetric{"packets_corrupt", &NetCounters::packets_corrupt,
              "packets dropped: changed on their way"},
    NetMetric{"packets_forged", &NetCounters::packets_forged, "packets dropped: wrong tag"},
    NetMetric{"send_errors", &NetCounters::send_errors, "packets that the kernel would not take"},
};

// The address to listen at. The processes of a host share the setting, so each adds its local rank
// to the port.
Result<std::string> place_of(const std::string& setting, int local_rank) {
  Result<HostPort> place =
      HostPort::parse(setting.starts_with(':') ? "127.0.0.1" + setting : setting);
  if (!place.ok()) return place.error().within("THALWEG_METRICS");
  if (place->port == 0 || place->port + local_rank > 65'535) {
    return Error(fmt::format(
        "THALWEG_METRICS: '{}': the port plus the local rank, {}, must be from 1 to 65535", setting,
        local_rank));
  }
  place->port = static_cast<std::uint16_t>(place->port + local_rank);
  return place->to_string();
}

}  // namespace

Result<std::shared_ptr<Metrics>> Metrics::of_process(const std::string& setting, int rank,
                                                     int local_rank,
                                                     const std::optional<wire::JobKey>& key) {
  static std::mutex mutex;
  static std::weak_ptr<Metrics> made;
  const std::lock_guard lock(mutex);
  // That of a parent process counts the parent's calls, and its thread is not here.
  if (std::shared_ptr<Metrics> there = made.lock(); there && there->home_.here()) return there;
  THALWEG_TRY(const std::string place, place_of(setting, local_rank));
  Result<Fd> listener = listen_tcp(place);
  if (!listener.ok()) return listener.error().within("THALWEG_METRICS");
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return system_error("THALWEG_METRICS: cannot make an eventfd", errno);
  std::shared_ptr<Metrics> metrics(
      new Metrics(rank, *std::move(listener), std::move(stop), key ? metrics_token(*key) : ""));
  made = metrics;
  return metrics;
}

std::string metrics_token(const wire::JobKey& key) {
  return hex_of(derived_key(key, KeyPurpose::kMetrics));
}

Metrics::Metrics(int rank, Fd listener, Fd stop, std::string token)
    : rank_(rank),
      server_(std::move(listener), std::move(stop), std::move(token), [this] { return text(); }) {}

void Metrics::watch(Operation::State& op, std::string_view name, std::int64_t bytes) {
  op.on_over = [self = shared_from_this(), raw = &op, name = std::string(name), bytes,
                then = std::move(op.on_over)] {
    self->count(name, bytes, !raw->result->ok());
    if (then) then();
  };
}

void Metrics::count(const std::string& name, std::int64_t bytes, bool failed) {
  const std::lock_guard lock(mutex_);
  Counts& counts = counts_[name];
  ++counts.operations;
  counts.failures += failed ? 1 : 0;
  counts.bytes += static_cast<std::uint64_t>(bytes);
}

void Metrics::note_choice(const std::string& kind, const std::string& way) {
  const std::lock_guard lock(mutex_);
  Choice& choice = choices_[kind];
  choice.way = way;
  ++choice.decisions;
}

void Metrics::count_spoiled_frame() {
  const std::lock_guard lock(mutex_);
  ++spoiled_frames_;
}

void Metrics::count_moved_stream() {
  const std::lock_guard lock(mutex_);
  ++moved_streams_;
}

std::shared_ptr<void> Metrics::add(Source source) {
  const std::lock_guard lock(sources_mutex_);
  const auto place = sources_.insert(sources_.end(), std::move(source));
  return {nullptr, [self = shared_from_this(), place](void* /*none*/) {
            const std::lock_guard again(self->sources_mutex_);
            thalweg::add(self->ended_, (*place)());
            self->sources_.erase(place);
          }};
}

std::string Metrics::text() {
  std::string text;
  const auto head = [&](const char* name, const char* help) {
    text +=
        fmt::format("# HELP thalweg_{0}_total {1}\n# TYPE thalweg_{0}_total counter\n", name, help);
  };
  const auto by_call = [&](const char* name, const char* help, std::uint64_t Counts::* value) {
    head(name, help);
    const std::lock_guard lock(mutex_);
    for (const auto& [call, counts] : counts_) {
      text += fmt::format("thalweg_{}_total{{rank=\"{}\",call=\"{}\"}} {}\n", name, rank_, call,
                          counts.*value);
    }
  };
  by_call("operations", "calls that are over", &Counts::operations);
  by_call("failures", "calls that failed", &Counts::failures);
  by_call("bytes", "bytes of the tensors of calls", &Counts::bytes);
  head("auto_decisions", "decisions of the transport auto, by kind of call, with the way in use");
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [kind, choice] : choices_) {
      text += fmt::format("thalweg_auto_decisions_total{{rank=\"{}\",kind=\"{}\",way=\"{}\"}} {}\n",
                          rank_, kind, choice.way, choice.decisions);
    }
  }
  head("frames_corrupt", "frames of TCP streams that changed on their way");
  {
    const std::lock_guard lock(mutex_);
    text += fmt::format("thalweg_frames_corrupt_total{{rank=\"{}\"}} {}\n", rank_, spoiled_frames_);
  }
  head("streams_moved",
       "TCP streams that went on by another path because theirs died, or came back");
  {
    const std::lock_guard lock(mutex_);
    text += fmt::format("thalweg_streams_moved_total{{rank=\"{}\"}} {}\n", rank_, moved_streams_);
  }
  const std::lock_guard lock(sources_mutex_);
  NetCounters total = ended_;
  for (const Source& source : sources_) thalweg::add(total, source());
  for (const NetMetric& metric : kNetMetrics) {
    head(metric.name, metric.help);
    text += fmt::format("thalweg_{}_total{{rank=\"{}\"}} {}\n", metric.name, rank_,
                        total.*metric.value);
  }
  return text;
}

}  // namespace thalweg::net
