// Reads Prometheus' text from the places that THALWEG_METRICS named, and shows what was added since
// the last look.
#include "cli/top.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/command.h"
#include "net/address.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {
namespace {

constexpr Duration kPatience = Duration::milliseconds(2000);  // with one place
constexpr std::size_t kMostAnswer = 1'000'000;                // bytes
constexpr std::string_view kPrefix = "thalweg_";
constexpr std::string_view kSuffix = "_total";

struct Arguments {
  std::vector<std::string> places = {"127.0.0.1:9464"};
  double interval_s = 2;
  bool once = false;
  bool json = false;
};

// By name without prefix and labels: sums over the calls.
using Values = std::map<std::string, double>;

struct Look {
  Values values;
  std::string rank;
  std::string error;  // empty: it answered
  Time when;          // it did
};

Result<std::string> fetch(const std::string& place) {
  const Time until = monotonic_now() + kPatience;
  THALWEG_TRY(const SocketAddress address, SocketAddress::resolve(place));
  THALWEG_TRY(const Fd stream, connect_tcp(address, place, until));
  const std::string request = fmt::format("GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", place);
  if (::send(stream.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return system_error("cannot ask " + place, errno);
  }
  std::string answer;
  std::array<char, 4096> some{};
  while (answer.size() < kMostAnswer && wait_for_socket(stream.get(), POLLIN, until)) {
    const ssize_t got = ::recv(stream.get(), some.data(), some.size(), 0);
    if (got == 0) return answer;
    if (got < 0 && errno != EAGAIN && errno != EINTR) break;
    if (got > 0) answer.append(some.data(), static_cast<std::size_t>(got));
  }
  return Error(fmt::format("{}: no whole answer within {}", place, to_string(kPatience)));
}

// One line of a metric of ours: name, labels and value. False for any other.
bool parse_line(std::string_view line, Look& look) {
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
    look.rank = line.substr(first, line.find('"', first) - first);
  }
  look.values[std::string(name)] += value;
  return true;
}

Look look_at(const std::string& place) {
  Look look;
  const Result<std::string> answer = fetch(place);
  if (!answer.ok()) {
    look.error = answer.error().message();
    return look;
  }
  look.when = monotonic_now();
  std::string_view rest = *answer;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    parse_line(rest.substr(0, end), look);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (look.values.empty()) look.error = place + ": no metrics of Thalweg there";
  return look;
}

nlohmann::json json_of(const std::vector<std::string>& places, const std::vector<Look>& looks) {
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t i = 0; i < places.size(); ++i) {
    nlohmann::json one = {{"place", places[i]}};
    if (looks[i].error.empty()) {
      one["rank"] = looks[i].rank;
      one["metrics"] = looks[i].values;
    } else {
      one["error"] = looks[i].error;
    }
    all.push_back(one);
  }
  return all;
}

double value_in(const Look& look, const char* name) {
  const auto found = look.values.find(name);
  return found == look.values.end() ? 0 : found->second;
}

// Rates since the last look; since the beginning, as counts, if there was none. A rank that could
// not be looked at before, or counts less than before, has begun anew: no rate.
std::string table_of(const std::vector<std::string>& places, const std::vector<Look>& looks,
                     const std::vector<Look>& before) {
  const bool rates = !before.empty();
  const std::string per = rates ? "/s" : "";
  std::vector<std::vector<std::string>> rows = {{"place", "rank", "calls" + per, "MB" + per,
                                                 "failed", "packets" + per, "again" + per,
                                                 "marked" + per}};
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!looks[i].error.empty()) {
      rows.push_back({places[i], "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const auto since = [&](const char* name, double unit, int digits) -> std::string {
      double value = value_in(looks[i], name);
      if (rates) {
        const double then = value_in(before[i], name);
        if (!before[i].error.empty() || value < then) return "-";
        value = (value - then) / (looks[i].when - before[i].when).s();
      }
      return fmt::format("{:.{}f}", value / unit, digits);
    };
    const auto count = [&](const char* name) { return since(name, 1, 0); };
    rows.push_back({places[i], looks[i].rank, count("operations"), since("bytes", 1e6, 1),
                    fmt::format("{:.0f}", value_in(looks[i], "failures")), count("packets_sent"),
                    count("packets_retransmitted"), count("packets_marked")});
  }
  std::string text = format_table(rows);
  for (const Look& look : looks) {
    if (!look.error.empty()) text += look.error + "\n";
  }
  return text;
}

Result<int> run(const Arguments& arguments) {
  if (!(arguments.interval_s > 0)) {
    return Error(fmt::format("--interval: {}; it must be above 0", arguments.interval_s));
  }
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  std::vector<Look> before;
  while (true) {
    std::vector<Look> looks;
    for (const std::string& place : arguments.places) looks.push_back(look_at(place));
    if (terminal && !arguments.once) std::cout << "\x1b[H\x1b[2J";
    if (arguments.json) {
      std::cout << json_of(arguments.places, looks).dump(arguments.once ? 1 : -1) << '\n';
    } else {
      std::cout << table_of(arguments.places, looks, before);
    }
    std::cout << std::flush;
    if (arguments.once || !std::cout) {
      for (const Look& look : looks) {
        if (look.error.empty()) return 0;
      }
      return kExitNo;
    }
    before = std::move(looks);
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval_s));
  }
}

}  // namespace

void add_top(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand(
      "top",
      "What ranks are doing, from their metrics (THALWEG_METRICS); exit code 1 if none answers");
  command.add_option("places", arguments->places, "host:port of one or more ranks")
      ->capture_default_str();
  command.add_option("--interval", arguments->interval_s, "Seconds between looks")
      ->capture_default_str();
  command.add_flag("--once", arguments->once, "Look once: counts since the start");
  command.add_flag("--json", arguments->json, "Print JSON");
  on_run(command, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
