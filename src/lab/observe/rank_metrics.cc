#include "lab/observe/rank_metrics.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include <thalweg/result.h>

#include "base/printable.h"
#include "lab/console.h"
#include "lab/observe/reach.h"
#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::lab {
namespace {

constexpr Duration kMetricsPatience = Duration::milliseconds(2000);  // with one rank
constexpr std::size_t kMostAnswer = 1'000'000;                       // bytes
constexpr std::string_view kPrefix = "thalweg_";
constexpr std::string_view kSuffix = "_total";

// The answer to a GET of /metrics, headers included.
Result<std::string> fetch(const std::string& place, const std::string& token) {
  const Time until = net::monotonic_now() + kMetricsPatience;
  THALWEG_TRY_STATUS(check_listening(
      place,
      {.what = "rank", .usual_port = 9464, .hint = "THALWEG_METRICS=host:port lets ranks answer"},
      until));
  THALWEG_TRY(const net::SocketAddress address, net::SocketAddress::resolve(place));
  THALWEG_TRY(const net::Fd stream, net::connect_tcp(address, place, until));
  const std::string bearer =
      token.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", token);
  const std::string request =
      fmt::format("GET /metrics HTTP/1.0\r\nHost: {}\r\n{}\r\n", place, bearer);
  if (::send(stream.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return net::system_error("cannot ask " + place, errno);
  }
  std::string answer;
  std::array<char, 4096> some{};
  while (answer.size() < kMostAnswer && net::wait_for_socket(stream.get(), POLLIN, until)) {
    const ssize_t got = ::recv(stream.get(), some.data(), some.size(), 0);
    if (got == 0) return answer;
    if (got < 0 && errno != EAGAIN && errno != EINTR) break;
    if (got > 0) answer.append(some.data(), static_cast<std::size_t>(got));
  }
  return Error(fmt::format("{}: no whole answer within {}", place, to_string(kMetricsPatience)));
}

// Adds the value of a line that holds a metric of ours (name, labels and value) to `metrics`.
// Returns false for any other line.
bool parse_line(std::string_view line, RankMetrics& metrics) {
  if (!line.starts_with(kPrefix)) return false;
  const std::size_t open = line.find('{');
  const std::size_t close = line.find("} ");
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return false;
  std::string_view name = line.substr(kPrefix.size(), open - kPrefix.size());
  if (!name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  const std::string_view number = line.substr(close + 2);
  double value = 0;
  if (std::from_chars(number.data(), number.data() + number.size(), value).ec != std::errc()) {
    return false;
  }
  constexpr std::string_view kRank = "rank=\"";
  if (const std::size_t at = line.find(kRank); at < close) {
    const std::size_t first = at + kRank.size();
    metrics.rank = line.substr(first, line.find('"', first) - first);
  }
  metrics.values[std::string(name)] += value;
  return true;
}

double value_in(const RankMetrics& metrics, const char* name) {
  const auto found = metrics.values.find(name);
  return found == metrics.values.end() ? 0 : found->second;
}

}  // namespace

RankMetrics read_rank_metrics(const std::string& place, const std::string& token) {
  RankMetrics metrics;
  const Result<std::string> answer = fetch(place, token);
  if (!answer.ok()) {
    metrics.error = answer.error().message();
    return metrics;
  }
  constexpr std::string_view kNotAllowed = "HTTP/1.0 401";
  if (answer->starts_with(kNotAllowed)) {
    metrics.error = place + (token.empty() ? ": the job has a key, and we have none (--key-file or "
                                             "THALWEG_KEY_FILE names its file)"
                                           : ": wrong key: it is not the one of the job");
    return metrics;
  }
  metrics.when = net::monotonic_now();
  std::string_view rest = *answer;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    parse_line(rest.substr(0, end), metrics);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (metrics.values.empty()) metrics.error = place + ": no metrics of Thalweg there";
  return metrics;
}

nlohmann::json metrics_json(const std::vector<std::string>& places,
                            const std::vector<RankMetrics>& metrics) {
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t i = 0; i < places.size(); ++i) {
    nlohmann::json one = {{"place", places[i]}};
    if (metrics[i].error.empty()) {
      one["rank"] = metrics[i].rank;
      one["metrics"] = metrics[i].values;
    } else {
      one["error"] = metrics[i].error;
    }
    all.push_back(one);
  }
  return all;
}

std::string metrics_table(const std::vector<std::string>& places,
                          const std::vector<RankMetrics>& metrics,
                          const std::vector<RankMetrics>& before) {
  const bool rates = !before.empty();
  const std::string per = rates ? "/s" : "";
  std::vector<std::vector<std::string>> rows = {{"place", "rank", "calls" + per, "MB" + per,
                                                 "failed", "packets" + per, "again" + per,
                                                 "marked" + per}};
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!metrics[i].error.empty()) {
      rows.push_back({places[i], "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const auto since = [&](const char* name, double unit, int digits) -> std::string {
      double value = value_in(metrics[i], name);
      if (rates) {
        const double then = value_in(before[i], name);
        if (!before[i].error.empty() || value < then) return "-";
        value = (value - then) / (metrics[i].when - before[i].when).s();
      }
      return fmt::format("{:.{}f}", value / unit, digits);
    };
    const auto count = [&](const char* name) { return since(name, 1, 0); };
    rows.push_back({places[i], metrics[i].rank, count("operations"), since("bytes", 1e6, 1),
                    fmt::format("{:.0f}", value_in(metrics[i], "failures")), count("packets_sent"),
                    count("packets_retransmitted"), count("packets_marked")});
  }
  std::string text = format_table(rows);
  for (const RankMetrics& one : metrics) {
    if (!one.error.empty()) text += printable(one.error) + "\n";
  }
  return text;
}

}  // namespace thalweg::lab
