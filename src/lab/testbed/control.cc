#include "lab/testbed/control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "lab/console.h"
#include "lab/terminal.h"
#include "lab/testbed/hosts.h"
#include "lab/testbed/place.h"
#include "launch/job.h"
#include "net/io/system.h"

namespace thalweg::lab {
namespace {

using nlohmann::json;

constexpr Duration kBetweenCaptureLooks = Duration::milliseconds(100);

Result<json> ask(const std::string& name, const json& request) {
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(name));
  return place.ask(request);
}

// Makes the devices of these hosts send at the rates that their links have by `stats`.
Status shape_again(const json& stats, const json& ranks) {
  for (const json& rank : ranks) {
    const json& host = stats["hosts"][rank.get<std::size_t>()];
    std::int64_t bps = 0;
    for (const json& link : stats["links"]) {
      for (const json& arc : link["arcs"]) {
        if (arc["from"] == host["name"]) bps += link["rate_bps"].get<std::int64_t>();
      }
    }
    THALWEG_TRY_STATUS(
        enter_testbed_host(stats["pid"].get<pid_t>(), host["enter"].get<std::string>()));
    THALWEG_TRY_STATUS(shape_testbed_device(Bandwidth::bits_per_second(bps),
                                            stats["mtu"].get<std::size_t>(),
                                            stats["framing"].get<std::uint32_t>()));
  }
  return ok_status();
}

}  // namespace

Status take_down_all_testbeds() {
  std::string failures;
  for (const TestbedPlace& place : TestbedPlace::all()) {
    const Status taken = place.take_down();
    if (!taken.ok()) failures += (failures.empty() ? "" : "; ") + taken.error().message();
  }
  if (!failures.empty()) return Error(failures);
  return ok_status();
}

json list_testbeds() {
  json all = json::array();
  for (const TestbedPlace& place : TestbedPlace::all()) {
    const Result<json> stats = place.ask(json{{"do", "stats"}});
    const std::size_t hosts = stats.ok() ? (*stats)["hosts"].size() : 0;
    const int pid = stats.ok() ? (*stats)["pid"].get<int>() : 0;
    const char* state = stats.ok() ? "up" : place.holder() ? "silent" : "dead";
    all.push_back({{"name", place.name()}, {"state", state}, {"hosts", hosts}, {"pid", pid}});
  }
  return all;
}

std::string testbeds_text(const json& testbeds) {
  std::vector<std::vector<std::string>> rows{{"testbed", "state", "hosts", "process"}};
  for (const json& one : testbeds) {
    rows.push_back({one["name"].get<std::string>(), one["state"].get<std::string>(),
                    one["hosts"].dump(), one["pid"].dump()});
  }
  return format_table(rows);
}

Result<json> testbed_stats(const std::string& name) { return ask(name, {{"do", "stats"}}); }

std::string testbed_stats_text(const json& stats) {
  std::vector<std::vector<std::string>> rows{{"link", "from", "rate", "bytes", "queued", "drops"}};
  for (const json& link : stats["links"]) {
    const auto rate = Bandwidth::bits_per_second(link["rate_bps"].get<std::int64_t>());
    for (const json& arc : link["arcs"]) {
      rows.push_back({link["name"].get<std::string>(), arc["from"].get<std::string>(),
                      to_string(rate), arc["bytes"].dump(), arc["queued"].dump(),
                      arc["drops"].dump()});
    }
  }
  std::string text = format_table(rows) + "\n";
  rows = {{"frames", "count"}};
  for (const auto& [name, count] : stats["frames"].items()) rows.push_back({name, count.dump()});
  for (const auto& [name, count] : stats["late"].items()) {
    rows.push_back({"late " + name, count.dump()});
  }
  return text + format_table(rows);
}

Status set_testbed_link(const std::string& name, const std::string& link,
                        const std::vector<std::string>& changes) {
  const std::string change = fmt::format("{}", fmt::join(changes, " "));
  THALWEG_TRY(const json answer, ask(name, {{"do", "set"}, {"link", link}, {"change", change}}));
  if (answer["hosts"].empty()) return ok_status();
  THALWEG_TRY(const json now, testbed_stats(name));
  return shape_again(now, answer["hosts"]);
}

Result<std::uint64_t> capture_testbed(const std::string& name, const TestbedCapture& capture,
                                      const std::function<void()>& started) {
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(name));
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const net::Fd signals(signalfd(-1, &ends, SFD_CLOEXEC));
  THALWEG_TRY(net::ControlConnection connection, place.connect());
  THALWEG_TRY(
      [[maybe_unused]] const json answer,
      TestbedPlace::ask(connection, {{"do", "capture"},
                                     {"place", capture.place},
                                     {"file", std::filesystem::absolute(capture.file).string()},
                                     {"most", capture.frames}}));
  started();
  std::optional<Time> until;
  if (capture.seconds > 0) until = net::monotonic_now() + Duration::seconds(capture.seconds);
  Progress progress;
  // The testbed does not say when a capture has all its frames: it must be asked.
  for (bool full = false; !full && (!until || net::monotonic_now() < *until);) {
    Duration left = kBetweenCaptureLooks;
    if (until) left = std::min(left, *until - net::monotonic_now());
    pollfd wait{.fd = signals.get(), .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, static_cast<int>(left.ms()) + 1) > 0) break;
    THALWEG_TRY(const json look, TestbedPlace::ask(connection, {{"do", "capture-look"}}));
    full = look["full"].get<bool>();
    if (until)
      progress.show("capturing", 1 - (*until - net::monotonic_now()).s() / capture.seconds);
  }
  THALWEG_TRY(const json last, TestbedPlace::ask(connection, {{"do", "capture-end"}}));
  return last["frames"].get<std::uint64_t>();
}

Status stall_testbed(const std::string& name, const TestbedStalls& stalls) {
  json request{{"do", "stall"}, {"off", stalls.off}, {"seed", stalls.seed}};
  if (stalls.off == (!stalls.every.empty() || !stalls.length.empty())) {
    return Error("stall: give --every and --for, or --off");
  }
  if (!stalls.off) {
    THALWEG_TRY(const Duration every, launch::positive_duration("--every", stalls.every));
    THALWEG_TRY(const Duration length, launch::positive_duration("--for", stalls.length));
    request["every_ms"] = every.s() * 1e3;
    request["for_ms"] = length.s() * 1e3;
  }
  THALWEG_TRY([[maybe_unused]] const json answer, ask(name, request));
  return ok_status();
}

Status tell_testbed_node(const std::string& name, const std::string& action,
                         const std::string& node) {
  THALWEG_TRY([[maybe_unused]] const json answer, ask(name, {{"do", action}, {"node", node}}));
  return ok_status();
}

}  // namespace thalweg::lab
