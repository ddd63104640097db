#include "sim/workload/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "base/check.h"
#include "topology/format/text.h"
#include "topology/format/yaml_document.h"
#include "topology/format/yaml_source.h"
#include "topology/topology.h"

namespace thalweg::sim {
namespace {

constexpr double kPicosecondsPerMicrosecond = 1e6;
constexpr double kMostLayerMicroseconds = 1e9;
// The types that a gradient can have.
constexpr std::array kGradientTypes{DType::kFloat32,  DType::kFloat64,      DType::kFloat16,
                                    DType::kBFloat16, DType::kFloat8E4m3fn, DType::kFloat8E5m2};

Duration scaled(Duration time, double factor) {
  const double ps = static_cast<double>(time.ps()) * factor;
  return Duration::picoseconds(static_cast<std::int64_t>(std::round(ps)));
}

Error too_long() {
  return Error(
      fmt::format("an iteration, scaled, computes longer than {}: lower the times or "
                  "'device_scale'",
                  to_string(kMaxComputeTime)));
}

class ModelReader : private topology::YamlSource {
 public:
  explicit ModelReader(std::string_view source) : topology::YamlSource(source) {}

  Result<ModelTable> read(const YAML::Node& root);

 private:
  // The text of an optional field, or an empty text.
  Result<std::string> optional_text(const Fields& fields, std::string_view field) const;
  Result<std::string> name_of(const Fields& fields, std::string_view field) const;
  Result<DType> dtype_of(const Fields& fields) const;

  Status read_layers(const YAML::Node& node);
  Status read_layer(const YAML::Node& node);
  Result<std::vector<std::int64_t>> read_tensors(const Fields& fields,
                                                 std::int64_t parameters) const;
  Result<Duration> read_time(const Fields& fields, std::string_view field);

