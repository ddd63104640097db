#include "ps/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <utility>

#include "net/address.h"
#include "topology/text.h"
#include "topology/yaml_document.h"
#include "topology/yaml_source.h"

namespace thalweg {
namespace {

constexpr std::int64_t kMaxWorkers = 4096;
constexpr std::int64_t kMaxStaleness = 1'000'000;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 36;

class ConfigReader : private YamlSource {
 public:
  explicit ConfigReader(std::string_view source) : YamlSource(source) {}

  Result<PsConfig> read(const YAML::Node& root) {
    static constexpr std::array<std::string_view, 1> kRequired{"workers"};
    static constexpr std::array<std::string_view, 10> kOptional{
        "listen",   "mode",  "staleness", "optimizer", "rate",
        "momentum", "beta1", "beta2",     "epsilon",   "max_elements"};
    THALWEG_TRY(const Fields fields, fields_of(root, "a parameter server", kRequired, kOptional));
    PsConfig config;
    ParameterOptions& out = config.parameters;
    if (const auto found = fields.find("listen"); found != fields.end()) {
      THALWEG_TRY(config.listen, text_of(found->second, "listen"));
      if (const auto parsed = HostPort::parse(config.listen); !parsed.ok()) {
        return error(found->second, fmt::format("'listen': {}", parsed.error().message()));
      }
    }
    THALWEG_TRY_STATUS(whole(fields, "workers", 1, kMaxWorkers, out.workers));
    THALWEG_TRY_STATUS(whole(fields, "staleness", 0, kMaxStaleness, out.staleness));
    THALWEG_TRY_STATUS(whole(fields, "max_elements", 1, kMaxElements, out.max_elements));
    THALWEG_TRY_STATUS(choice(fields, "mode",
                              std::array{std::pair{"synchronous", PsMode::kSynchronous},
                                         std::pair{"asynchronous", PsMode::kAsynchronous},
                                         std::pair{"stale", PsMode::kStale}},
                              out.mode));
    THALWEG_TRY_STATUS(choice(fields, "optimizer",
                              std::array{std::pair{"sgd", PsOptimizer::kSgd},
                                         std::pair{"momentum", PsOptimizer::kMomentum},
                                         std::pair{"adam", PsOptimizer::kAdam}},
                              out.optimizer));
    constexpr double kBelowOne = 0.999999;
    THALWEG_TRY_STATUS(real(fields, "rate", 0, 1e6, out.rate));
    THALWEG_TRY_STATUS(real(fields, "momentum", 0, kBelowOne, out.momentum));
    THALWEG_TRY_STATUS(real(fields, "beta1", 0, kBelowOne, out.beta1));
    THALWEG_TRY_STATUS(real(fields, "beta2", 0, kBelowOne, out.beta2));
    THALWEG_TRY_STATUS(real(fields, "epsilon", 1e-30, 1, out.epsilon));
    return config;
  }

 private:
  template <class T>
  Status whole(const Fields& fields, std::string_view field, std::int64_t least, std::int64_t most,
               T& out) const {
    const auto found = fields.find(field);
    if (found == fields.end()) return ok_status();
    THALWEG_TRY(const std::int64_t value, whole_of(found->second, field, least, most));
    out = static_cast<T>(value);
    return ok_status();
  }
  Status real(const Fields& fields, std::string_view field, double least, double most,
              float& out) const {
    const auto found = fields.find(field);
    if (found == fields.end()) return ok_status();
    THALWEG_TRY(const double value, number_of(found->second, field, least, most));
    out = static_cast<float>(value);
    return ok_status();
  }
  template <class Names, class T>
  Status choice(const Fields& fields, std::string_view field, const Names& names, T& out) const {
    const auto found = fields.find(field);
    if (found == fields.end()) return ok_status();
    THALWEG_TRY(const std::string text, text_of(found->second, field));
    std::string allowed;
    for (const auto& [name, value] : names) {
      if (text == name) {
        out = value;
        return ok_status();
      }
      allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", name);
    }
    return error(found->second,
                 fmt::format("'{}': '{}'; one of {} is allowed", field, text, allowed));
  }
};

}  // namespace

Result<PsConfig> PsConfig::parse(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(check_text(text, source));
  THALWEG_TRY(const YAML::Node root, load_yaml_document(text, source));
  return ConfigReader(source).read(root);
}

}  // namespace thalweg
