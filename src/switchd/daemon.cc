#include "switchd/daemon.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "net/io/event_loop.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "switchd/controller.h"
#include "switchd/own_addresses.h"
#include "switchd/shard.h"
#include "switchd/xdp/xdp_plane.h"

namespace thalweg::switchd {
namespace {

// Adds the counters of a shard to the sum. For a counter that is a maximum over time (most_slots),
// the sum is an upper bound.
void add_up(SwitchPlane::Counters& sum, const SwitchPlane::Counters& more) {
  if (sum.empty()) {
    sum = more;
    return;
  }
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i].second += more[i].second;
}

// All shards, and XDP if it is used, as one plane.
class ShardedPlane final : public SwitchPlane {
 public:
  // `told`: the address that jobs are told, without the port. `bound`: the one that the shards are
  // bound to. `control`: that of the control socket, if it has a port of its own. `xdp`: null
  // without XDP.
  ShardedPlane(std::vector<std::unique_ptr<Shard>> shards, net::SocketAddress told,
               net::SocketAddress bound, net::SocketAddress control, std::unique_ptr<XdpPlane> xdp)
      : shards_(std::move(shards)),
        xdp_(std::move(xdp)),
        family_(told.family()),
        told_(told),
        bound_(bound),
        control_(control) {
    for (const auto& shard : shards_) {
      ports_.push_back(shard->port());
      told.set_port(shard->port());
      addresses_.push_back(told.to_string());
    }
    own_ports_ = ports_;
    const std::vector<std::uint16_t> sources = source_ports();
    own_ports_.insert(own_ports_.end(), sources.begin(), sources.end());
  }

  [[nodiscard]] std::vector<std::string> data_addresses() const override { return addresses_; }
  [[nodiscard]] std::vector<std::uint16_t> source_ports() const override {
    return shards_.front()->source_ports();
  }
  [[nodiscard]] int family() const override { return family_; }
  [[nodiscard]] bool own(const net::SocketAddress& address) const override {
    // The address that jobs are told may be translated to the one that the shards are bound to.
    return OwnAddresses(bound_, own_ports_).contains(address) ||
           OwnAddresses(told_, own_ports_).contains(address);
  }
  [[nodiscard]] bool control(const net::SocketAddress& address) const override {
    return OwnAddresses(control_, {control_.port()}).contains(address);
  }

