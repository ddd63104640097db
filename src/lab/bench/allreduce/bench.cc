#include "lab/bench/allreduce/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "base/units.h"
#include "lab/bench/allreduce/crew.h"
#include "lab/bench/allreduce/libraries.h"
#include "lab/bench/allreduce/simulated.h"
#include "lab/bench/core_distance.h"
#include "lab/terminal.h"

namespace thalweg::lab::allreduce {
namespace {

constexpr Duration kStartLimit = Duration::milliseconds(120'000);
constexpr Duration kAnswerLimit = Duration::milliseconds(60'000);
// A rank is taken for hung when it is this many times slower than the link, or than kSlowestGbps if
// the link has no rate.
constexpr double kPatience = 20;
constexpr double kSlowestGbps = 1;

struct Calls {
  int warm_up = 0;
  int timed = 0;  // in one turn
};

// How many calls to make of one size: enough for a p99 where calls are short, and few where their
// size or the rate of the links makes them long. `gbps`: that rate, 0 if there is none.
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

// The crews of all libraries, of which one works at a time.
class Bench {
 public:
  Bench(const Settings& settings, bool quick) : settings_(settings), quick_(quick) {}

  void add(std::unique_ptr<Crew> crew) { crews_.push_back(std::move(crew)); }

  // Waits until all ranks of all libraries are ready, and adds an empty result for each library.
  Status meet(Report& report) {
    for (const auto& crew : crews_) {
      progress_.show(fmt::format("starting {}", crew->plan().library));
      THALWEG_TRY_STATUS(crew->meet(kStartLimit));
      report.measured.push_back(blank(*crew));
    }
    return ok_status();
  }

  // Measures all turns, and then what the ranks cost when they are idle.
  Status run(Report& report) {
    const std::size_t sizes = settings_.sizes.size() + 1;
    const double cells =
        static_cast<double>(sizes * crews_.size()) * static_cast<double>(settings_.turns);
    int done = 0;
    for (int turn = 0; turn < settings_.turns; ++turn) {
      note_cores(report);
      for (std::size_t size = 0; size < sizes; ++size) {
        for (std::size_t i = 0; i < crews_.size(); ++i) {
          const std::size_t who = (i + size + static_cast<std::size_t>(turn)) % crews_.size();
          Measured& measured = report.measured[who];
          Cell& cell = size == 0 ? measured.small : measured.cells[size - 1];
          progress_.show(fmt::format("turn {} of {}: {} with {}", turn + 1, settings_.turns,
                                     to_string(cell.size), measured.library),
                         static_cast<double>(done++) / cells);
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

  // Asks all libraries at once, which is fair because they have nothing to do.
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

// Adds the time that the simulator predicts to every cell of our own library.
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

// The network, in words for the report.
std::string words_for(const EmulatedNetwork& network) {
  std::string each = "each rank in a network namespace of its own";
  if (network.devices() == 1) return each;
  return fmt::format("{} with {} devices", each, network.devices());
}

}  // namespace

Result<Report> measure_all(const Options& options, const Settings& settings,
                           const EmulatedNetwork* network, const std::string& congestion_control) {
  for (int host = 0; host < settings.work.ranks && !congestion_control.empty(); ++host) {
    const Status set = network->set_congestion_control(host, congestion_control);
    if (!set.ok()) return set.error().within("--congestion-control");
  }
  THALWEG_TRY(const std::unique_ptr<Stage> stage, Stage::make(network));
  // A peer that is missing is an error before anything is started.
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

}  // namespace thalweg::lab::allreduce
