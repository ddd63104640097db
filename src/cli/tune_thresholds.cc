// The port that is tuned is the busiest one that a switch feeds, when a plan of the scheme moves
// the whole model over the network. Its rate and bytes, with the model's computing time, give the
// mean load; its buffer is what the queues share.
#include "cli/tune_thresholds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/segment_tag.h"
#include "cli/command.h"
#include "cli/scenario_files.h"
#include "plan/accounting.h"
#include "plan/scheme.h"
#include "plan/verify.h"
#include "sim/model.h"
#include "tensor/tags.h"
#include "tune/switch_settings.h"
#include "tune/thresholds.h"
#include "tune/weights.h"

namespace thalweg {
namespace {

constexpr Bytes kLeastPacket(64);
constexpr Bytes kMostPacket(65'536);
// Kept free for control messages, which have a queue of their own.
constexpr double kControlShare = 0.05;
constexpr const char* kMeanLoad = "mean";

struct Arguments {
  std::string model;
  std::string models;
  std::string topology;
  std::string scheme = "ps";
  std::string weights;
  std::string buffer;
  std::string packet = "1500B";
  std::string load = "0.9";
  std::string format = "table";
  std::vector<std::string> ports;
  int queues = kPriorityCount;
  double small_fraction = 0.5;
};

// All that was found out before the solver runs.
struct Subject {
  ModelTable model;
  std::string port;  // the one that is tuned
  Bandwidth rate;
  Bytes port_bytes;  // through it in one iteration
  Duration busy;     // how long they take
  double mean_load = 0;
  double load = 0;
  Bytes buffer;
  Bytes packet;
  QueueLoads loads;
  double exponent = 1;
};

struct Answer {
  ThresholdSolution solution;
  SwitchSettings settings;
};

Result<Bytes> parse_size(const char* flag, const std::string& text, Bytes least, Bytes most) {
  const Result<Bytes> size = parse_bytes(text);
  if (!size.ok()) return size.error().within(flag);
  if (*size >= least && *size <= most) return *size;
  return Error(fmt::format("{}: '{}' is out of range: {} to {}", flag, text, to_string(least),
                           to_string(most)));
}

Result<double> parse_load(const std::string& text, double mean) {
  if (text == kMeanLoad) return mean;
  double load = 0;
  if (CLI::detail::lexical_cast(text, load) && load > 0 && load < 1) return load;
  return Error(fmt::format("--load: '{}' is neither a number above 0 and below 1 nor '{}'", text,
                           kMeanLoad));
}

// The port of a switch that needs the longest for its part of one iteration.
Status find_port(const Arguments& arguments, const Topology& topology, Subject& subject) {
  if (topology.host_count() < 2) return Error("--topology: at least two hosts are needed");
  const PlanRequest request{.topology = topology,
                            .elements = subject.model.parameters(),
                            .element_bytes = static_cast<int>(size_of(subject.model.dtype))};
  const Result<Plan> plan = make_plan(arguments.scheme, request);
  if (!plan.ok()) return plan.error().within("--scheme");
  const Result<PlanProof> proof = verify(*plan);
  if (!proof.ok()) return proof.error().within("--scheme");
  const Accounting accounting = account(*plan, *proof, topology, Routing(topology));
  std::optional<ArcId> busiest;
  double longest = 0;
  for (std::size_t i = 0; i < topology.arc_count(); ++i) {
    const ArcId id(static_cast<std::int32_t>(i));
    const Arc arc = topology.arc(id);
    if (topology.node(arc.from).kind != NodeKind::kSwitch) continue;
    const double seconds = accounting.arc_bytes[i] / arc.spec.rate.bytes_per_second();
    if (seconds > longest) busiest = id;
    longest = std::max(longest, seconds);
  }
  if (!busiest) return Error("--topology: no switch carries traffic, so there is nothing to tune");
  const Arc arc = topology.arc(*busiest);
  subject.port = topology.arc_name(*busiest);
  subject.rate = arc.spec.rate;
  subject.port_bytes = Bytes(std::llround(accounting.arc_bytes[busiest->index()]));
  subject.busy = Duration::seconds(longest);
  subject.buffer = arc.spec.buffer;
  const double computing = (subject.model.forward_time() + subject.model.backward_time()).s();
  subject.mean_load = longest / (longest + computing);
  return ok_status();
}

Result<Subject> subject_of(const Arguments& arguments) {
  Subject subject;
  const ScenarioLoaders loaders = scenario_loaders(arguments.models);
  const Result<ModelTable> model = loaders.model(arguments.model);
  if (!model.ok()) return model.error().within("--model");
  subject.model = *model;
  THALWEG_TRY(const Topology topology, loaders.topology(arguments.topology));
  THALWEG_TRY_STATUS(find_port(arguments, topology, subject));
  THALWEG_TRY(subject.load, parse_load(arguments.load, subject.mean_load));
  THALWEG_TRY(subject.packet, parse_size("--packet", arguments.packet, kLeastPacket, kMostPacket));
  if (!arguments.buffer.empty()) {
    THALWEG_TRY(subject.buffer,
                parse_size("--buffer", arguments.buffer, subject.packet, kMaxBuffer));
  } else if (subject.buffer == Bytes(0)) {
    return Error(fmt::format("the topology does not say how much port {} buffers: give --buffer",
                             subject.port));
  }
  ConvergenceWeights weights;
  if (!arguments.weights.empty()) {
    THALWEG_TRY(const std::string text, read_file(arguments.weights));
    THALWEG_TRY(weights, weights_from_yaml(text, arguments.weights));
  }
  subject.exponent = weights.exponent;
  std::vector<TunedLayer> layers;
  layers.reserve(subject.model.layers.size());
  for (std::size_t i = 0; i < subject.model.layers.size(); ++i) {
    layers.push_back({subject.model.layers[i].name, subject.model.size_of_layer(i)});
  }
  const auto data_queues = static_cast<std::size_t>(arguments.queues - 1);
  const Result<QueueLoads> loads = queue_loads(layers, data_queues, weights);
  if (!loads.ok()) return loads.error().within(arguments.weights);
  subject.loads = *loads;
  return subject;
}

std::vector<std::string> default_ports(const std::string& format) {
  if (format == "sonic") return {"Ethernet0"};
  if (format == "onyx") return {"1/1"};
  return {"swp1"};
}

Result<Answer> solve(const Arguments& arguments, const Subject& subject) {
  const auto packet = static_cast<double>(subject.packet.count());
  const double data_buffer = (1 - kControlShare) * static_cast<double>(subject.buffer.count());
  const ThresholdProblem problem{.shares = subject.loads.shares,
                                 .weights = subject.loads.weights,
                                 .load = subject.load,
                                 .small_fraction = arguments.small_fraction,
                                 .exponent = subject.exponent,
                                 .buffer = data_buffer / packet};
  const double least = least_buffer(problem.shares.size(), problem.small_fraction);
  if (problem.buffer < least) {
    return Error(fmt::format(
        "a buffer of {} is too small for {} data queues and packets of {}: at least {}",
        to_string(subject.buffer), problem.shares.size(), to_string(subject.packet),
        to_string(
            Bytes(static_cast<std::int64_t>(std::ceil(least * packet / (1 - kControlShare)))))));
  }
  Answer answer;
  THALWEG_TRY(answer.solution, solve_thresholds(problem));
  const auto bytes = [&](double packets) {
    return Bytes(static_cast<std::int64_t>(std::floor(packets * packet)));
  };
  std::uint8_t priority = kControlPriority;
  for (const QueueThresholds& queue : answer.solution.queues) {
    answer.settings.queues.push_back(
        {.priority = ++priority, .threshold = bytes(queue.threshold), .limit = bytes(queue.limit)});
  }
  answer.settings.port_buffer = subject.buffer;
  answer.settings.title =
      fmt::format("DLCP thresholds for {} over {}, {} a port, load {:.3g}", subject.model.name,
                  arguments.scheme, to_string(subject.buffer), subject.load);
  answer.settings.ports =
      arguments.ports.empty() ? default_ports(arguments.format) : arguments.ports;
  return answer;
}

std::string layers_of(const Subject& subject, std::size_t queue) {
  const std::size_t first = subject.loads.first[queue];
  const std::size_t end = subject.loads.first[queue + 1];
  if (first == end) return "none";
  const auto& layers = subject.model.layers;
  return end - first == 1 ? layers[first].name
                          : fmt::format("{} … {}", layers[first].name, layers[end - 1].name);
}

void print_table(const Subject& subject, const Answer& answer, const Arguments& arguments) {
  std::cout << fmt::format(
      "{} by {}: the busiest switch port is {} ({}), with {} an iteration, busy {:.0f} % of it.\n"
      "Solved for a load of {:.3g} and a buffer of {}, {:.0f} % of it kept for control.\n\n",
      subject.model.name, arguments.scheme, subject.port, to_string(subject.rate),
      to_human(subject.port_bytes), 100 * subject.mean_load, subject.load,
      to_string(subject.buffer), 100 * kControlShare);
  std::vector<std::vector<std::string>> rows{{"layers", "queue", "DSCP", "bytes", "utilization",
                                              "drops small above S", "all at L", "small lost",
                                              "large lost"}};
  rows.push_back({"(control)", std::to_string(kControlPriority),
                  std::to_string(dscp_of(kControlPriority)), "", "", "", "", "", ""});
  for (std::size_t i = 0; i < answer.settings.queues.size(); ++i) {
    const QueueSetting& setting = answer.settings.queues[i];
    const QueueThresholds& queue = answer.solution.queues[i];
    rows.push_back({layers_of(subject, i), std::to_string(setting.priority),
                    std::to_string(dscp_of(setting.priority)),
                    fmt::format("{:.1f} %", 100 * subject.loads.shares[i]),
                    fmt::format("{:.3f}", queue.utilization), to_human(setting.threshold),
                    to_human(setting.limit), fmt::format("{:.2g}", queue.small_loss),
                    fmt::format("{:.2g}", queue.large_loss)});
  }
  std::cout << format_table(rows);
}

nlohmann::ordered_json to_json(const Subject& subject, const Answer& answer,
                               const Arguments& arguments) {
  nlohmann::ordered_json json;
  json["model"] = subject.model.name;
  json["scheme"] = arguments.scheme;
  json["port"] = subject.port;
  json["port_bps"] = subject.rate.bps();
  json["port_bytes"] = subject.port_bytes.count();
  json["port_busy_ms"] = subject.busy.ms();
  json["mean_load"] = subject.mean_load;
  json["load"] = subject.load;
  json["buffer_bytes"] = subject.buffer.count();
  json["packet_bytes"] = subject.packet.count();
  json["small_fraction"] = arguments.small_fraction;
  json["exponent"] = subject.exponent;
  json["control"] = {{"queue", kControlPriority}, {"dscp", dscp_of(kControlPriority)}};
  std::vector<double> thresholds;
  for (std::size_t i = 0; i < answer.settings.queues.size(); ++i) {
    const QueueSetting& setting = answer.settings.queues[i];
    const QueueThresholds& queue = answer.solution.queues[i];
    thresholds.push_back(static_cast<double>(setting.threshold.count()));
    json["queues"].push_back({{"queue", setting.priority},
                              {"dscp", dscp_of(setting.priority)},
                              {"first_layer", subject.loads.first[i]},
                              {"layers", subject.loads.first[i + 1] - subject.loads.first[i]},
                              {"share", subject.loads.shares[i]},
                              {"weight_small", subject.loads.weights[i].small},
                              {"weight_large", subject.loads.weights[i].large},
                              {"utilization", queue.utilization},
                              {"threshold_bytes", setting.threshold.count()},
                              {"limit_bytes", setting.limit.count()},
                              {"small_loss", queue.small_loss},
                              {"large_loss", queue.large_loss}});
  }
  const ArithmeticFit fit = fit_arithmetic(thresholds);
  json["log_cost"] = answer.solution.log_cost;
  json["arithmetic"] = {{"selective_threshold_bytes", static_cast<std::int64_t>(fit.first)},
                        {"selective_step", fit.step},
                        {"worst_relative_error", fit.worst_relative_error}};
  return json;
}

Result<int> run(const Arguments& arguments) {
  THALWEG_TRY(const Subject subject, subject_of(arguments));
  THALWEG_TRY(const Answer answer, solve(arguments, subject));
  if (arguments.format == "table") {
    print_table(subject, answer, arguments);
  } else if (arguments.format == "json") {
    std::cout << to_json(subject, answer, arguments).dump(2) << '\n';
  } else if (arguments.format == "thalweg") {
    if (answer.settings.queues.size() != kDataPriorities) {
      return Error(fmt::format("--format thalweg with --queues {}: ports of the simulator have {}",
                               arguments.queues, kPriorityCount));
    }
    std::cout << to_scenario(answer.settings);
  } else if (arguments.format == "sonic") {
    std::cout << to_sonic(answer.settings);
  } else if (arguments.format == "cumulus") {
    std::cout << to_cumulus(answer.settings);
  } else {
    std::cout << to_onyx(answer.settings);
  }
  return 0;
}

// As CLI11 validators: empty if the text is good, else what is wrong.
std::string check_fraction(const std::string& text) {
  double value = 0;
  if (CLI::detail::lexical_cast(text, value) && value >= 0.01 && value <= 0.99) return {};
  return fmt::format("'{}' is no share: write a number from 0.01 to 0.99", text);
}

// What may be pasted into a switch: no blanks, quotes or line ends.
std::string check_port(const std::string& text) {
  const bool good = !text.empty() && text.find_first_not_of(
                                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789/-_,.:") == std::string::npos;
  if (good) return {};
  return fmt::format("'{}' is no name of a port: use letters, digits and / - _ , . :", text);
}

}  // namespace

void add_tune_thresholds(CLI::App& tune) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *tune.add_subcommand(
      "thresholds",
      "Where switches start to drop small gradients, and all: solved per queue (DLCP, appendix B)");
  app.add_option("--model", arguments->model, "Layer table: a name in models/, or a file")
      ->required();
  app.add_option("--topology", arguments->topology, "File or shorthand")->required();
  app.add_option("--scheme", arguments->scheme, "How the model is synchronized; finds the port")
      ->capture_default_str();
  app.add_option("--queues", arguments->queues, "Queues of a port, the first one for control")
      ->check(CLI::Range(2, static_cast<int>(kPriorityCount)))
      ->capture_default_str();
  app.add_option("--weights", arguments->weights,
                 "What losses cost, per layer and magnitude (docs/operating.md)");
  app.add_option("--buffer", arguments->buffer, "Of a port, e.g. 512KiB (what the topology says)");
  app.add_option("--packet", arguments->packet, "Size of a packet")->capture_default_str();
  app.add_option("--load", arguments->load,
                 "Arrivals over capacity of the port, or 'mean': over an iteration")
      ->capture_default_str();
  app.add_option("--small-fraction", arguments->small_fraction,
                 "Share of the packets that carry small gradients")
      ->check(check_fraction, "SHARE")
      ->capture_default_str();
  app.add_option("--port", arguments->ports, "Switch ports to configure; may be given again")
      ->check(check_port, "NAME");
  app.add_option("--models", arguments->models, "Folder of layer tables");
  app.add_option("--format", arguments->format)
      ->check(CLI::IsMember({"table", "json", "thalweg", "sonic", "cumulus", "onyx"}))
      ->capture_default_str();
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
