#include "sim/scenario/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>

#include "topology/format/text.h"
#include "topology/format/yaml_document.h"
#include "topology/format/yaml_source.h"

namespace thalweg::sim {
namespace {

constexpr std::array<std::string_view, 5> kTakes{"mean", "geomean", "median", "min", "max"};

class ExperimentReader : private topology::YamlSource {
 public:
  ExperimentReader(std::string_view source, const ScenarioLoaders& loaders)
      : topology::YamlSource(source), loaders_(loaders) {}

  Result<Experiment> read(const YAML::Node& root);

 private:
  Result<const Axis*> axis_of(const YAML::Node& node, std::string_view field) const;
  Status check_label(const YAML::Node& node, const Axis& axis) const;
  Result<Selection> selection_of(const YAML::Node& node, std::string_view field) const;
  Result<std::map<std::string, std::string>> base_of(const YAML::Node& node) const;
  Result<bool> switch_of(const YAML::Node& node, std::string_view field) const;
  Result<Claim> read_claim(const YAML::Node& node) const;
  Result<ExperimentPlot> read_plot(const YAML::Node& node) const;
  Result<ExperimentTraining> read_training(const YAML::Node& node) const;
  Status take_text(const Fields& fields, std::string_view field, std::string& out) const;
  Status check_scenario(const YAML::Node& root) const;

