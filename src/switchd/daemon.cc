#include "switchd/daemon.h"

#include <fmt/format.h>

#include <map>
#include <thread>
#include <utility>

#include "net/event_loop.h"
#include "net/tcp.h"
#include "switchd/controller.h"
#include "switchd/shard.h"

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
  ShardedPlane(std::vector<std::unique_ptr<Shard>> shards, const std::string& host)
      : shards_(std::move(shards)) {
    for (const auto& shard : shards_) {
      addresses_.push_back(HostPort{host, shard->port()}.to_string());
    }
  }

  [[nodiscard]] std::vector<std::string> data_addresses() const override { return addresses_; }

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
    jobs_[job.id] = job;
    return ok_status();
  }

  void remove(std::uint32_t id) override {
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
    return sum;
  }

  Counters counters() override {
    Counters sum;
    for (const auto& shard : shards_) add_up(sum, shard->counters());
    return sum;
  }

 private:
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::string> addresses_;
  std::map<std::uint32_t, AdmittedJob> jobs_;
};

}  // namespace

class SwitchDaemon::Core {
 public:
  Core(const SwitchConfig& config, std::unique_ptr<EventLoop> loop,
       std::vector<std::unique_ptr<Shard>> shards, const std::string& host, Fd listener)
      : plane_(std::move(shards), host),
        controller_(config, plane_),
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
  [[nodiscard]] std::vector<std::string> data_addresses() const { return plane_.data_addresses(); }

 private:
  ShardedPlane plane_;
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
  std::vector<std::unique_ptr<Shard>> shards;
  for (int i = 0; i < config.shards; ++i) {
    THALWEG_TRY(std::unique_ptr<Shard> shard, Shard::start(config, i));
    shards.push_back(std::move(shard));
  }
  std::string host = config.advertise;
  if (host.empty()) {
    THALWEG_TRY(const HostPort data, HostPort::parse(config.data));
    host = data.host;
  }
  THALWEG_TRY(Fd listener, listen_tcp(config.control));
  THALWEG_TRY(std::unique_ptr<EventLoop> loop, EventLoop::make());
  auto core =
      std::make_unique<Core>(config, std::move(loop), std::move(shards), host, std::move(listener));
  THALWEG_TRY_STATUS(core->start());
  return std::unique_ptr<SwitchDaemon>(new SwitchDaemon(std::move(core)));
}

}  // namespace thalweg
