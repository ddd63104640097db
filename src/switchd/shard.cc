#include "switchd/shard.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/atp/packet_train.h"
#include "net/io/event_loop.h"
#include "net/io/system.h"
#include "net/io/udp_socket.h"
#include "switchd/data_plane.h"

namespace thalweg::switchd {
namespace {

// The most receive calls before the shard reads the clock and turns to other work.
constexpr int kRunsPerTurn = 32;
constexpr Duration kTick = Duration::milliseconds(100);

// The processor time of the calling thread, user and system.
std::uint64_t processor_us() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(used.tv_nsec) / 1000;
}

// The trains of packets to a job's servers and workers.
struct JobTrains {
  std::vector<net::PacketTrain> servers;  // one per server
  net::PacketTrain everyone;              // to all workers
  net::PacketTrain single;                // to one worker at a time
  std::size_t receiver = 0;               // whom `single` goes to
  struct Worker {
    net::PacketTrain::End end;
    net::PacketTrain::Counters single = {};  // by `single`
    net::PacketTrain::Counters except = {};  // by `everyone`, but not to this one
  };
  std::vector<Worker> workers;
};

class TrainOutput final : public DataPlane::Output {
 public:
  // `sockets`: by path; they outlive this.
  explicit TrainOutput(std::vector<net::UdpSocket*> sockets) : sockets_(std::move(sockets)) {}

  void install(const AdmittedJob& job) {
    // A shard that has no further sockets has no job with several paths, or gets no packets of it.
    const auto end_of = [&](const net::SocketAddress& address) {
      const auto most = static_cast<std::uint32_t>(sockets_.size());
      return net::PacketTrain::End{address, std::min(job.paths_to(address), most)};
    };
    std::vector<net::PacketTrain::End> everyone;
    for (const net::SocketAddress& worker : job.workers) everyone.push_back(end_of(worker));
    JobTrains trains{.servers = {},
                     .everyone = net::PacketTrain(sockets_, everyone),
                     .single = net::PacketTrain(sockets_, {everyone.front()}),
                     .workers = {}};
    for (const net::SocketAddress& server : job.servers) {
      trains.servers.emplace_back(sockets_, std::vector{end_of(server)});
    }
    for (const net::PacketTrain::End& end : everyone) trains.workers.push_back({.end = end});
    jobs_.emplace(job.id, std::move(trains));
  }
  // Requires that no packet waits for flush().
  void remove(std::uint32_t id) { jobs_.erase(id); }
  [[nodiscard]] const JobTrains& of(std::uint32_t id) const { return jobs_.at(id); }

  std::span<std::byte> to_server(std::uint32_t job, std::uint64_t sequence, std::uint32_t path,
                                 std::size_t size) override {
    std::vector<net::PacketTrain>& servers = jobs_.at(job).servers;
    return room(servers[sequence % servers.size()], path, size);
  }
  std::span<std::byte> to_workers(std::uint32_t job, const Receivers& receivers, std::uint32_t path,
                                  std::size_t size) override {
    JobTrains& trains = jobs_.at(job);
    if (!receivers.only) {
      if (receivers.except) count(trains.workers[*receivers.except].except, size);
      return room(trains.everyone, path, size, receivers.except);
    }
    const std::size_t worker = *receivers.only;
    if (worker != trains.receiver) {
      trains.single.flush();
      trains.single.redirect(trains.workers[worker].end);
      trains.receiver = worker;
    }
    count(trains.workers[worker].single, size);
    return room(trains.single, path, size);
  }
  void flush() {
    for (net::PacketTrain* train : waiting_) train->flush();
    waiting_.clear();
  }

 private:
  static void count(net::PacketTrain::Counters& packets, std::size_t size) {
    ++packets.packets;
    packets.bytes += size;
  }
  std::span<std::byte> room(net::PacketTrain& train, std::uint32_t path, std::size_t size,
                            std::optional<std::size_t> except = {}) {
    if (train.empty() && std::ranges::find(waiting_, &train) == waiting_.end()) {
      waiting_.push_back(&train);
    }
    return train.add(size, path, except);
  }

