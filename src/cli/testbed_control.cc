#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/run_job.h"
#include "cli/testbed.h"
#include "cli/testbed_hosts.h"
#include "cli/testbed_place.h"
#include "net/system.h"

namespace thalweg {
namespace {

using nlohmann::json;

constexpr Duration kBetweenCaptureLooks = Duration::milliseconds(100);

struct Arguments {
  std::string name;
  bool all = false;
  bool as_json = false;
  std::string what;   // of set: the word "link"
  std::string place;  // a link, a host or a switch
  std::vector<std::string> changes;
  std::string file;
  double seconds = 0;
  std::uint64_t frames = 0;
  std::string every;
  std::string length;
  std::uint64_t seed = 1;
  bool off = false;
};

Result<json> ask(const Arguments& arguments, const json& request) {
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(arguments.name));
  return place.ask(request);
}

Result<int> down(const Arguments& arguments) {
  if (!arguments.all) {
    THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(arguments.name));
    THALWEG_TRY_STATUS(place.take_down());
    return 0;
  }
  std::string failures;
  for (const TestbedPlace& place : TestbedPlace::all()) {
    const Status taken = place.take_down();
    if (!taken.ok()) failures += (failures.empty() ? "" : "; ") + taken.error().message();
  }
  if (!failures.empty()) return Error(failures);
  return 0;
}

Result<int> list(const Arguments& arguments) {
  std::vector<std::vector<std::string>> rows{{"testbed", "state", "hosts", "process"}};
  json all = json::array();
  for (const TestbedPlace& place : TestbedPlace::all()) {
    const Result<json> stats = place.ask(json{{"do", "stats"}});
    const std::size_t hosts = stats.ok() ? (*stats)["hosts"].size() : 0;
    const int pid = stats.ok() ? (*stats)["pid"].get<int>() : 0;
    const char* state = stats.ok() ? "up" : place.holder() ? "silent" : "dead";
    rows.push_back({place.name(), state, std::to_string(hosts), std::to_string(pid)});
    all.push_back({{"name", place.name()}, {"state", state}, {"hosts", hosts}, {"pid", pid}});
  }
  std::cout << (arguments.as_json ? all.dump(2) + "\n" : format_table(rows));
  return 0;
}

Result<int> stats(const Arguments& arguments) {
  THALWEG_TRY(const json answer, ask(arguments, {{"do", "stats"}}));
  if (arguments.as_json) {
    std::cout << answer.dump(2) << '\n';
    return 0;
  }
  std::vector<std::vector<std::string>> rows{{"link", "from", "rate", "bytes", "queued", "drops"}};
  for (const json& link : answer["links"]) {
    const auto rate = Bandwidth::bits_per_second(link["rate_bps"].get<std::int64_t>());
    for (const json& arc : link["arcs"]) {
      rows.push_back({link["name"].get<std::string>(), arc["from"].get<std::string>(),
                      to_string(rate), arc["bytes"].dump(), arc["queued"].dump(),
                      arc["drops"].dump()});
    }
  }
  std::cout << format_table(rows) << '\n';
  rows = {{"frames", "count"}};
  for (const auto& [name, count] : answer["frames"].items()) rows.push_back({name, count.dump()});
  for (const auto& [name, count] : answer["late"].items()) {
    rows.push_back({"late " + name, count.dump()});
  }
  std::cout << format_table(rows);
  return 0;
}

// The devices of hosts whose links have another rate send at it.
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

Result<int> set(const Arguments& arguments) {
  if (arguments.what != "link") {
    return Error(fmt::format("set: '{}' is unknown: thalweg testbed set link A-B rate=100M loss=1%",
                             arguments.what));
  }
  const std::string change = fmt::format("{}", fmt::join(arguments.changes, " "));
  THALWEG_TRY(const json answer,
              ask(arguments, {{"do", "set"}, {"link", arguments.place}, {"change", change}}));
  if (answer["hosts"].empty()) return 0;
  THALWEG_TRY(const json now, ask(arguments, {{"do", "stats"}}));
  THALWEG_TRY_STATUS(shape_again(now, answer["hosts"]));
  return 0;
}

