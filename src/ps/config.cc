#include "ps/config.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <utility>

#include "net/io/address.h"
#include "net/ps/words.h"
#include "topology/format/text.h"
#include "topology/format/yaml_document.h"
#include "topology/format/yaml_source.h"
#include "wire/atp_packet.h"

namespace thalweg::ps {
namespace {

constexpr std::int64_t kMaxWorkers = 4096;
constexpr std::int64_t kMaxStaleness = 1'000'000;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 36;

class ConfigReader : private topology::YamlSource {
 public:
  explicit ConfigReader(std::string_view source) : topology::YamlSource(source) {}

  Result<PsConfig> read(const YAML::Node& root) {
    static constexpr std::array<std::string_view, 1> kRequired{"workers"};
    static constexpr std::array<std::string_view, 16> kOptional{
        "listen", "mode",  "staleness", "optimizer",    "rate",      "momentum",
        "beta1",  "beta2", "epsilon",   "max_elements", "transport", "push_loss",
        "switch", "token", "elements",  "pull_loss"};
    THALWEG_TRY(const Fields fields, fields_of(root, "a parameter server", kRequired, kOptional));
    PsConfig config;
    ParameterOptions& out = config.parameters;
    THALWEG_TRY_STATUS(host_port(fields, "listen", config.listen));
    THALWEG_TRY_STATUS(read_transport(fields, config));
    THALWEG_TRY_STATUS(whole_into(fields, "workers", 1, kMaxWorkers, out.workers));
    THALWEG_TRY_STATUS(whole_into(fields, "staleness", 0, kMaxStaleness, out.staleness));
    THALWEG_TRY_STATUS(whole_into(fields, "max_elements", 1, kMaxElements, out.max_elements));
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
    if (const Status valid = config.validate(); !valid.ok()) {
      return error(root, valid.error().message());
    }
    return config;
  }

 private:
  Status read_transport(const Fields& fields, PsConfig& config) const {
    THALWEG_TRY_STATUS(
        choice(fields, "transport",
               std::array{std::pair{"tcp", Transport::kTcp}, std::pair{"dlcp", Transport::kDlcp},
                          std::pair{"atp", Transport::kAtp}},
               config.transport));
    constexpr double kMostLoss = 0.99;
    THALWEG_TRY_STATUS(real(fields, "push_loss", 0, kMostLoss, config.push_loss));
    THALWEG_TRY_STATUS(real(fields, "pull_loss", 0, kMostLoss, config.pull_loss));
    for (const std::string_view field : {"token", "elements"}) {
      const auto found = fields.find(field);
      if (config.transport == Transport::kAtp || found == fields.end()) continue;
      return error(found->second, fmt::format("'{}' is for atp", field));
    }
    THALWEG_TRY_STATUS(host_port(fields, "switch", config.switch_address));
    if (const auto found = fields.find("token"); found != fields.end()) {
      THALWEG_TRY(config.switch_token, text_of(found->second, "token"));
    }
    return whole_into(fields, "elements", 1, wire::kAtpMostElements, config.elements);
  }
  Status host_port(const Fields& fields, std::string_view field, std::string& out) const {
    const auto found = fields.find(field);
    if (found == fields.end()) return ok_status();
    THALWEG_TRY(out, text_of(found->second, field));
    if (const auto parsed = net::HostPort::parse(out); !parsed.ok()) {
      return error(found->second, fmt::format("'{}': {}", field, parsed.error().message()));
    }
    return ok_status();
  }
  template <class T>
  Status real(const Fields& fields, std::string_view field, double least, double most,
              T& out) const {
    const auto found = fields.find(field);
    if (found == fields.end()) return ok_status();
    THALWEG_TRY(const double value, number_of(found->second, field, least, most));
    out = static_cast<T>(value);
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

Status PsConfig::validate() const {
  if (transport != Transport::kDlcp && (push_loss > 0 || pull_loss > 0)) {
    return Error(fmt::format(
        "'push_loss' and 'pull_loss': {} and {} over {}, which is exact; above 0 is for dlcp",
        push_loss, pull_loss, name_of(transport)));
  }
  if (pull_loss > push_loss) {
    return Error(
        fmt::format("'pull_loss': {}; at most 'push_loss', {}, is allowed", pull_loss, push_loss));
  }
  if (transport != Transport::kAtp) {
    if (switch_address.empty()) return ok_status();
    return Error(
        fmt::format("'switch': {} over {}; it is for atp", switch_address, name_of(transport)));
  }
  if (parameters.mode != PsMode::kSynchronous) {
    return Error(
        "'transport': atp sums the gradients of all workers, which is for 'mode' synchronous; the "
        "others step with every push and go over tcp or dlcp");
  }
  if (parameters.workers > static_cast<int>(wire::kAtpMostWorkersPerGroup)) {
    return Error(fmt::format("'workers': {}; over atp up to {} are allowed", parameters.workers,
                             wire::kAtpMostWorkersPerGroup));
  }
  return ok_status();
}

Result<PsConfig> PsConfig::parse(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(topology::check_text(text, source));
  THALWEG_TRY(const YAML::Node root, topology::load_yaml_document(text, source));
  return ConfigReader(source).read(root);
}

}  // namespace thalweg::ps