  std::vector<net::UdpSocket*> sockets_;
  std::unordered_map<std::uint32_t, JobTrains> jobs_;
  std::vector<net::PacketTrain*> waiting_;  // trains with packets to flush, each once
};

SwitchPlane::Counters table_counters(const switches::AggregateCounters& of) {
  SwitchPlane::Counters out;
  for (int i = 0; i < switches::kAggregateCauseCount; ++i) {
    const auto cause = static_cast<switches::AggregateAction::Cause>(i);
    out.emplace_back(switches::name_of(cause), of.of(cause));
  }
  out.emplace_back("partial_sums", of.partial_sums);
  out.emplace_back("reclaimed", of.reclaimed);
  out.emplace_back("expired", of.expired);
  out.emplace_back("discarded", of.discarded);
  out.emplace_back("reported", of.reported);
  out.emplace_back("slots", of.slots);
  out.emplace_back("most_slots", of.most_slots);
  return out;
}

SwitchPlane::Port port_of(const AdmittedJob& job, const net::SocketAddress& address,
                          const DataPlane& plane, const net::PacketTrain::Counters& out) {
  DataPlane::Received in;
  for (const net::SocketAddress& from : job.addresses_of(address)) {
    in.packets += plane.received_from(from).packets;
    in.bytes += plane.received_from(from).bytes;
  }
  return {address.to_string(),
          {{"packets_in", in.packets},
           {"bytes_in", in.bytes},
           {"packets_out", out.packets},
           {"bytes_out", out.bytes}}};
}

}  // namespace

namespace {

// Binds to the port that is `offset` after that of the configuration, or to any if that is 0.
Result<net::UdpSocket> bind_socket(const SwitchConfig& config, int offset,
                                   std::size_t receive_buffer) {
  THALWEG_TRY(net::SocketAddress local, net::SocketAddress::resolve(config.data));
  if (local.port() != 0) {
    constexpr int kMostPort = 65'535;
    const int port = local.port() + offset;
    if (port > kMostPort) {
      return Error(fmt::format("data: '{}' with {} shards and {} paths; ports end at {}",
                               config.data, config.shards, config.paths, kMostPort));
    }
    local.set_port(static_cast<std::uint16_t>(port));
  }
  return net::UdpSocket::bind(local, {.receive_buffer_bytes = receive_buffer,
                                      .send_buffer_bytes = config.receive_buffer,
                                      .keep_port = true});
}

// The socket of the shard and, of the first one, those of further paths, at which nothing is
// received.
Result<std::vector<net::UdpSocket>> bind_sockets(const SwitchConfig& config, int index) {
  std::vector<net::UdpSocket> sockets;
  THALWEG_TRY(net::UdpSocket first, bind_socket(config, index, config.receive_buffer));
  sockets.push_back(std::move(first));
  for (int i = 1; index == 0 && i < config.paths; ++i) {
    THALWEG_TRY(net::UdpSocket next, bind_socket(config, config.shards + i - 1, 1));
    sockets.push_back(std::move(next));
  }
  return sockets;
}

}  // namespace

std::uint32_t slots_per_shard(const SwitchConfig& config) {
  const auto shards = static_cast<std::uint32_t>(config.shards);
  const std::uint32_t share = config.aggregators / shards;
  std::uint32_t runs = share / net::kShardRun;
  if (shards == 1 || runs == 0) return share;
  while (std::gcd(runs, shards) != 1) --runs;
  return runs * net::kShardRun;
}

