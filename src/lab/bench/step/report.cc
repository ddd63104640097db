#include "lab/bench/step/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <thread>
#include <utility>

#include "lab/bench/step/forecast.h"
#include "lab/bench/step/limit.h"
#include "lab/console.h"
#include "lab/files.h"
#include "lab/terminal.h"

namespace thalweg::lab::step {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStatistic =
    "of the slowest rank in each step, from the start of its forward pass to that of the next; "
    "libraries in turns of a few steps, beginning with another each time";

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

const Row* gloo_in(const Report& report) {
  for (const Row& row : report.rows) {
    if (row.measured.library.gloo) return &row;
  }
  return nullptr;
}

double p50_of(const Row& row) { return row.steps_ms.percentile(50); }

std::optional<double> over_limit(const Row& row) {
  if (!row.limit_ms) return std::nullopt;
  return p50_of(row) / *row.limit_ms;
}

// By kind of call.
void add_choices(const std::vector<AutoDecision>& choices, Json& row) {
  for (const char* key : {"chosen", "why", "trials_ms", "trials_extra_ms"}) row[key] = nullptr;
  if (choices.empty()) return;
  row["chosen"] = Json::object();
  row["why"] = Json::object();
  double spent = 0;
  double extra = 0;
  for (const AutoDecision& one : choices) {
    row["chosen"][one.kind] = one.chosen;
    row["why"][one.kind] = one.why;
    spent += one.trials_ms;
    extra += one.extra_ms;
  }
  row["trials_ms"] = spent;
  row["trials_extra_ms"] = extra;
}

Json row_json(const Report& report, const Row& row) {
  const Library& library = row.measured.library;
  const Histogram& steps = row.steps_ms;
  const bool prioritized = library.prioritized;
  Json json = {{"library", library.name},
               {"p50_ms", steps.percentile(50)},
               {"p99_ms", steps.percentile(99)},
               {"mean_ms", steps.mean()},
               {"limit_ms", or_null(row.limit_ms)},
               {"simulated_ms", or_null(row.simulated_ms)},
               {"p50_over_limit", or_null(over_limit(row))},
               {"gloo_p50_over_this", nullptr},
               {"gloo_p99_over_this", nullptr},
               {"gloo_mean_over_this", nullptr},
               {"steps", steps.count()},
               {"wrong", row.measured.wrong},
               {"transport", library.gloo ? "tcp" : name_of(library.transport)},
               {"scheme", library.scheme.empty() ? Json(nullptr) : Json(library.scheme)},
               {"bound", library.bounded ? report.settings.bound : 0},
               {"straggler_bound", library.straggling ? report.settings.straggler_bound : 0},
               {"priorities", prioritized ? Json(report.settings.priorities) : Json(nullptr)},
               {"version", row.measured.version}};
  add_choices(row.measured.choices, json);
  if (const Row* const gloo = gloo_in(report)) {
    const Histogram& base = gloo->steps_ms;
    json["gloo_p50_over_this"] = base.percentile(50) / steps.percentile(50);
    json["gloo_p99_over_this"] = base.percentile(99) / steps.percentile(99);
    json["gloo_mean_over_this"] = base.mean() / steps.mean();
  }
  return json;
}

Json environment() {
  utsname system{};
  uname(&system);
  return {{"cores", std::thread::hardware_concurrency()},
          {"system", fmt::format("{} {}", system.sysname, system.release)},
          {"tcp_congestion_control", system_setting("/proc/sys/net/ipv4/tcp_congestion_control")}};
}

std::string cell(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string network_of(const Report& report) {
  const Options& options = report.options;
  if (!options.testbed.empty()) return options.testbed;
  return options.topology.empty() ? "the launcher's hosts" : options.topology;
}

}  // namespace

std::int64_t Report::wrong() const {
  std::int64_t sum = 0;
  for (const Row& row : rows) sum += row.measured.wrong;
  return sum;
}

Result<Report> report_of(const Options& options, const Settings& settings,
                         std::vector<Measured> measured) {
  Report report{.options = options, .settings = settings, .rows = {}};
  Progress progress;
  for (Measured& one : measured) {
    Row row{.measured = std::move(one), .steps_ms = {}, .limit_ms = {}, .simulated_ms = {}};
    for (const double ms : row.measured.steps_ms) row.steps_ms.add(ms);
    const Library& library = row.measured.library;
    if (settings.topology) {
      row.limit_ms =
          step_limit(*settings.topology, library, settings.schedule, settings.bound).ms();
    }
    if (settings.topology && !options.no_simulation) {
      progress.show("simulating " + library.name,
                    static_cast<double>(report.rows.size()) / static_cast<double>(measured.size()));
      THALWEG_TRY(
          const std::optional<Duration> predicted,
          forecast(settings, library, {.seed = options.seed, .aggregate = options.aggregate}));
      if (predicted) row.simulated_ms = predicted->ms();
    }
    report.rows.push_back(std::move(row));
  }
  return report;
}

Json to_json(const Report& report) {
  const Options& options = report.options;
  const Schedule& schedule = report.settings.schedule;
  Json buckets = Json::array();
  for (const Bucket& bucket : schedule.buckets) buckets.push_back(bucket.size().count());
  Json json = {{"model", options.model},
               {"scale", options.scale},
               {"device_scale", options.device_scale},
               {"schedule", options.schedule},
               {"bucket", options.bucket.empty() ? to_string(kDdpBucket) : options.bucket},
               {"bytes", schedule.size().count()},
               {"bucket_bytes", std::move(buckets)},
               {"forward_ms", schedule.forward().ms()},
               {"backward_ms", schedule.backward().ms()},
               {"topology", network_of(report)},
               {"testbed", !options.testbed.empty()},
               {"ranks", report.settings.ranks},
               {"loss", report.settings.loss},
               {"seed", options.seed},
               {"steps", options.steps},
               {"statistic", kStatistic},
               {"environment", environment()},
               {"rows", Json::array()}};
  for (const Row& row : report.rows) json["rows"].push_back(row_json(report, row));
  return json;
}

std::string to_text(const Report& report) {
  const Options& options = report.options;
  const Settings& settings = report.settings;
  const Schedule& schedule = settings.schedule;
  std::string text = fmt::format(
      "step of {} times {}: {} in {} buckets, {:.1f} ms forward and {:.1f} ms backward, {}\n"
      "{} ranks on {}, loss {} %, {} steps of each library, seed {}\n"
      "times in ms, {}\n\n",
      options.model, options.scale, to_string(schedule.size()), schedule.buckets.size(),
      schedule.forward().ms(), schedule.backward().ms(), options.schedule, settings.ranks,
      network_of(report), settings.loss * 100, options.steps, options.seed, kStatistic);
  std::vector<std::vector<std::string>> table = {{"library", "p50", "p99", "mean", "limit",
                                                  "simulated", "p50 / limit", "Gloo / this: p50",
                                                  "p99", "mean"}};
  for (const Row& row : report.rows) {
    const Histogram& steps = row.steps_ms;
    std::vector<std::string> cells = {row.measured.library.name,
                                      fmt::format("{:.1f}", steps.percentile(50)),
                                      fmt::format("{:.1f}", steps.percentile(99)),
                                      fmt::format("{:.1f}", steps.mean()),
                                      cell(row.limit_ms, 1),
                                      cell(row.simulated_ms, 1),
                                      cell(over_limit(row), 2)};
    const Json ratios = row_json(report, row);
    for (const char* key : {"gloo_p50_over_this", "gloo_p99_over_this", "gloo_mean_over_this"}) {
      cells.push_back(ratios[key].is_null() ? "-"
                                            : fmt::format("{:.2f}", ratios[key].get<double>()));
    }
    table.push_back(std::move(cells));
  }
  text += format_table(table);
  for (const Row& row : report.rows) {
    for (const AutoDecision& one : row.measured.choices) {
      text +=
          fmt::format("\n{}: {} goes by {}: {}; {} trials in {:.0f} ms, {:.0f} ms of them extra",
                      row.measured.library.name, one.kind, one.chosen, one.why, one.trials,
                      one.trials_ms, one.extra_ms);
    }
    if (!row.measured.choices.empty()) text += '\n';
  }
  const std::int64_t wrong = report.wrong();
  return wrong == 0 ? text : text + fmt::format("\n{} elements are wrong\n", wrong);
}

std::string measured_to_text(const std::vector<Measured>& measured) {
  Json json = Json::array();
  for (const Measured& one : measured) {
    json.push_back({{"library", one.library.name},
                    {"version", one.version},
                    {"wrong", one.wrong},
                    {"steps_ms", one.steps_ms},
                    {"choices", Json::array()}});
    for (const AutoDecision& choice : one.choices) {
      json.back()["choices"].push_back({{"kind", choice.kind},
                                        {"decided", choice.decided},
                                        {"chosen", choice.chosen},
                                        {"why", choice.why},
                                        {"calls", choice.calls},
                                        {"trials", choice.trials},
                                        {"trials_ms", choice.trials_ms},
                                        {"extra_ms", choice.extra_ms}});
    }
  }
  return json.dump();
}

Result<std::vector<Measured>> measured_from_text(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array()) return Error("the ranks left no result");
  std::vector<Measured> measured;
  for (const Json& one : json) {
    THALWEG_TRY(Library library, library_of(one.at("library").get<std::string>()));
    measured.push_back({.library = std::move(library),
                        .version = one.at("version").get<std::string>(),
                        .steps_ms = one.at("steps_ms").get<std::vector<double>>(),
                        .wrong = one.at("wrong").get<std::int64_t>()});
    for (const Json& choice : one.at("choices")) {
      measured.back().choices.push_back({.kind = choice.at("kind").get<std::string>(),
                                         .decided = choice.at("decided").get<bool>(),
                                         .chosen = choice.at("chosen").get<std::string>(),
                                         .why = choice.at("why").get<std::string>(),
                                         .calls = choice.at("calls").get<std::int64_t>(),
                                         .trials = choice.at("trials").get<std::int64_t>(),
                                         .trials_ms = choice.at("trials_ms").get<double>(),
                                         .extra_ms = choice.at("extra_ms").get<double>()});
    }
  }
  return measured;
}

}  // namespace thalweg::lab::step
