#include "tune/weights.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "tensor/tags.h"
#include "topology/format/text.h"
#include "topology/format/yaml_document.h"
#include "topology/format/yaml_source.h"

namespace thalweg::tune {
namespace {

class WeightsReader : private topology::YamlSource {
 public:
  explicit WeightsReader(std::string_view source) : topology::YamlSource(source) {}

  Result<ConvergenceWeights> read(const YAML::Node& root) {
    static constexpr std::array<std::string_view, 6> kOptional{"front", "back",     "small",
                                                               "large", "exponent", "layers"};
    THALWEG_TRY(const Fields fields, fields_of(root, "the weights", {}, kOptional));
    ConvergenceWeights weights;
    for (const auto& [field, out] : {std::pair<std::string_view, double*>{"front", &weights.front},
                                     {"back", &weights.back},
                                     {"small", &weights.small},
                                     {"large", &weights.large}}) {
      const auto found = fields.find(field);
      if (found == fields.end()) continue;
      THALWEG_TRY(*out, number_of(found->second, field, kLeastWeight, kMostWeight));
    }
    if (const auto found = fields.find("exponent"); found != fields.end()) {
      THALWEG_TRY(weights.exponent, number_of(found->second, "exponent", 1, kMostExponent));
    }
    if (const auto found = fields.find("layers"); found != fields.end()) {
      THALWEG_TRY_STATUS(read_layers(found->second, weights));
    }
    return weights;
  }

 private:
  Status read_layers(const YAML::Node& node, ConvergenceWeights& weights) const {
    THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, "layers"));
    static constexpr std::array<std::string_view, 2> kRequired{"name", "weight"};
    for (const YAML::Node& item : items) {
      THALWEG_TRY(const Fields fields, fields_of(item, "a layer", kRequired, {}));
      THALWEG_TRY(const std::string name, text_of(fields.find("name")->second, "name"));
      THALWEG_TRY(const double weight,
                  number_of(fields.find("weight")->second, "weight", kLeastWeight, kMostWeight));
      if (!weights.layers.emplace(name, weight).second) {
        return error(item, fmt::format("layer '{}' is given twice", name));
      }
    }
    return ok_status();
  }
};

double weight_of(const ConvergenceWeights& weights, std::span<const TunedLayer> layers,
                 std::size_t layer) {
  const auto own = weights.layers.find(layers[layer].name);
  if (own != weights.layers.end()) return own->second;
  if (layers.size() == 1) return 0.5 * (weights.front + weights.back);
  const double depth = static_cast<double>(layer) / static_cast<double>(layers.size() - 1);
  return weights.front + depth * (weights.back - weights.front);
}

}  // namespace

Result<ConvergenceWeights> weights_from_yaml(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(topology::check_text(text, source));
  THALWEG_TRY(const YAML::Node document, topology::load_yaml_document(text, source));
  return WeightsReader(source).read(document);
}

Result<QueueLoads> queue_loads(std::span<const TunedLayer> layers, std::size_t data_queues,
                               const ConvergenceWeights& weights) {
  CHECK(!layers.empty() && data_queues >= 1);
  for (const auto& [name, weight] : weights.layers) {
    const bool known = std::ranges::any_of(layers, [&](const auto& l) { return l.name == name; });
    if (!known) return Error(fmt::format("the model has no layer '{}'", name));
  }
  double total = 0;
  for (const TunedLayer& layer : layers) total += static_cast<double>(layer.size.count());
  CHECK(total > 0);

  QueueLoads loads;
  loads.shares.assign(data_queues, 0);
  loads.weights.assign(data_queues, {.small = 0, .large = 0});
  loads.first.assign(data_queues + 1, layers.size());
  for (std::size_t layer = layers.size(); layer-- > 0;) {
    const std::size_t queue = tensor::spread_evenly(layer, layers.size(), data_queues);
    const double weight = weight_of(weights, layers, layer);
    loads.shares[queue] += static_cast<double>(layers[layer].size.count()) / total;
    loads.weights[queue].small += weight * weights.small / static_cast<double>(layers.size());
    loads.weights[queue].large += weight * weights.large / static_cast<double>(layers.size());
    loads.first[queue] = layer;
  }
  for (std::size_t queue = data_queues; queue-- > 0;) {
    // A queue without layers has no traffic to lose, so its weight does not matter.
    if (loads.weights[queue].large == 0) loads.weights[queue] = {};
    loads.first[queue] = std::min(loads.first[queue], loads.first[queue + 1]);
  }
  return loads;
}

}  // namespace thalweg::tune