  ModelTable table_;
  Duration total_;
  std::size_t tensor_count_ = 0;
  std::unordered_map<std::string, int> lines_;  // the line of each layer in the file, by name
};

Result<std::string> ModelReader::optional_text(const Fields& fields, std::string_view field) const {
  const auto found = fields.find(field);
  if (found == fields.end()) return std::string();
  return text_of(found->second, field);
}

Result<std::string> ModelReader::name_of(const Fields& fields, std::string_view field) const {
  const YAML::Node& node = fields.find(field)->second;
  THALWEG_TRY(std::string text, text_of(node, field));
  if (topology::is_good_name(text)) return text;
  return error(node, fmt::format("'{}' is not allowed: use 1 to {} bytes of UTF-8 without control "
                                 "characters",
                                 field, topology::kMaxNameLength));
}

Result<DType> ModelReader::dtype_of(const Fields& fields) const {
  if (!fields.contains("dtype")) return DType::kFloat32;
  THALWEG_TRY(const std::string text, optional_text(fields, "dtype"));
  std::vector<std::string_view> names;
  for (const DType type : kGradientTypes) {
    if (text == thalweg::name_of(type)) return type;
    names.emplace_back(thalweg::name_of(type));
  }
  return error(fields.find("dtype")->second,
               fmt::format("'dtype': '{}' is none of {}", text, fmt::join(names, ", ")));
}

Result<std::vector<std::int64_t>> ModelReader::read_tensors(const Fields& fields,
                                                            std::int64_t parameters) const {
  const auto found = fields.find("tensors");
  if (found == fields.end()) return std::vector<std::int64_t>{parameters};
  const YAML::Node& node = found->second;
  if (!node.IsSequence()) return error(node, "'tensors' must be a list of element counts");
  if (node.size() > kMaxModelTensors - tensor_count_) {
    return error(node, fmt::format("the model has more than {} tensors", kMaxModelTensors));
  }
  std::vector<std::int64_t> tensors;
  std::int64_t left = parameters;
  for (const YAML::Node& item : node) {
    THALWEG_TRY(const std::int64_t elements, whole_of(item, "tensors", 1, kMaxLayerParameters));
    tensors.push_back(elements);
    left -= elements;
    if (left < 0) break;
  }
  if (left == 0) return tensors;
  return error(node,
               fmt::format("'tensors' add up to {}, but 'params' is {}",
                           left < 0 ? "more" : fmt::format("{}", parameters - left), parameters));
}

Result<Duration> ModelReader::read_time(const Fields& fields, std::string_view field) {
  THALWEG_TRY(const double us,
              number_of(fields.find(field)->second, field, 0, kMostLayerMicroseconds));
  const double ps = std::round(us * table_.device_scale * kPicosecondsPerMicrosecond);
  const Duration time = Duration::picoseconds(static_cast<std::int64_t>(ps));
  total_ += time;
  if (total_ > kMaxComputeTime) return error(fields.find(field)->second, too_long().message());
  return time;
}

Status ModelReader::read_layer(const YAML::Node& node) {
  static constexpr std::array<std::string_view, 4> kRequired{"name", "params", "forward_us",
                                                             "backward_us"};
  static constexpr std::array<std::string_view, 1> kOptional{"tensors"};
  THALWEG_TRY(const Fields fields, fields_of(node, "a layer", kRequired, kOptional));
  ModelLayer layer;
  THALWEG_TRY(layer.name, name_of(fields, "name"));
  const auto [first, fresh] = lines_.emplace(layer.name, line_of(node));
  if (!fresh) {
    return error(node, fmt::format("layer name '{}' is used twice; first at line {}", layer.name,
                                   first->second));
  }
  THALWEG_TRY(layer.parameters,
              whole_of(fields.find("params")->second, "params", 1, kMaxLayerParameters));
  THALWEG_TRY(layer.tensors, read_tensors(fields, layer.parameters));
  THALWEG_TRY(layer.forward, read_time(fields, "forward_us"));
  THALWEG_TRY(layer.backward, read_time(fields, "backward_us"));
  if (fields.contains("tensors")) tensor_count_ += layer.tensors.size();
  table_.layers.push_back(std::move(layer));
  return ok_status();
}

Status ModelReader::read_layers(const YAML::Node& node) {
  if (!node.IsSequence()) return error(node, "'layers' must be a list");
  if (node.size() == 0) return error(node, "'layers' is empty: at least one layer is needed");
  if (node.size() > kMaxModelLayers) {
    return error(node, fmt::format("'layers' has {} entries: at most {} are allowed", node.size(),
                                   kMaxModelLayers));
  }
  for (const YAML::Node& item : node) THALWEG_TRY_STATUS(read_layer(item));
  return ok_status();
}

Result<ModelTable> ModelReader::read(const YAML::Node& root) {
  static constexpr std::array<std::string_view, 4> kRequired{"name", "batch", "device", "layers"};
  static constexpr std::array<std::string_view, 6> kOptional{"sample", "dtype", "device_scale",
                                                             "torch",  "date",  "notes"};
  THALWEG_TRY(const Fields fields, fields_of(root, "the model", kRequired, kOptional));
  THALWEG_TRY(table_.name, name_of(fields, "name"));
  THALWEG_TRY(table_.batch, whole_of(fields.find("batch")->second, "batch", 1, kMaxModelBatch));
  THALWEG_TRY(table_.device, name_of(fields, "device"));
  THALWEG_TRY(table_.sample, optional_text(fields, "sample"));
  THALWEG_TRY(table_.dtype, dtype_of(fields));
  for (const std::string_view field : {"torch", "date", "notes"}) {
    THALWEG_TRY([[maybe_unused]] const std::string text, optional_text(fields, field));
  }
  if (fields.contains("device_scale")) {
    THALWEG_TRY(table_.device_scale, number_of(fields.find("device_scale")->second, "device_scale",
                                               kLeastDeviceScale, kMostDeviceScale));
  }
  THALWEG_TRY_STATUS(read_layers(fields.find("layers")->second));
  return std::move(table_);
}

template <class T, class Of>
T sum_over(const std::vector<ModelLayer>& layers, Of of) {
  T sum{};
  for (const ModelLayer& layer : layers) sum += of(layer);
  return sum;
}

}  // namespace

std::int64_t ModelTable::parameters() const {
  return sum_over<std::int64_t>(layers, [](const ModelLayer& l) { return l.parameters; });
}

Bytes ModelTable::size() const {
  return Bytes(parameters()) * static_cast<std::int64_t>(size_of(dtype));
}

Bytes ModelTable::size_of_layer(std::size_t layer) const {
  return Bytes(layers[layer].parameters) * static_cast<std::int64_t>(size_of(dtype));
}

Duration ModelTable::forward_time() const {
  return sum_over<Duration>(layers, [](const ModelLayer& l) { return l.forward; });
}

Duration ModelTable::backward_time() const {
  return sum_over<Duration>(layers, [](const ModelLayer& l) { return l.backward; });
}

Result<ModelTable> model_from_yaml(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(topology::check_text(text, source));
  THALWEG_TRY(const YAML::Node document, topology::load_yaml_document(text, source));
  return ModelReader(source).read(document);
}

ModelTable by_tensor(const ModelTable& table) {
  ModelTable result = table;
  result.layers.clear();
  for (const ModelLayer& layer : table.layers) {
    const std::size_t count = layer.tensors.size();
    for (std::size_t t = 0; t < count; ++t) {
      ModelLayer& part = result.layers.emplace_back();
      part.name = count == 1 ? layer.name : fmt::format("{}/{}", layer.name, t);
      part.parameters = layer.tensors[t];
      part.tensors = {layer.tensors[t]};
      // The forward pass reaches the first tensor first, and the backward pass the last one.
      if (t == 0) part.forward = layer.forward;
      if (t + 1 == count) part.backward = layer.backward;
    }
  }
  return result;
}

ModelTable part_of(ModelTable table, double part) {
  CHECK(part > 0 && part <= 1, "part {}", part);
  table.part *= part;
  for (ModelLayer& layer : table.layers) {
    layer.parameters = 0;
    for (std::int64_t& elements : layer.tensors) {
      const double kept = std::round(static_cast<double>(elements) * part);
      elements = std::max<std::int64_t>(1, std::llround(kept));
      layer.parameters += elements;
    }
    layer.forward = Duration::seconds(layer.forward.s() * part);
    layer.backward = Duration::seconds(layer.backward.s() * part);
  }
  return table;
}

Result<ModelTable> slowed_down(ModelTable table, double factor) {
  const double scale = table.device_scale * factor;
  if (!(scale >= kLeastDeviceScale && scale <= kMostDeviceScale)) {
    return Error(fmt::format("model '{}': a device scale of {} × {} is out of range: {} to {}",
                             table.name, table.device_scale, factor, kLeastDeviceScale,
                             kMostDeviceScale));
  }
  const double seconds = (table.forward_time() + table.backward_time()).s() * factor;
  if (seconds > kMaxComputeTime.s()) {
    return too_long().within(fmt::format("model '{}'", table.name));
  }
  table.device_scale = scale;
  for (ModelLayer& layer : table.layers) {
    layer.forward = scaled(layer.forward, factor);
    layer.backward = scaled(layer.backward, factor);
  }
  return table;
}

}  // namespace thalweg::sim