class Shard::Core final : public net::EventLoop::Handler {
 public:
  // `sockets`: the one that receives, and those of further paths.
  Core(const SwitchConfig& config, int index, std::unique_ptr<net::EventLoop> loop,
       std::vector<net::UdpSocket> sockets)
      : loop_(std::move(loop)),
        sockets_(std::move(sockets)),
        socket_(sockets_.front()),
        output_(pointers_to(sockets_)),
        plane_({.slots = slots_per_shard(config), .slot_elements = config.elements},
               static_cast<std::uint16_t>(index), output_) {}
  ~Core() override {
    loop_->stop();
    if (thread_.joinable()) thread_.join();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Status start() {
    THALWEG_TRY_STATUS(loop_->add(socket_.fd(), EPOLLIN, *this));
    thread_ = std::thread([this] { loop_->run([this] { return turn(); }); });
    return ok_status();
  }
  [[nodiscard]] std::uint16_t port() const { return socket_.port(); }
  [[nodiscard]] std::vector<std::uint16_t> source_ports() const {
    std::vector<std::uint16_t> ports;
    for (std::size_t i = 1; i < sockets_.size(); ++i) ports.push_back(sockets_[i].port());
    return ports;
  }

  // Runs `work` in the shard's thread and returns what it returned.
  template <class Work>
  auto ask(Work work) -> std::invoke_result_t<Work> {
    std::promise<std::invoke_result_t<Work>> answer;
    loop_->post([&] { answer.set_value(work()); });
    return answer.get_future().get();
  }

  void know_own(const OwnAddresses& own) { plane_.know_own(own); }
  Status install(const AdmittedJob& job) {
    THALWEG_TRY_STATUS(plane_.install(job));
    output_.install(job);
    return ok_status();
  }
  void remove(std::uint32_t id) {
    plane_.remove(id);
    output_.remove(id);
  }
  [[nodiscard]] SwitchPlane::JobStatistics statistics(const AdmittedJob& job) const;
  [[nodiscard]] SwitchPlane::Counters counters() const {
    return {{"malformed", plane_.malformed()},
            {"strangers", plane_.strangers()},
            {"looped", plane_.looped()},
            {"corrupt", plane_.corrupt()},
            {"slots", plane_.table().slots_in_use()},
            {"receive_calls", socket_.receive_calls()},
            {"send_calls", send_calls()},
            {"processor_us", processor_us()}};
  }

 private:
  void on_ready(int /*fd*/, std::uint32_t /*events*/) override {
    const Time now = net::monotonic_now();
    net::UdpSocket::Arrival arrival;
    net::SocketAddress from;
    for (int i = 0; i < kRunsPerTurn; ++i) {
      if (socket_.receive(arrival, &from) != net::UdpSocket::Received::kPackets) break;
      plane_.on_run({arrival.bytes, arrival.packet_size, arrival.marked}, from, now);
    }
    output_.flush();
  }
  static std::vector<net::UdpSocket*> pointers_to(std::vector<net::UdpSocket>& sockets) {
    std::vector<net::UdpSocket*> pointers;
    for (net::UdpSocket& socket : sockets) pointers.push_back(&socket);
    return pointers;
  }
  [[nodiscard]] std::uint64_t send_calls() const {
    std::uint64_t calls = 0;
    for (const net::UdpSocket& socket : sockets_) calls += socket.send_calls();
    return calls;
  }
  std::optional<Time> turn() {
    if (plane_.table().slots_in_use() == 0) return std::nullopt;
    const Time now = net::monotonic_now();
    if (now >= next_tick_) {
      plane_.on_tick(now);
      next_tick_ = now + kTick;
    }
    return next_tick_;
  }

  std::unique_ptr<net::EventLoop> loop_;
  std::vector<net::UdpSocket> sockets_;
  net::UdpSocket& socket_;  // the one that receives
  TrainOutput output_;
  DataPlane plane_;
  Time next_tick_;
  std::thread thread_;
};

SwitchPlane::JobStatistics Shard::Core::statistics(const AdmittedJob& job) const {
  SwitchPlane::JobStatistics out;
  out.counters = table_counters(*plane_.table().counters(job.id));
  const DataPlane::Refused& refused = plane_.refused(job.id);
  out.counters.emplace_back("foreign", refused.foreign);
  out.counters.emplace_back("keying", refused.keying);
  out.counters.emplace_back("forged", refused.forged);
  const JobTrains& trains = output_.of(job.id);
  const net::PacketTrain::Counters& everyone = trains.everyone.counters();
  std::uint64_t lost = everyone.lost + trains.single.counters().lost;
  for (const net::PacketTrain& train : trains.servers) lost += train.counters().lost;
  out.counters.emplace_back("lost", lost);
  for (std::size_t i = 0; i < job.workers.size(); ++i) {
    const JobTrains::Worker& worker = trains.workers[i];
    out.ports.push_back(
        port_of(job, job.workers[i], plane_,
                {.packets = worker.single.packets + everyone.packets - worker.except.packets,
                 .bytes = worker.single.bytes + everyone.bytes - worker.except.bytes}));
  }
  for (std::size_t i = 0; i < job.servers.size(); ++i) {
    out.ports.push_back(port_of(job, job.servers[i], plane_, trains.servers[i].counters()));
  }
  return out;
}

Shard::Shard(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Shard::~Shard() = default;

Result<std::unique_ptr<Shard>> Shard::start(const SwitchConfig& config, int index) {
  THALWEG_TRY(std::vector<net::UdpSocket> sockets, bind_sockets(config, index));
  THALWEG_TRY(std::unique_ptr<net::EventLoop> loop, net::EventLoop::make());
  auto core = std::make_unique<Core>(config, index, std::move(loop), std::move(sockets));
  THALWEG_TRY_STATUS(core->start());
  return std::unique_ptr<Shard>(new Shard(std::move(core)));
}

std::uint16_t Shard::port() const { return core_->port(); }
std::vector<std::uint16_t> Shard::source_ports() const { return core_->source_ports(); }
void Shard::know_own(const OwnAddresses& own) {
  core_->ask([&] { return core_->know_own(own), true; });
}
Status Shard::install(const AdmittedJob& job) {
  return core_->ask([&] { return core_->install(job); });
}
void Shard::remove(std::uint32_t id) {
  core_->ask([&] { return core_->remove(id), true; });
}
SwitchPlane::JobStatistics Shard::statistics(const AdmittedJob& job) {
  return core_->ask([&] { return core_->statistics(job); });
}
SwitchPlane::Counters Shard::counters() {
  return core_->ask([&] { return core_->counters(); });
}

}  // namespace thalweg::switchd
