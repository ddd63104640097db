#include "net/metrics.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "net/address.h"
#include "net/net_counters.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {
namespace {

constexpr std::size_t kMostReaders = 16;    // for the limit of open files
constexpr std::size_t kMostRequest = 4096;  // bytes; more is no request of a reader's
constexpr Duration kPatience =
    Duration::milliseconds(2000);  // with a reader that says or takes nothing

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
    NetMetric{"packets_forged", &NetCounters::packets_forged, "packets dropped: wrong tag"},
    NetMetric{"send_errors", &NetCounters::send_errors, "packets that the kernel would not take"},
};

// A reader's connection. Nothing is waited for beyond a time, nor once `stop` can be read.
class Reader {
 public:
  Reader(Fd fd, int stop) : fd_(std::move(fd)), stop_(stop) {}

  // Up to the empty line that ends a request; empty if it does not come.
  std::string read_request() {
    std::string request;
    std::array<char, 1024> some{};
    const Time until = monotonic_now() + kPatience;
    while (request.size() < kMostRequest && ready(POLLIN, until)) {
      const ssize_t got = ::recv(fd_.get(), some.data(), some.size(), 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
      if (got > 0) request.append(some.data(), static_cast<std::size_t>(got));
      if (request.find("\r\n\r\n") != std::string::npos) return request;
    }
    return {};
  }
  void send_all(std::string_view text) {
    const Time until = monotonic_now() + kPatience;
    while (!text.empty() && ready(POLLOUT, until)) {
      const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return;
      if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
    }
    shutdown(fd_.get(), SHUT_WR);
  }

 private:
  bool ready(short events, Time until) {
    std::array<pollfd, 2> waits{{{fd_.get(), events, 0}, {stop_, POLLIN, 0}}};
    while (true) {
      const double left_ms = (until - monotonic_now()).ms();
      if (left_ms <= 0) return false;
      const int count = poll(waits.data(), waits.size(), static_cast<int>(left_ms) + 1);
      if (waits[1].revents != 0 || (count < 0 && errno != EINTR)) return false;
      if (count > 0) return true;
    }
  }

  Fd fd_;
  int stop_;
};

// The processes of a host share the setting, so each takes the next port.
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
                                                     int local_rank) {
  static std::mutex mutex;
  static std::weak_ptr<Metrics> made;
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<Metrics> there = made.lock()) return there;
  THALWEG_TRY(const std::string place, place_of(setting, local_rank));
  Result<Fd> listener = listen_tcp(place);
  if (!listener.ok()) return listener.error().within("THALWEG_METRICS");
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return system_error("THALWEG_METRICS: cannot make an eventfd", errno);
  std::shared_ptr<Metrics> metrics(new Metrics(rank, *std::move(listener), std::move(stop)));
  made = metrics;
  return metrics;
}

Metrics::Metrics(int rank, Fd listener, Fd stop)
    : rank_(rank), listener_(std::move(listener), kMostReaders), stop_(std::move(stop)) {
  thread_ = std::thread([this] { serve(); });
}

Metrics::~Metrics() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void Metrics::serve() {
  std::array<pollfd, 2> waits{{{listener_.fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  while (true) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
    if (waits[1].revents != 0) return;
    if (waits[0].revents == 0) continue;
    listener_.accept_all([this](Fd client) { answer(std::move(client)); }, [](int /*fd*/) {});
  }
}

void Metrics::answer(Fd client) {
  Reader reader(std::move(client), stop_.get());
  const std::string request = reader.read_request();
  const bool known = request.starts_with("GET / ") || request.starts_with("GET /metrics");
  const std::string body = known ? text() : "there is only /metrics\n";
  reader.send_all(
      fmt::format("HTTP/1.0 {}\r\nContent-Type: text/plain; version=0.0.4\r\n"
                  "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                  known ? "200 OK" : "404 Not Found", body.size(), body));
}

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

}  // namespace thalweg
