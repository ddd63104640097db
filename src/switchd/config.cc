#include "switchd/config.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <utility>

#include "net/atp/job_message.h"
#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/udp_socket.h"
#include "topology/format/text.h"
#include "topology/format/yaml_document.h"
#include "topology/format/yaml_source.h"
#include "wire/atp_packet.h"

namespace thalweg::switchd {
namespace {

constexpr std::int64_t kMaxShards = 64;
constexpr std::int64_t kMaxAggregators = std::int64_t{1} << 24;
constexpr std::int64_t kMaxElements = 2048;  // fit a packet in a jumbo frame
constexpr std::int64_t kMaxJobs = 4096;
constexpr std::int64_t kMaxRequests = 1'000'000;
constexpr std::int64_t kMaxIdleSeconds = 24 * 3600;
constexpr std::int64_t kMaxReceiveBuffer = std::int64_t{1} << 30;
// Limits the memory for elements and for packets that leave together: in each shard, each end of
// each job may have a train of such packets: one for each server, one for all workers, and one for
// single workers in turn.
constexpr std::int64_t kTrainsOfJob = net::kMaxJobServers + 2;
constexpr std::int64_t kMaxMemory = std::int64_t{16} << 30;

class ConfigReader : private topology::YamlSource {
 public:
  explicit ConfigReader(std::string_view source) : topology::YamlSource(source) {}

  Result<SwitchConfig> read(const YAML::Node& root) {
    static constexpr std::array<std::string_view, 15> kOptional{
        "data",        "control",           "advertise",    "token",    "shards",
        "xdp_generic", "aggregators",       "elements",     "max_jobs", "receive_buffer",
        "xdp",         "max_jobs_per_host", "idle_seconds", "paths",    "requests_per_second"};
    THALWEG_TRY(const Fields fields, fields_of(root, "a switch", {}, kOptional));
    SwitchConfig config;
    for (const auto& [field, out] :
         {std::pair<std::string_view, std::string*>{"data", &config.data},
          {"control", &config.control},
          {"advertise", &config.advertise}}) {
      const auto found = fields.find(field);
      if (found == fields.end()) continue;
      THALWEG_TRY(*out, text_of(found->second, field));
      if (field != "data" && field != "control") continue;
      if (const auto parsed = net::HostPort::parse(*out); !parsed.ok()) {
        return error(found->second, fmt::format("'{}': {}", field, parsed.error().message()));
      }
    }
    if (const auto found = fields.find("token"); found != fields.end()) {
      THALWEG_TRY(config.token, text_of(found->second, "token"));
    }
    THALWEG_TRY_STATUS(whole_into(fields, "shards", 1, kMaxShards, config.shards));
    THALWEG_TRY_STATUS(whole_into(fields, "paths", 1, wire::kAtpMostPaths, config.paths));
    THALWEG_TRY_STATUS(whole_into(fields, "aggregators", 1, kMaxAggregators, config.aggregators));
    THALWEG_TRY_STATUS(whole_into(fields, "elements", 1, kMaxElements, config.elements));
    THALWEG_TRY_STATUS(whole_into(fields, "max_jobs", 1, kMaxJobs, config.max_jobs));
    THALWEG_TRY_STATUS(
        whole_into(fields, "max_jobs_per_host", 1, kMaxJobs, config.max_jobs_per_host));
    THALWEG_TRY_STATUS(
        whole_into(fields, "requests_per_second", 1, kMaxRequests, config.requests_per_second));
    THALWEG_TRY_STATUS(whole_into(fields, "idle_seconds", 1, kMaxIdleSeconds, config.idle_seconds));
    THALWEG_TRY_STATUS(
        whole_into(fields, "receive_buffer", 1, kMaxReceiveBuffer, config.receive_buffer));
    THALWEG_TRY_STATUS(read_xdp(fields, config));
    return checked(root, config);
  }

 private:
  Status read_xdp(const Fields& fields, SwitchConfig& config) const {
    if (const auto found = fields.find("xdp"); found != fields.end()) {
      THALWEG_TRY(const std::vector<YAML::Node> devices, list_of(found->second, "xdp"));
      for (const YAML::Node& device : devices) {
        THALWEG_TRY(config.xdp.emplace_back(), text_of(device, "xdp"));
      }
    }
    if (const auto found = fields.find("xdp_generic"); found != fields.end()) {
      THALWEG_TRY(const std::string text, text_of(found->second, "xdp_generic"));
      if (text != "true" && text != "false") {
        return error(found->second,
                     fmt::format("'xdp_generic': '{}'; true or false is allowed", text));
      }
      config.xdp_generic = text == "true";
    }
    return ok_status();
  }

  Result<SwitchConfig> checked(const YAML::Node& root, SwitchConfig config) const {
    if (config.aggregators < static_cast<std::uint32_t>(config.shards)) {
      return error(root, fmt::format("'aggregators': {}; each of {} shards needs one",
                                     config.aggregators, config.shards));
    }
    const std::int64_t elements = std::int64_t{config.aggregators} * config.elements * 4;
    const std::int64_t trains = std::int64_t{config.max_jobs} * config.shards * kTrainsOfJob *
                                static_cast<std::int64_t>(net::UdpSocket::kMaxMessage);
    if (elements + trains > kMaxMemory) {
      return error(root,
                   fmt::format("'aggregators' times 'elements': {} bytes, and {} for packets of "
                               "'max_jobs' in 'shards'; up to {} are allowed",
                               elements, trains, kMaxMemory));
    }
    return config;
  }
};

}  // namespace

bool SwitchConfig::draw_token() {
  const Result<net::SocketAddress> address = net::SocketAddress::resolve(control);
  // "*" is no address: it means all of this host.
  if (token || key || (address.ok() && address->loopback())) return false;
  token = fmt::format("{:016x}{:016x}", net::random_number(), net::random_number());
  return true;
}

Result<SwitchConfig> SwitchConfig::parse(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(topology::check_text(text, source));
  THALWEG_TRY(const YAML::Node root, topology::load_yaml_document(text, source));
  return ConfigReader(source).read(root);
}

}  // namespace thalweg::switchd
