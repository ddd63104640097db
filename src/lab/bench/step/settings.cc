#include "lab/bench/step/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/fraction.h"
#include "base/segment_tag.h"
#include "lab/bench/step/limit.h"
#include "lab/files.h"
#include "lab/sweep/scenario_files.h"
#include "lab/testbed/aggregators.h"
#include "launch/job.h"
#include "topology/format/load.h"

namespace thalweg::lab::step {
namespace {

constexpr int kMaxSteps = 100'000;
constexpr int kMaxWindow = 10'000;
constexpr int kMaxPriorities = static_cast<int>(kPriorityCount) - 1;
constexpr Bytes kMaxBytes{std::int64_t{1} << 30};  // of a step's gradients, on each rank
// Ranks are taken for hung when they are this many times slower than the link, and have had this
// long to start.
constexpr double kPatience = 25;
constexpr double kStartSeconds = 240;

template <class T>
Result<T> within(const char* option, Result<T> result) {
  return result.ok() ? std::move(result) : Result<T>(result.error().within(option));
}

// A shorthand has rates of its own for links that it does not name. Those are a switch's, and no
// testbed of one machine carries them, so the user has to say a rate.
Status check_rate(const std::string& shorthand) {
  if (!topology::is_topology_shorthand(shorthand)) return ok_status();
  for (std::size_t at = shorthand.find(':'); at != std::string::npos;
       at = shorthand.find(',', at + 1)) {
    if (shorthand.compare(at + 1, 5, "host=") == 0) return ok_status();
  }
  return Error(
      fmt::format("'{}' has no rate of the hosts' links: add one, as in host=50M", shorthand));
}

Result<topology::Topology> with_ranks(const topology::Topology& whole, int ranks) {
  if (ranks < 2 || ranks > whole.host_count()) {
    return Error(
        fmt::format("--ranks: {}: the topology has {} hosts, so write a number from 2 to {}", ranks,
                    whole.host_count(), whole.host_count()));
  }
  if (ranks == whole.host_count()) return whole;
  std::vector<Rank> hosts;
  for (Rank rank(0); rank.value() < ranks; ++rank) hosts.push_back(rank);
  return restricted_to(whole, hosts);
}

Status read_network(const Options& options, Settings& settings) {
  const bool testbed = !options.testbed.empty();
  if (testbed && !options.topology.empty()) {
    return Error("--topology: --testbed names the topology already: leave one of them out");
  }
  const char* const option = testbed ? "--testbed" : "--topology";
  const std::string& name = testbed ? options.testbed : options.topology;
  if (!testbed) {
    for (const auto& [what, given] : {std::pair("--loss", !options.loss.empty()),
                                      std::pair("--timeout", !options.timeout.empty())}) {
      if (given) return Error(fmt::format("{}: of a testbed: give --testbed too", what));
    }
  }
  if (!name.empty()) {
    THALWEG_TRY_STATUS(within(option, check_rate(name)));
    THALWEG_TRY(const topology::Topology whole, within(option, load_topology(name)));
    if (!options.aggregate.empty()) {
      std::vector<std::string> switches = options.aggregate;
      if (const auto with = with_aggregators(whole, switches); !with.ok()) return with.error();
    }
    settings.ranks = options.ranks.value_or(whole.host_count());
    THALWEG_TRY(settings.topology, with_ranks(whole, settings.ranks));
  } else if (options.ranks) {
    return Error("--ranks: the launcher says how many there are: leave it out");
  }
  if (!options.loss.empty()) {
    THALWEG_TRY(settings.loss, within("--loss", parse_fraction(options.loss)));
  }
  return ok_status();
}

Status read_schedule(const Options& options, Settings& settings) {
  if (options.model.empty()) {
    return Error(
        "--model: is missing: name a table of models/, as in --model resnet18, or a Chakra trace");
  }
  if (!(options.scale > 0 && options.scale <= 1)) {
    return Error(
        fmt::format("--scale: {}: must be above 0 and at most 1, as in 0.02", options.scale));
  }
  ScheduleOptions wanted{.scale = options.scale};
  if (options.schedule == "layerwise") {
    wanted.order = Order::kLayerwise;
  } else if (options.schedule != "ddp") {
    return Error(fmt::format("--schedule: '{}': write ddp or layerwise", options.schedule));
  }
  if (!options.bucket.empty()) {
    THALWEG_TRY(wanted.bucket, within("--bucket", parse_bytes(options.bucket)));
    if (wanted.bucket <= Bytes()) return Error("--bucket: must be above 0, as in 25MiB");
  }
  THALWEG_TRY(sim::ModelTable table,
              within("--model", scenario_loaders(options.models).model(options.model)));
  if (table.as_sent && !options.bucket.empty()) {
    return Error("--bucket: a Chakra trace has buckets of its own: leave it out");
  }
  if (!(options.device_scale >= sim::kLeastDeviceScale &&
        options.device_scale <= sim::kMostDeviceScale)) {
    return Error(fmt::format("--device-scale: {}: write a number from {} to {}",
                             options.device_scale, sim::kLeastDeviceScale, sim::kMostDeviceScale));
  }
  THALWEG_TRY(table, within("--device-scale", slowed_down(std::move(table), options.device_scale)));
  THALWEG_TRY(settings.schedule, within("--model", schedule_of(table, wanted)));
  if (settings.schedule.size() > kMaxBytes) {
    return Error(fmt::format("--model: {} of gradients, and at most {} are replayed: give --scale",
                             to_string(settings.schedule.size()), to_string(kMaxBytes)));
  }
  return ok_status();
}

// What is measured if --libraries is not given: everything that the other options make possible.
std::vector<std::string> usual_libraries(const Options& options, const Settings& settings) {
  std::vector<std::string> names = {"tcp", "dlcp"};
  if (settings.bound > 0) names.emplace_back("dlcp+bound");
  if (settings.straggler_bound > 0) names.emplace_back("tcp+straggler");
  if (options.priorities) {
    for (std::size_t i = 0, plain = names.size(); i < plain; ++i) {
      names.push_back(names[i] + "+priority");
    }
  }
  if (!options.aggregate.empty()) names.emplace_back("atp");
  if (settings.topology && settings.topology->regions().size() > 2) names.emplace_back("rat");
  return names;
}

Status read_libraries(const Options& options, Settings& settings) {
  if (!options.bound.empty()) {
    THALWEG_TRY(settings.bound, within("--bound", parse_fraction(options.bound)));
  }
  if (!options.straggler_bound.empty()) {
    THALWEG_TRY(settings.straggler_bound,
                within("--straggler-bound", parse_fraction(options.straggler_bound)));
  }
  if (options.straggler_window < 1 || options.straggler_window > kMaxWindow) {
    return Error(fmt::format("--straggler-window: {}: write a number from 1 to {}",
                             options.straggler_window, kMaxWindow));
  }
  settings.straggler_window = options.straggler_window;
  if (options.priorities) {
    if (*options.priorities < 1 || *options.priorities > kMaxPriorities) {
      return Error(
          fmt::format("--priorities: {}: a switch has queues 1 to {} for data, so write a "
                      "number from 1 to {}",
                      *options.priorities, kMaxPriorities, kMaxPriorities));
    }
    settings.priorities = *options.priorities;
  }
  for (const std::string& name : options.against) {
    const std::vector<std::string> known = peers();
    if (std::ranges::find(known, name) == known.end()) {
      return Error(
          fmt::format("--against: '{}' is not a peer: write {}", name, fmt::join(known, ", ")));
    }
    THALWEG_TRY(settings.libraries.emplace_back(), library_of(name));
  }
  std::vector<std::string> own =
      options.libraries.empty() ? usual_libraries(options, settings) : options.libraries;
  if (options.with_auto && std::ranges::find(own, "auto") == own.end()) own.emplace_back("auto");
  for (const std::string& name : own) {
    THALWEG_TRY(const Library library, within("--libraries", library_of(name)));
    if (library.gloo) return Error("--libraries: gloo is a peer: give --against gloo");
    if (library.bounded && settings.bound == 0) {
      return Error(fmt::format("--libraries: {}: give its bound too, as in --bound 1%", name));
    }
    if (library.straggling && settings.straggler_bound == 0) {
      return Error(
          fmt::format("--libraries: {}: give its bound too, as in --straggler-bound 5%", name));
    }
    if (library.knows_topology && !settings.topology) {
      return Error(fmt::format("--libraries: {}: give --topology too", name));
    }
    if (library.transport == Transport::kAtp && !options.testbed.empty() &&
        options.aggregate.empty()) {
      return Error(fmt::format(
          "--libraries: {}: no switch sums: give --aggregate SWITCH too, as in --aggregate switch0",
          name));
    }
    settings.libraries.push_back(library);
  }
  for (std::size_t i = 0; i < settings.libraries.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (settings.libraries[i].name != settings.libraries[j].name) continue;
      return Error(fmt::format("--libraries: {} is named twice", settings.libraries[i].name));
    }
  }
  return ok_status();
}

Status read_timeout(const Options& options, Settings& settings) {
  if (!options.timeout.empty()) {
    THALWEG_TRY(settings.timeout, launch::positive_duration("--timeout", options.timeout));
    return ok_status();
  }
  double seconds = kStartSeconds;
  for (const Library& library : settings.libraries) {
    if (!settings.topology) break;
    seconds += kPatience * (options.steps + 2) *
               step_limit(*settings.topology, library, settings.schedule, settings.bound).s();
  }
  settings.timeout = Duration::seconds(seconds);
  return ok_status();
}

}  // namespace