  Status install(const AdmittedJob& job) override {
    AdmittedJob share = job;
    const auto shards = static_cast<std::uint32_t>(shards_.size());
    share.about.limit = (job.about.limit + shards - 1) / shards;
    // This host's addresses may have changed since the last job came.
    const OwnAddresses own(bound_, own_ports_);
    for (const auto& shard : shards_) {
      shard->know_own(own);
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
  net::SocketAddress told_;
  net::SocketAddress bound_;
  net::SocketAddress control_;
  std::vector<std::uint16_t> ports_;
  std::vector<std::uint16_t> own_ports_;  // these, and those from which packets are sent
  std::vector<std::string> addresses_;
  std::map<std::uint32_t, AdmittedJob> jobs_;
};

// The address of the data sockets that jobs are told. Its port means nothing: each shard has its
// own.
Result<net::SocketAddress> told_address(const SwitchConfig& config) {
  THALWEG_TRY(net::SocketAddress data, net::SocketAddress::resolve(config.data));
  if (data.wildcard() && !config.xdp.empty()) {
    return Error(
        fmt::format("data: '{}' with xdp; the address of a device is allowed", config.data));
  }
  if (config.advertise.empty()) {
    if (!data.wildcard()) return data;
    return Error(
        fmt::format("data: '{}' without 'advertise'; jobs must be told one address", config.data));
  }
  Result<net::SocketAddress> told =
      net::SocketAddress::resolve(net::HostPort{config.advertise, 0}.to_string());
  if (!told.ok()) return told.error().within("advertise");
  if (told->wildcard() || told->family() != data.family()) {
    return Error(fmt::format("advertise: '{}'; one address of the family of data '{}' is allowed",
                             config.advertise, config.data));
  }
  return told;
}

// The address of the control socket; empty if the system chose its port. That may also be the UDP
// port of a worker on this host, which must not be refused for it.
net::SocketAddress known_control(const SwitchConfig& config, const net::Fd& listener) {
  const Result<net::HostPort> wanted = net::HostPort::parse(config.control);
  if (!wanted.ok() || wanted->port == 0) return {};
  return net::SocketAddress::local_of(listener.get());
}

// Starts XDP; null if the configuration names no devices.
Result<std::unique_ptr<XdpPlane>> start_xdp(const SwitchConfig& config, std::uint16_t port) {
  if (config.xdp.empty()) return std::unique_ptr<XdpPlane>();
  XdpOptions options;
  THALWEG_TRY(options.data, net::SocketAddress::resolve(config.data));
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
  Core(const SwitchConfig& config, std::unique_ptr<net::EventLoop> loop,
       std::unique_ptr<SwitchPlane> plane, net::Fd listener)
      : plane_(std::move(plane)),
        controller_(config, *plane_),
        address_(net::SocketAddress::local_of(listener.get()).unmapped().to_string()),
        loop_(std::move(loop)),
        server_(*loop_, std::move(listener),
                {.key = config.key, .greeting_time = config.greeting_time}, controller_) {}
  ~Core() {
    loop_->stop();
    if (thread_.joinable()) thread_.join();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Status start() {
    THALWEG_TRY_STATUS(server_.start());
    thread_ = std::thread([this] { loop_->run([this] { return turn(); }); });
    return ok_status();
  }
  [[nodiscard]] const std::string& control_address() const { return address_; }
  [[nodiscard]] std::vector<std::string> data_addresses() const { return plane_->data_addresses(); }

 private:
  std::optional<Time> turn() {
    const Time now = net::monotonic_now();
    const std::optional<Time> idle = controller_.on_timeout(now);
    const std::optional<Time> silent = server_.on_timeout(now);
    return idle && silent ? std::min(*idle, *silent) : idle ? idle : silent;
  }

  std::unique_ptr<SwitchPlane> plane_;
  Controller controller_;
  std::string address_;
  std::unique_ptr<net::EventLoop> loop_;
  ControlServer server_;
  std::thread thread_;
};

SwitchDaemon::SwitchDaemon(std::unique_ptr<Core> core) : core_(std::move(core)) {}
SwitchDaemon::~SwitchDaemon() = default;
std::string SwitchDaemon::control_address() const { return core_->control_address(); }
std::vector<std::string> SwitchDaemon::data_addresses() const { return core_->data_addresses(); }

Result<std::unique_ptr<SwitchDaemon>> SwitchDaemon::start(const SwitchConfig& config) {
  THALWEG_TRY(const net::SocketAddress told, told_address(config));
  std::vector<std::unique_ptr<Shard>> shards;
  for (int i = 0; i < config.shards; ++i) {
    THALWEG_TRY(std::unique_ptr<Shard> shard, Shard::start(config, i));
    shards.push_back(std::move(shard));
  }
  THALWEG_TRY(std::unique_ptr<XdpPlane> xdp, start_xdp(config, shards.front()->port()));
  THALWEG_TRY(net::Fd listener, net::listen_tcp(config.control));
  THALWEG_TRY(std::unique_ptr<net::EventLoop> loop, net::EventLoop::make());
  THALWEG_TRY(const net::SocketAddress bound, net::SocketAddress::resolve(config.data));
  auto plane = std::make_unique<ShardedPlane>(std::move(shards), told, bound,
                                              known_control(config, listener), std::move(xdp));
  auto core =
      std::make_unique<Core>(config, std::move(loop), std::move(plane), std::move(listener));
  THALWEG_TRY_STATUS(core->start());
  return std::unique_ptr<SwitchDaemon>(new SwitchDaemon(std::move(core)));
}

}  // namespace thalweg::switchd