Result<int> capture(const Arguments& arguments) {
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(arguments.name));
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const Fd signals(signalfd(-1, &ends, SFD_CLOEXEC));
  THALWEG_TRY(ControlConnection connection, place.connect());
  THALWEG_TRY(
      [[maybe_unused]] const json answer,
      TestbedPlace::ask(connection, {{"do", "capture"},
                                     {"place", arguments.place},
                                     {"file", std::filesystem::absolute(arguments.file).string()},
                                     {"most", arguments.frames}}));
  std::cout << fmt::format("capturing {} to {}\n", arguments.place, arguments.file) << std::flush;
  std::optional<Time> until;
  if (arguments.seconds > 0) until = monotonic_now() + Duration::seconds(arguments.seconds);
  // The testbed says nothing by itself; a capture of so many frames is over when it has them.
  for (bool full = false; !full && (!until || monotonic_now() < *until);) {
    Duration left = kBetweenCaptureLooks;
    if (until) left = std::min(left, *until - monotonic_now());
    pollfd wait{.fd = signals.get(), .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, static_cast<int>(left.ms()) + 1) > 0) break;
    THALWEG_TRY(const json look, TestbedPlace::ask(connection, {{"do", "capture-look"}}));
    full = look["full"].get<bool>();
  }
  THALWEG_TRY([[maybe_unused]] const json last,
              TestbedPlace::ask(connection, {{"do", "capture-end"}}));
  std::cout << fmt::format("{} frames\n", last["frames"].dump());
  return 0;
}

Result<int> stall(const Arguments& arguments) {
  json request{{"do", "stall"}, {"off", arguments.off}, {"seed", arguments.seed}};
  if (arguments.off == (!arguments.every.empty() || !arguments.length.empty())) {
    return Error("stall: give --every and --for, or --off");
  }
  if (!arguments.off) {
    THALWEG_TRY(const Duration every, positive_duration("--every", arguments.every));
    THALWEG_TRY(const Duration length, positive_duration("--for", arguments.length));
    request["every_ms"] = every.s() * 1e3;
    request["for_ms"] = length.s() * 1e3;
  }
  THALWEG_TRY([[maybe_unused]] const json answer, ask(arguments, request));
  return 0;
}

Result<int> tell(const Arguments& arguments, const char* what) {
  THALWEG_TRY([[maybe_unused]] const json answer,
              ask(arguments, {{"do", what}, {"node", arguments.place}}));
  return 0;
}

}  // namespace

void add_testbed_name(CLI::App& app, std::string& name) {
  name = "testbed";
  app.add_option("--name", name, "of the testbed")->capture_default_str();
}

void add_testbed_control(CLI::App& testbed) {
  auto arguments = std::make_shared<Arguments>();
  const auto add = [&](const char* word, const char* help, auto body) {
    CLI::App* app = testbed.add_subcommand(word, help);
    add_testbed_name(*app, arguments->name);
    on_run(*app, [arguments, body] { return body(*arguments); });
    return app;
  };
  add("down", "end it: processes, namespaces, devices; also after a crash", down)
      ->add_flag("--all", arguments->all, "every testbed of this user");
  CLI::App* listed = add("list", "the testbeds there are", list);
  CLI::App* counted = add("stats", "what its links carry, queue and drop", stats);
  for (CLI::App* app : {listed, counted}) app->add_flag("--json", arguments->as_json, "as JSON");
  CLI::App* changed = add("set", "change a link: set link A-B rate=100M loss=1%", set);
  changed->add_option("what", arguments->what, "the word 'link'")->required();
  changed->add_option("link", arguments->place, "its ends' names, A-B; or all")->required();
  changed
      ->add_option("change", arguments->changes,
                   "rate=, delay=, loss=, burst=GOOD:BAD packets, up=yes or up=no")
      ->required();
  for (const auto& [word, help] :
       {std::pair{"restart", "a switch loses all that waits in it"},
        std::pair{"pause", "a host sends nothing"}, std::pair{"resume", "it sends again"}}) {
    add(word, help, [word](const Arguments& given) { return tell(given, word); })
        ->add_option("node", arguments->place, "its name")
        ->required();
  }
  CLI::App* stalled = add("stall", "at random moments a host sends nothing for a while", stall);
  stalled->add_option("--every", arguments->every, "mean time between two, as in 500ms");
  stalled->add_option("--for", arguments->length, "how long, as in 20ms");
  stalled->add_option("--seed", arguments->seed, "of the moments and hosts")->capture_default_str();
  stalled->add_flag("--off", arguments->off, "no more of it");
  CLI::App* captured = add("capture", "frames at a host or on a link, to a pcap file", capture);
  captured->add_option("place", arguments->place, "a host, or a link A-B")->required();
  captured->add_option("file", arguments->file, "for tcpdump or Wireshark")->required();
  captured->add_option("--seconds", arguments->seconds, "end after so long (until interrupted)")
      ->check(CLI::Range(0.001, 1e6));
  captured->add_option("--frames", arguments->frames, "at most so many");
}

}  // namespace thalweg
