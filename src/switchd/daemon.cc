#include "switchd/daemon.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "net/event_loop.h"
#include "net/tcp.h"
#include "switchd/controller.h"
#include "switchd/shard.h"
#include "switchd/xdp/xdp_plane.h"

namespace thalweg {
namespace {

// Counters of shards, by name; what is a highest count at any time adds up to an upper bound.
void add_up(SwitchPlane::Counters& sum, const SwitchPlane::Counters& more) {
  if (sum.empty()) {
    sum = more;
    return;
  }
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i].second += more[i].second;
}

// All shards as one.
class ShardedPlane final : public SwitchPlane {
 public:
  // `xdp`: null for none.
  ShardedPlane(std::vector<std::unique_ptr<Shard>> shards, SocketAddress told,
               std::unique_ptr<XdpPlane> xdp)
      : shards_(std::move(shards)), xdp_(std::move(xdp)), family_(told.family()) {
    for (const auto& shard : shards_) {
      told.set_port(shard->port());
      addresses_.push_back(told.to_string());
    }
  }

  [[nodiscard]] std::vector<std::string> data_addresses() const override { return addresses_; }
  [[nodiscard]] int family() const override { return family_; }

  Status install(const AdmittedJob& job) override {
    AdmittedJob share = job;
    const auto shards = static_cast<std::uint32_t>(shards_.size());
    share.about.limit = (job.about.limit + shards - 1) / shards;
    for (const auto& shard : shards_) {
      if (const Status status = shard->install(share); !status.ok()) {
        for (const auto& other : shards_) other->remove(job.id);
        return status;
      }
    }
    if (xdp_) {
      if (const Status status = xdp_->install(job); !status.ok()) {
        for (const auto& shard : shards_) shard->remove(job.id);
        return status;
      }
    }
    jobs_[job.id] = job;
    return ok_status();
  }

  void remove(std::uint32_t id) override {
    if (xdp_) xdp_->remove(id);
    for (const auto& shard : shards_) shard->remove(id);
    jobs_.erase(id);
  }

  JobStatistics statistics(std::uint32_t id) override {
    JobStatistics sum;
    for (const auto& shard : shards_) {
      JobStatistics of = shard->statistics(jobs_.at(id));
      add_up(sum.counters, of.counters);
      if (sum.ports.empty()) {
        sum.ports = std::move(of.ports);
        continue;
      }
      for (std::size_t i = 0; i < sum.ports.size(); ++i) {
        add_up(sum.ports[i].counters, of.ports[i].counters);
      }
    }
    if (!xdp_) return sum;
    xdp_->add_traffic(jobs_.at(id), sum.ports);
    for (const auto& [name, count] : xdp_->counters(id)) {
      const auto same =
          std::ranges::find(sum.counters, name, &std::pair<std::string, std::uint64_t>::first);
      same->second += count;
      sum.counters.emplace_back("xdp-" + name, count);
    }
    return sum;
  }

  Counters counters() override {
    Counters sum;
    for (const auto& shard : shards_) add_up(sum, shard->counters());
    return sum;
  }

 private:
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<XdpPlane> xdp_;
  int family_;
  std::vector<std::string> addresses_;
  std::map<std::uint32_t, AdmittedJob> jobs_;
};

// Where jobs are told that it is; the port is not said.
Result<SocketAddress> told_address(const SwitchConfig& config) {
  THALWEG_TRY(SocketAddress data, SocketAddress::resolve(config.data));
  if (data.wildcard() && !config.xdp.empty()) {
    return Error(
        fmt::format("data: '{}' with xdp; the address of a device is allowed", config.data));
  }
  if (config.advertise.empty()) {
    if (!data.wildcard()) return data;
    return Error(
        fmt::format("data: '{}' without 'advertise'; jobs must be told one address", config.data));
  }
  Result<SocketAddress> told = SocketAddress::resolve(HostPort{config.advertise, 0}.to_string());
  if (!told.ok()) return told.error().within("advertise");
  if (told->wildcard() || told->family() != data.family()) {
    return Error(fmt::format("advertise: '{}'; one address of the family of data '{}' is allowed",
                             config.advertise, config.data));
  }
  return told;
}

// Null if the configuration asks for none.
Result<std::unique_ptr<XdpPlane>> start_xdp(const SwitchConfig& config, std::uint16_t port) {
  if (config.xdp.empty()) return std::unique_ptr<XdpPlane>();
  XdpOptions options;
  THALWEG_TRY(options.data, SocketAddress::resolve(config.data));
  if (options.data.port() == 0 && config.shards > 1) {
    return Error("xdp: with several shards 'data' needs a port");
  }
  options.data.set_port(port);
  options.shards = config.shards;
  options.slots = config.aggregators;
  THALWEG_TRY(std::unique_ptr<XdpPlane> plane, XdpPlane::load(options));
  for (const std::string& device : config.xdp) {
    THALWEG_TRY_STATUS(plane->attach(device, config.xdp_generic));
  }
  return plane;
}

}  // namespace

class SwitchDaemon::Core {
 public:
  Core(const SwitchConfig& config, std::unique_ptr<EventLoop> loop,
       std::unique_ptr<SwitchPlane> plane, Fd listener)
      : plane_(std::move(plane)),
        controller_(config, *plane_),
        address_(SocketAddress::local_of(listener.get()).unmapped().to_string()),
        loop_(std::move(loop)),
        server_(*loop_, std::move(listener), controller_) {}
  ~Core() {
    loop_->stop();
    if (thread_.joinable()) thread_.join();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Status start() {
    THALWEG_TRY_STATUS(server_.start());
    thread_ = std::thread([this] { loop_->run([] { return std::optional<Time>(); }); });
    return ok_status();
  }
  [[nodiscard]] const std::string& control_address() const { return address_; }
  [[nodiscard]] std::vector<std::string> data_addresses() const { return plane_->data_addresses(); }

 private:
  std::unique_ptr<SwitchPlane> plane_;
  Controller controller_;
  std::string address_;
  std::unique_ptr<EventLoop> loop_;
  ControlServer server_;
  std::thread thread_;
};

SwitchDaemon::SwitchDaemon(std::unique_ptr<Core> core) : core_(std::move(core)) {}
SwitchDaemon::~SwitchDaemon() = default;
std::string SwitchDaemon::control_address() const { return core_->control_address(); }
std::vector<std::string> SwitchDaemon::data_addresses() const { return core_->data_addresses(); }

Result<std::unique_ptr<SwitchDaemon>> SwitchDaemon::start(const SwitchConfig& config) {
  THALWEG_TRY(const SocketAddress told, told_address(config));
  std::vector<std::unique_ptr<Shard>> shards;
  for (int i = 0; i < config.shards; ++i) {
    THALWEG_TRY(std::unique_ptr<Shard> shard, Shard::start(config, i));
    shards.push_back(std::move(shard));
  }
  THALWEG_TRY(std::unique_ptr<XdpPlane> xdp, start_xdp(config, shards.front()->port()));
  THALWEG_TRY(Fd listener, listen_tcp(config.control));
  THALWEG_TRY(std::unique_ptr<EventLoop> loop, EventLoop::make());
  auto plane = std::make_unique<ShardedPlane>(std::move(shards), told, std::move(xdp));
  auto core =
      std::make_unique<Core>(config, std::move(loop), std::move(plane), std::move(listener));
  THALWEG_TRY_STATUS(core->start());
  return std::unique_ptr<SwitchDaemon>(new SwitchDaemon(std::move(core)));
}

}  // namespace thalweg