Result<Settings> settings_of(const Options& options) {
  Settings settings;
  if (options.steps < 1 || options.steps > kMaxSteps) {
    return Error(fmt::format("--steps: {}: write a number from 1 to {}", options.steps, kMaxSteps));
  }
  if (options.seed < 0) return Error(fmt::format("--seed: {}: write 0 or more", options.seed));
  THALWEG_TRY_STATUS(read_schedule(options, settings));
  THALWEG_TRY_STATUS(read_network(options, settings));
  THALWEG_TRY_STATUS(read_libraries(options, settings));
  if (options.stall_every.empty() != options.stall_for.empty()) {
    return Error(
        "--stall-every and --stall-for: give both, as in --stall-every 600ms --stall-for "
        "104ms");
  }
  if (!options.stall_every.empty()) {
    if (options.testbed.empty() && options.results.empty()) {
      return Error("--stall-every: only the hosts of --testbed stall");
    }
    const Result<Duration> every = launch::positive_duration("--stall-every", options.stall_every);
    if (!every.ok()) return every.error();
    const Result<Duration> length = launch::positive_duration("--stall-for", options.stall_for);
    if (!length.ok()) return length.error();
  }
  THALWEG_TRY_STATUS(read_timeout(options, settings));
  return settings;
}

std::vector<std::string> rank_words(const Options& options, const std::string& results) {
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                    "bench",
                                    "step",
                                    "--results",
                                    results,
                                    "--topology",
                                    options.testbed,
                                    "--model",
                                    options.model,
                                    "--scale",
                                    fmt::format("{}", options.scale),
                                    "--device-scale",
                                    fmt::format("{}", options.device_scale),
                                    "--schedule",
                                    options.schedule,
                                    "--steps",
                                    std::to_string(options.steps)};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--models", options.models);
  add("--bucket", options.bucket);
  add("--libraries", fmt::format("{}", fmt::join(options.libraries, ",")));
  add("--against", fmt::format("{}", fmt::join(options.against, ",")));
  add("--bound", options.bound);
  add("--straggler-bound", options.straggler_bound);
  add("--straggler-window", std::to_string(options.straggler_window));
  add("--priorities", options.priorities ? std::to_string(*options.priorities) : "");
  add("--aggregate", fmt::format("{}", fmt::join(options.aggregate, ",")));
  add("--ranks", options.ranks ? std::to_string(*options.ranks) : "");
  if (options.with_auto) words.emplace_back("--auto");
  return words;
}

}  // namespace thalweg::lab::step