  const ScenarioLoaders& loaders_;
  Experiment experiment_;
};

Result<const Axis*> ExperimentReader::axis_of(const YAML::Node& node,
                                              std::string_view field) const {
  THALWEG_TRY(const std::string name, text_of(node, field));
  const auto found = std::ranges::find(experiment_.axes, name, &Axis::name);
  if (found != experiment_.axes.end()) return &*found;
  std::vector<std::string_view> names;
  for (const Axis& axis : experiment_.axes) names.push_back(axis.name);
  return error(node, fmt::format("'{}': '{}' is not swept; 'sweep' has {}", field, name,
                                 fmt::join(names, ", ")));
}

Status ExperimentReader::check_label(const YAML::Node& node, const Axis& axis) const {
  THALWEG_TRY(const std::string label, text_of(node, axis.name));
  std::vector<std::string_view> labels;
  for (const Axis::Value& value : axis.values) labels.push_back(value.label);
  if (std::ranges::find(labels, label) != labels.end()) return ok_status();
  return error(node, fmt::format("'{}' is not a value of '{}': {}", label, axis.name,
                                 fmt::join(labels, ", ")));
}

Result<Selection> ExperimentReader::selection_of(const YAML::Node& node,
                                                 std::string_view field) const {
  Selection selection;
  if (!node.IsMap())
    return error(node, fmt::format("'{}' must be a map from axis to label", field));
  for (const auto& entry : node) {
    THALWEG_TRY(const Axis* const axis, axis_of(entry.first, field));
    std::vector<YAML::Node> labels{entry.second};
    if (entry.second.IsSequence()) {
      THALWEG_TRY(labels, list_of(entry.second, axis->name));
    }
    for (const YAML::Node& label : labels) {
      THALWEG_TRY_STATUS(check_label(label, *axis));
      selection[axis->name].push_back(label.Scalar());
    }
  }
  return selection;
}

Result<std::map<std::string, std::string>> ExperimentReader::base_of(const YAML::Node& node) const {
  THALWEG_TRY(const Selection selection, selection_of(node, "over"));
  std::map<std::string, std::string> base;
  for (const auto& [axis, labels] : selection) {
    if (labels.size() != 1) return error(node, "'over' takes one label for an axis");
    base[axis] = labels.front();
  }
  return base;
}

Result<bool> ExperimentReader::switch_of(const YAML::Node& node, std::string_view field) const {
  THALWEG_TRY(const std::string text, text_of(node, field));
  if (text == "yes" || text == "no") return text == "yes";
  return error(node, fmt::format("'{}': '{}' is none of yes, no", field, text));
}

Status ExperimentReader::take_text(const Fields& fields, std::string_view field,
                                   std::string& out) const {
  const auto found = fields.find(field);
  if (found == fields.end()) return ok_status();
  THALWEG_TRY(out, text_of(found->second, field));
  return ok_status();
}

Result<Claim> ExperimentReader::read_claim(const YAML::Node& node) const {
  static constexpr std::array<std::string_view, 2> kRequired{"say", "measure"};
  static constexpr std::array<std::string_view, 6> kOptional{"of",   "over", "as_reduction",
                                                             "take", "unit", "paper"};
  THALWEG_TRY(const Fields fields, fields_of(node, "a claim", kRequired, kOptional));
  Claim claim;
  THALWEG_TRY_STATUS(take_text(fields, "say", claim.say));
  THALWEG_TRY_STATUS(take_text(fields, "measure", claim.measure));
  THALWEG_TRY_STATUS(take_text(fields, "unit", claim.unit));
  if (const auto paper = fields.find("paper"); paper != fields.end()) {
    THALWEG_TRY(claim.paper, number_of(paper->second, "paper", -1e12, 1e12));
    if (claim.paper == 0) return error(node, "'paper': 0 gives no ratio");
  }
  if (const auto of = fields.find("of"); of != fields.end()) {
    THALWEG_TRY(claim.of, selection_of(of->second, "of"));
  }
  if (const auto over = fields.find("over"); over != fields.end()) {
    THALWEG_TRY(claim.over, base_of(over->second));
  }
  if (const auto reduction = fields.find("as_reduction"); reduction != fields.end()) {
    THALWEG_TRY(claim.as_reduction, switch_of(reduction->second, "as_reduction"));
    if (claim.as_reduction && !claim.over) {
      return error(reduction->second, "'as_reduction' needs 'over'");
    }
  }
  if (const auto take = fields.find("take"); take != fields.end()) {
    THALWEG_TRY(const std::string word, text_of(take->second, "take"));
    const auto* const found = std::ranges::find(kTakes, word);
    if (found == kTakes.end()) {
      return error(take->second,
                   fmt::format("'take': '{}' is none of {}", word, fmt::join(kTakes, ", ")));
    }
    claim.take = static_cast<Claim::Take>(found - kTakes.begin());
    if (claim.as_reduction && claim.take == Claim::Take::kGeometricMean) {
      return error(take->second, "a geometric mean is of quotients, not of reductions");
    }
  }
  return claim;
}

Result<ExperimentPlot> ExperimentReader::read_plot(const YAML::Node& node) const {
  static constexpr std::array<std::string_view, 4> kRequired{"name", "measure", "label", "x"};
  static constexpr std::array<std::string_view, 8> kOptional{"title", "lines", "panels", "of",
                                                             "over",  "log_x", "log_y",  "paper"};
  THALWEG_TRY(const Fields fields, fields_of(node, "a plot", kRequired, kOptional));
  ExperimentPlot plot;
  THALWEG_TRY_STATUS(take_text(fields, "name", plot.name));
  const bool good = !plot.name.empty() && std::ranges::all_of(plot.name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (!good) {
    return error(node,
                 fmt::format("'name': '{}' becomes a file name: a to z, 0 to 9 and -", plot.name));
  }
  plot.title = experiment_.title;
  THALWEG_TRY_STATUS(take_text(fields, "title", plot.title));
  THALWEG_TRY_STATUS(take_text(fields, "measure", plot.measure));
  THALWEG_TRY_STATUS(take_text(fields, "label", plot.label));
  for (const auto& [field, out] : {std::pair("x", &plot.x), std::pair("lines", &plot.lines),
                                   std::pair("panels", &plot.panels)}) {
    const auto found = fields.find(field);
    if (found == fields.end()) continue;
    THALWEG_TRY(const Axis* const axis, axis_of(found->second, field));
    *out = axis->name;
  }
  if (const auto of = fields.find("of"); of != fields.end()) {
    THALWEG_TRY(plot.of, selection_of(of->second, "of"));
  }
  if (const auto over = fields.find("over"); over != fields.end()) {
    THALWEG_TRY(plot.over, base_of(over->second));
  }
  for (const Axis& axis : experiment_.axes) {
    const bool placed = axis.name == plot.x || axis.name == plot.lines || axis.name == plot.panels;
    const auto chosen = plot.of.find(axis.name);
    if (!placed && axis.values.size() > 1 &&
        (chosen == plot.of.end() || chosen->second.size() != 1)) {
      return error(node, fmt::format("the plot does not say where '{}' goes: x, lines, panels, or "
                                     "one label of it in 'of'",
                                     axis.name));
    }
  }
  if (const auto paper = fields.find("paper"); paper != fields.end()) {
    if (!paper->second.IsMap()) {
      return error(paper->second, "'paper' must be a map from label of x to value");
    }
    const auto axis = std::ranges::find(experiment_.axes, plot.x, &Axis::name);
    for (const auto& entry : paper->second) {
      THALWEG_TRY_STATUS(check_label(entry.first, *axis));
      THALWEG_TRY(plot.paper[entry.first.Scalar()], number_of(entry.second, "paper", -1e12, 1e12));
    }
  }
  if (const auto log = fields.find("log_x"); log != fields.end()) {
    THALWEG_TRY(plot.log_x, switch_of(log->second, "log_x"));
  }
  if (const auto log = fields.find("log_y"); log != fields.end()) {
    THALWEG_TRY(plot.log_y, switch_of(log->second, "log_y"));
  }
  return plot;
}

Result<ExperimentTraining> ExperimentReader::read_training(const YAML::Node& node) const {
  static constexpr std::array<std::string_view, 1> kRequired{"base"};
  static constexpr std::array<std::string_view, 3> kOptional{"seeds", "quick_seeds", "iterations"};
  THALWEG_TRY(const Fields fields, fields_of(node, "'training'", kRequired, kOptional));
  ExperimentTraining training;
  THALWEG_TRY(training.base, base_of(fields.find("base")->second));
  const auto take = [&](std::string_view field, int most, int& out) -> Status {
    const auto found = fields.find(field);
    if (found == fields.end()) return ok_status();
    THALWEG_TRY(const std::int64_t value, whole_of(found->second, field, 1, most));
    out = static_cast<int>(value);
    return ok_status();
  };
  THALWEG_TRY_STATUS(take("seeds", kMaxTrainingSeeds, training.seeds));
  THALWEG_TRY_STATUS(take("quick_seeds", kMaxTrainingSeeds, training.quick_seeds));
  THALWEG_TRY_STATUS(take("iterations", kMaxTrainingIterations, training.iterations));
  return training;
}

// Checks that every value of every axis fits the scenario, but does not try all combinations.
Status ExperimentReader::check_scenario(const YAML::Node& root) const {
  for (const Axis& axis : experiment_.axes) {
    for (const Axis::Value& value : axis.values) {
      const auto scenario = scenario_from_node(YAML::Clone(root), name(), loaders_, value.settings);
      if (!scenario.ok()) return scenario.error();
      if (!scenario->sweep.empty()) {
        return error(root, "the scenario of an experiment has no 'sweep' of its own");
      }
    }
  }
  return ok_status();
}

Result<Experiment> ExperimentReader::read(const YAML::Node& root) {
  static constexpr std::array<std::string_view, 4> kRequired{"title", "scenario", "sweep",
                                                             "claims"};
  static constexpr std::array<std::string_view, 4> kOptional{"about", "quick", "plots", "training"};
  THALWEG_TRY(const Fields fields, fields_of(root, "the experiment", kRequired, kOptional));
  const auto section = [&](std::string_view key) {
    const auto found = fields.find(key);
    return found == fields.end() ? YAML::Node() : found->second;
  };
  THALWEG_TRY_STATUS(take_text(fields, "title", experiment_.title));
  THALWEG_TRY_STATUS(take_text(fields, "about", experiment_.about));
  THALWEG_TRY(experiment_.axes, axes_from_node(section("sweep"), name()));
  THALWEG_TRY(experiment_.quick, axes_from_node(section("quick"), name()));
  std::vector<Axis> quick_axes = experiment_.axes;
  for (Axis& axis : experiment_.quick) {
    const auto full = std::ranges::find(experiment_.axes, axis.name, &Axis::name);
    if (full == experiment_.axes.end()) {
      return error(section("quick"), fmt::format("'quick': '{}' is not swept", axis.name));
    }
    for (Axis::Value& value : axis.values) {
      const auto same = std::ranges::find(full->values, value.label, &Axis::Value::label);
      if (same == full->values.end()) {
        return error(section("quick"),
                     fmt::format("'quick': '{}' is not a value of '{}'", value.label, axis.name));
      }
      value = *same;
    }
    put_axis(quick_axes, axis);
  }
  experiment_.quick = std::move(quick_axes);
  THALWEG_TRY_STATUS(check_scenario(section("scenario")));
  THALWEG_TRY(const std::vector<YAML::Node> claims, list_of(section("claims"), "claims"));
  if (claims.size() > kMaxExperimentClaims) return error(root, "too many claims");
  for (const YAML::Node& item : claims) {
    THALWEG_TRY(Claim claim, read_claim(item));
    experiment_.claims.push_back(std::move(claim));
  }
  THALWEG_TRY(const std::vector<YAML::Node> plots, list_of(section("plots"), "plots"));
  for (const YAML::Node& item : plots) {
    THALWEG_TRY(ExperimentPlot plot, read_plot(item));
    experiment_.plots.push_back(std::move(plot));
  }
  if (const auto training = fields.find("training"); training != fields.end()) {
    THALWEG_TRY(experiment_.training, read_training(training->second));
  }
  return std::move(experiment_);
}

}  // namespace

Result<Experiment> experiment_from_yaml(std::string_view text, std::string_view source,
                                        const ScenarioLoaders& loaders) {
  THALWEG_TRY_STATUS(topology::check_text(text, source));
  THALWEG_TRY(const YAML::Node document, topology::load_yaml_document(text, source));
  return ExperimentReader(source, loaders).read(document);
}

Result<Scenario> scenario_of_experiment(std::string_view text, std::string_view source,
                                        const ScenarioLoaders& loaders, const Settings& settings) {
  THALWEG_TRY_STATUS(topology::check_text(text, source));
  THALWEG_TRY(const YAML::Node document, topology::load_yaml_document(text, source));
  if (!document.IsMap() || !document["scenario"]) {
    return Error(fmt::format("{}: the experiment has no 'scenario'", source));
  }
  return scenario_from_node(document["scenario"], source, loaders, settings);
}

}  // namespace thalweg::sim
