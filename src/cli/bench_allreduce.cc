// Every library's ranks are started once and live side by side, idle but for one library at a time.
// A turn goes through all sizes, and at each through all libraries, beginning with another every
// time: what else the machine does hits them all alike.
#include "cli/bench_allreduce.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/allreduce/crew.h"
#include "cli/allreduce/libraries.h"
#include "cli/allreduce/rank.h"
#include "cli/allreduce/report.h"
#include "cli/allreduce/settings.h"
#include "cli/allreduce/simulated.h"
#include "cli/command.h"
#include "cli/core_distance.h"
#include "cli/emulated_network.h"

namespace thalweg {
namespace {

using namespace allreduce;  // NOLINT(google-build-using-namespace): this is its front

constexpr Duration kStartLimit = Duration::milliseconds(120'000);
constexpr Duration kAnswerLimit = Duration::milliseconds(60'000);
// A rank is taken for hung when it is this much slower than the link, or than kSlowestGbps where
// the link has no rate.
constexpr double kPatience = 20;
constexpr double kSlowestGbps = 1;

struct Calls {
  int warm_up = 0;
  int timed = 0;  // in one turn
};

// Enough for a p99 where calls are short, and not for ever where they are long, by their size or by
// the rate of the links (0: none).
Calls calls_for(Bytes size, double gbps, bool quick) {
  constexpr double kBytesATurn = 320.0 * (1 << 20);
  constexpr double kSecondsATurn = 3;
  if (quick) return {.warm_up = 2, .timed = 5};
  double bytes = kBytesATurn;
  if (gbps > 0) bytes = std::min(bytes, kSecondsATurn * gbps * 1e9 / 16);  // each crosses twice
  const double calls = bytes / static_cast<double>(std::max<std::int64_t>(size.count(), 1));
  const int timed = static_cast<int>(std::clamp(calls, 8.0, 200.0));
  return {.warm_up = timed < 200 ? 2 : 20, .timed = timed};
}

// All libraries at work, one at a time.
class Bench {
 public:
  Bench(const Settings& settings, bool quick) : settings_(settings), quick_(quick) {}

  void add(std::unique_ptr<Crew> crew) { crews_.push_back(std::move(crew)); }

  // Until all ranks of all libraries are ready.
  Status meet(Report& report) {
    for (const auto& crew : crews_) {
      progress_.show(fmt::format("starting {}", crew->plan().library));
      THALWEG_TRY_STATUS(crew->meet(kStartLimit));
      report.measured.push_back(blank(*crew));
    }
    return ok_status();
  }

  Status run(Report& report) {
    const std::size_t sizes = settings_.sizes.size() + 1;
    for (int turn = 0; turn < settings_.turns; ++turn) {
      note_cores(report);
      for (std::size_t size = 0; size < sizes; ++size) {
        for (std::size_t i = 0; i < crews_.size(); ++i) {
          const std::size_t who = (i + size + static_cast<std::size_t>(turn)) % crews_.size();
          Measured& measured = report.measured[who];
          Cell& cell = size == 0 ? measured.small : measured.cells[size - 1];
          progress_.show(fmt::format("turn {} of {}: {} with {}", turn + 1, settings_.turns,
                                     to_string(cell.size), measured.library));
          THALWEG_TRY_STATUS(measure(*crews_[who], cell));
        }
      }
    }
    note_cores(report);
    return measure_idle(report);
  }

 private:
  static void note_cores(Report& report) {
    if (const auto distance = core_distance())
      report.core_to_core_ns.push_back(distance->us() * 1e3);
  }

  [[nodiscard]] Measured blank(const Crew& crew) const {
    const auto element = static_cast<std::int64_t>(size_of(settings_.work.type));
    const auto cell = [&](Bytes size) {
      return Cell{.size = size, .elements = size.count() / element, .us = {}};
    };
    Measured measured{.library = crew.plan().library,
                      .transport = crew.plan().transport,
                      .scheme = crew.plan().scheme,
                      .version = crew.version(),
                      .settings = crew.plan().settings,
                      .small = cell(Bytes(element)),
                      .cells = {}};
    for (const Bytes size : settings_.sizes) measured.cells.push_back(cell(size));
    return measured;
  }

  Status measure(Crew& crew, Cell& cell) const {
    const Calls calls = calls_for(cell.size, settings_.rate_gbps, quick_);
    const double gbps = settings_.rate_gbps > 0 ? settings_.rate_gbps : kSlowestGbps;
    const double bits = 8.0 * static_cast<double>(cell.size.count()) * settings_.work.ranks *
                        (calls.warm_up + calls.timed + 2);
    crew.tell(fmt::format("measure {} {} {}", cell.elements, calls.warm_up, calls.timed));
    THALWEG_TRY(
        const std::vector<std::string> answers,
        crew.hear("measured", kAnswerLimit + Duration::seconds(kPatience * bits / (gbps * 1e9))));
    std::vector<double> slowest(static_cast<std::size_t>(calls.timed));
    for (const std::string& answer : answers) {
      std::istringstream words(answer);
      std::int64_t wrong = 0;
      words >> wrong;
      cell.wrong += wrong;
      for (double& us : slowest) {
        double ns = 0;
        words >> ns;
        us = std::max(us, ns * 1e-3);
      }
      if (words.fail()) return Error(crew.plan().library + ": a rank answered " + answer);
    }
    for (const double us : slowest) cell.us.add(us);
    return ok_status();
  }

  // Of all libraries at once: they have nothing to do.
  Status measure_idle(Report& report) const {
    for (const auto& crew : crews_) crew->tell(fmt::format("idle {}", settings_.idle_ms));
    for (std::size_t i = 0; i < crews_.size(); ++i) {
      THALWEG_TRY(const std::vector<std::string> answers, crews_[i]->hear("idle", kAnswerLimit));
      for (const std::string& answer : answers) {
        report.measured[i].idle_cpu = std::max(report.measured[i].idle_cpu, std::stod(answer));
      }
    }
    return ok_status();
  }

  const Settings& settings_;
  bool quick_;
  Progress progress_;
  std::vector<std::unique_ptr<Crew>> crews_;
};

// Beside every cell of ours.
Status simulate_all(const Settings& settings, Report& report) {
  Progress progress;
  for (Measured& measured : report.measured) {
    if (measured.scheme.empty()) continue;
    for (Cell& cell : measured.cells) {
      progress.show(fmt::format("simulating {} of {} over {}", measured.scheme,
                                to_string(cell.size), measured.transport));
      const bool dlcp = measured.transport == "dlcp";
      THALWEG_TRY(const Duration time,
                  simulate(*settings.topology, {.transport = measured.transport,
                                                .scheme = measured.scheme,
                                                .size = cell.size,
                                                .loss = settings.loss,
                                                .bound = dlcp ? settings.bound : 0}));
      cell.simulated_us = time.us();
    }
  }
  return ok_status();
}

std::string words_for(const EmulatedNetwork& network) {
  std::string each = "each rank in a network namespace of its own";
  if (network.devices() == 1) return each;
  return fmt::format("{} with {} devices", each, network.devices());
}

// All libraries, from their start to their end.
Result<Report> measure_all(const Options& options, const Settings& settings,
                           const EmulatedNetwork* network, const std::string& congestion_control) {
  for (int host = 0; host < settings.work.ranks && !congestion_control.empty(); ++host) {
    const Status set = network->set_congestion_control(host, congestion_control);
    if (!set.ok()) return set.error().within("--congestion-control");
  }
  THALWEG_TRY(const std::unique_ptr<Stage> stage, Stage::make(network));
  // All is known to be there before anything is started.
  std::vector<CrewPlan> peers;
  for (const std::string& name : options.against) {
    THALWEG_TRY(const std::vector<CrewPlan> plans, peer_plans(*stage, settings.work, name));
    peers.insert(peers.end(), plans.begin(), plans.end());
  }
  Report report{.work = settings.work,
                .turns = settings.turns,
                .network = settings.topology    ? options.topology
                           : network != nullptr ? words_for(*network)
                                                : "loopback",
                .rate_gbps = settings.rate_gbps,
                .loss = settings.loss,
                .bound = settings.bound,
                .congestion_control = congestion_control,
                .measured = {}};
  Bench bench(settings, options.quick);
  const auto start = [&](CrewPlan plan) -> Status {
    THALWEG_TRY(std::unique_ptr<Crew> crew,
                Crew::start(*stage, std::move(plan), settings.work.ranks));
    bench.add(std::move(crew));
    return ok_status();
  };
  for (const std::string& transport : options.transports) {
    for (const std::string& scheme : options.schemes) {
      THALWEG_TRY(CrewPlan own,
                  own_plan(*stage, settings.work,
                           {.transport = transport,
                            .scheme = scheme,
                            .topology = settings.topology ? &*settings.topology : nullptr,
                            .bound = transport == "dlcp" ? settings.bound : 0,
                            .rate_gbps = settings.rate_gbps,
                            .streams = options.streams}));
      THALWEG_TRY_STATUS(start(std::move(own)));
    }
  }
  for (CrewPlan& plan : peers) THALWEG_TRY_STATUS(start(std::move(plan)));
  THALWEG_TRY_STATUS(bench.meet(report));
  stage->remove_folder();
  THALWEG_TRY_STATUS(bench.run(report));
  if (options.simulate) THALWEG_TRY_STATUS(simulate_all(settings, report));
  return report;
}

Result<int> run(const Options& options) {
  THALWEG_TRY(const Settings settings, settings_of(options));
  THALWEG_TRY(const std::optional<EmulatedNetwork> network, network_of(options, settings));
  std::vector<Report> reports;
  bool right = true;
  for (const std::string& congestion_control : options.congestion_controls) {
    THALWEG_TRY(Report report,
                measure_all(options, settings, network ? &*network : nullptr, congestion_control));
    if (!options.json) fmt::print("{}", to_text(report));
    right = right && report.wrong() == 0;
    reports.push_back(std::move(report));
  }
  if (options.json) fmt::print("{}\n", to_json(reports).dump(2));
  return right ? 0 : kExitNo;
}

}  // namespace

void add_bench_allreduce(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App& app = *bench.add_subcommand(
      "allreduce", "allreduce between processes, beside Gloo and Open MPI, results checked");
  app.add_option("--ranks", options->ranks, "How many processes (2)");
  app.add_option("--sizes", options->sizes,
                 "Of the tensor, with commas; powers of 4 from 1KiB to 64MiB without it")
      ->delimiter(',');
  app.add_option("--type", options->type, "float32, float64, int32 or int64")
      ->capture_default_str();
  app.add_option("--op", options->op, "sum, product, min or max")->capture_default_str();
  app.add_option("--transport", options->transports, "Of our ranks, with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(own_transports()))
      ->capture_default_str();
  app.add_option("--scheme", options->schemes,
                 "Of our ranks, as `thalweg plan` takes it, with blanks between several; chosen by "
                 "size, or by the planner with --topology, without it");
  app.add_option(
         "--against", options->against,
         "Peers in the same run, with commas; bare is no library but what plain TCP sockets "
         "allow, the limit")
      ->delimiter(',')
      ->check(CLI::IsMember(peer_names()));
  app.add_flag("--netns", options->netns,
               "Every rank in a network namespace of its own; needs root");
  app.add_option("--topology", options->topology,
                 "A shorthand or file: every host a namespace with a rank, every switch a bridge, "
                 "every link at its rate; one way between any two hosts; needs root");
  app.add_flag("--simulate", options->simulate,
               "What the simulator says of the same schemes on the same network, beside");
  app.add_option("--nics", options->nics,
                 "Devices of every namespace, each on a network of its own")
      ->capture_default_str();
  app.add_option("--streams", options->streams,
                 "TCP streams of our ranks, for each pair of devices")
      ->capture_default_str();
  app.add_option("--rate", options->rates,
                 "Of every link between namespaces, as in 1G; or with commas, of each device's")
      ->delimiter(',');
  app.add_option("--loss", options->loss, "Of every packet between namespaces, as in 0.5%");
  app.add_option("--bound", options->bound, "Of DLCP's loss, as in 1%; exact without it");
  app.add_option("--congestion-control", options->congestion_controls,
                 "Of all TCP between namespaces, with commas, as in bbr,cubic: a run each; the "
                 "system's without it")
      ->delimiter(',');
  app.add_flag("--json", options->json, "Print JSON instead of tables");
  app.add_flag("--quick", options->quick, "A few calls up to 1MiB, to see that it works");
  on_run(app, [options] { return run(*options); });
}

}  // namespace thalweg
