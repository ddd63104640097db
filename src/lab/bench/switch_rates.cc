#include "lab/bench/switch_rates.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "lab/console.h"
#include "net/atp/node.h"
#include "net/atp/switch_client.h"
#include "net/io/system.h"
#include "net/io/udp_socket.h"
#include "switchd/daemon.h"
#include "switchd/data_plane.h"
#include "switchd/xdp/frame.h"
#include "switchd/xdp/xdp_plane.h"
#include "tensor/reduce.h"

namespace thalweg::lab {
namespace {

constexpr std::uint32_t kJob = 1;
constexpr std::size_t kRun = net::UdpSocket::kMaxPackets;
constexpr std::uint32_t kSlots = 16'384;

// The memory from which packets would be sent.
class MemoryOutput final : public switchd::DataPlane::Output {
 public:
  std::span<std::byte> to_server(std::uint32_t /*job*/, std::uint64_t /*sequence*/,
                                 std::uint32_t /*path*/, std::size_t size) override {
    return room(size);
  }
  std::span<std::byte> to_workers(std::uint32_t /*job*/, const Receivers& /*receivers*/,
                                  std::uint32_t /*path*/, std::size_t size) override {
    return room(size);
  }

 private:
  std::span<std::byte> room(std::size_t size) {
    if (used_ + size > bytes_.size()) used_ = 0;
    used_ += size;
    return std::span(bytes_).subspan(used_ - size, size);
  }
  std::vector<std::byte> bytes_ = std::vector<std::byte>(net::UdpSocket::kMaxMessage);
  std::size_t used_ = 0;
};

net::SocketAddress loopback(int port) {
  return net::SocketAddress::resolve("127.0.0.1:" + std::to_string(port)).value();
}

constexpr int kFirstPort = 20'000;

// A job whose workers have the ports from kFirstPort on, and whose server has the next one.
switchd::AdmittedJob bench_job(int workers) {
  switchd::AdmittedJob job;
  job.id = kJob;
  for (int w = 0; w < workers; ++w) job.workers.push_back(loopback(kFirstPort + w));
  job.servers.push_back(loopback(kFirstPort + workers));
  return job;
}

wire::AtpHeader gradient_of(const SwitchLoad& load, int worker) {
  wire::AtpHeader header;
  header.job = kJob;
  header.fan_in = static_cast<std::uint8_t>(load.workers);
  header.elements = static_cast<std::uint16_t>(load.elements);
  header.workers = wire::atp_bit(static_cast<unsigned>(worker));
  return header;
}

wire::AtpHeader parameter_of(const SwitchLoad& load) {
  wire::AtpHeader header = gradient_of(load, 0);
  header.kind = wire::AtpKind::kParameter;
  header.workers = 0;
  header.groups = 1;
  return header;
}

// Packets of one sender with consecutive sequences.
class PacketRun {
 public:
  PacketRun(wire::AtpHeader header, const net::SocketAddress& from) : header_(header), from_(from) {
    size_ = wire::atp_packet_size(header_);
    bytes_.resize(kRun * size_);
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i % 7);
  }
  void number(std::uint64_t first) {
    for (std::size_t i = 0; i < kRun; ++i) {
      header_.sequence = first + i;
      wire::encode_atp_header(header_, std::span(bytes_).subspan(i * size_, size_));
    }
  }
  [[nodiscard]] switchd::DataPlane::Run run() const { return {bytes_, size_, false}; }
  [[nodiscard]] const net::SocketAddress& from() const { return from_; }

 private:
  wire::AtpHeader header_;
  net::SocketAddress from_;
  std::size_t size_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace

double measure_stage(const SwitchLoad& load) {
  MemoryOutput output;
  switchd::DataPlane plane({.slots = kSlots, .slot_elements = load.elements}, 0, output);
  const switchd::AdmittedJob job = bench_job(load.workers);
  std::vector<PacketRun> runs;
  for (int w = 0; w < load.workers; ++w) {
    runs.emplace_back(gradient_of(load, w), job.workers[static_cast<std::size_t>(w)]);
  }
  runs.emplace_back(parameter_of(load), job.servers.front());
  CHECK(plane.install(job).ok());

  const double end = net::monotonic_now().since_start().s() + load.seconds;
  double used = 0;
  std::uint64_t sequences = 0;
  while (net::monotonic_now().since_start().s() < end) {
    for (PacketRun& run : runs) {
      run.number(sequences);
      const double start = processor_seconds();
      plane.on_run(run.run(), run.from(), net::monotonic_now());
      used += processor_seconds() - start;
    }
    sequences += kRun;
  }
  const switches::AggregateCounters& counters = *plane.table().counters(kJob);
  CHECK(counters.of(switches::AggregateAction::Cause::kCompleted) == sequences &&
            counters.of(switches::AggregateAction::Cause::kFreed) == sequences,
        "not every packet was aggregated");
  return static_cast<double>(sequences) * load.workers / used;
}

Result<double> measure_xdp(const SwitchLoad& load) {
  constexpr std::uint32_t kMostElements = 64;
  if (load.elements > kMostElements) {
    return Error(
        fmt::format("packets of {} elements go to the process; up to {} are for the kernel",
                    load.elements, kMostElements));
  }
  const net::SocketAddress data = loopback(kFirstPort - 1);
  switchd::XdpOptions options;
  options.slots = kSlots;
  options.data = data;
  options.next_hop = std::array<std::uint8_t, 6>{2, 0, 0, 0, 0, 1};
  THALWEG_TRY(const std::unique_ptr<switchd::XdpPlane> plane, switchd::XdpPlane::load(options));
  const switchd::AdmittedJob job = bench_job(load.workers);
  THALWEG_TRY_STATUS(plane->install(job));
  std::vector<std::byte> packet(wire::atp_packet_size(gradient_of(load, 0)));
  std::vector<std::byte> out(2048);
  std::chrono::nanoseconds used{};
  std::uint64_t sequence = 0;
  const auto run = [&](wire::AtpHeader header, const net::SocketAddress& from) -> Status {
    header.sequence = sequence;
    wire::encode_atp_header(header, packet);
    THALWEG_TRY(const switchd::XdpPlane::Outcome outcome,
                plane->run(switchd::udp_frame(from, data, packet), out));
    used += outcome.duration;
    return ok_status();
  };
  for (const double end = net::monotonic_now().since_start().s() + load.seconds;
       net::monotonic_now().since_start().s() < end; ++sequence) {
    for (int w = 0; w < load.workers; ++w) {
      THALWEG_TRY_STATUS(run(gradient_of(load, w), job.workers[static_cast<std::size_t>(w)]));
    }
    THALWEG_TRY_STATUS(run(parameter_of(load), job.servers.front()));
  }
  const switchd::SwitchPlane::Counters counters = plane->counters(kJob);
  CHECK(counters[static_cast<std::size_t>(switches::AggregateAction::Cause::kCompleted)].second ==
            sequence,
        "not every packet was aggregated");
  return static_cast<double>(sequence) * load.workers / std::chrono::duration<double>(used).count();
}

double measure_memory_limit(const SwitchLoad& load) {
  constexpr std::size_t kArray = std::size_t{32} << 20;
  constexpr int kRepetitions = 5;
  const std::size_t count = kArray / sizeof(std::int32_t);
  std::vector<std::int32_t> a(count, 1);
  const std::vector<std::int32_t> b(count, 2);
  double best = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    const double start = processor_seconds();
    tensor::reduce(DType::kInt32, ReduceOp::kSum, a.data(), a.data(), b.data(), count);
    best = std::max(best, 3.0 * kArray / (processor_seconds() - start));
  }
  return best / (3.0 * load.elements * sizeof(std::int32_t) + double{wire::kAtpHeaderSize});
}

namespace {

// A switch and all ranks of a job that uses it, in this process.
class LoopbackJob {
 public:
  static Result<std::unique_ptr<LoopbackJob>> make(const SwitchLoad& load) {
    auto job = std::make_unique<LoopbackJob>();
    switchd::SwitchConfig config;
    config.control = "127.0.0.1:0";
    config.elements = load.elements;
    THALWEG_TRY(job->daemon_, switchd::SwitchDaemon::start(config));
    net::AtpNodeOptions options;
    net::JobRequest request;
    for (int w = 0; w < load.workers; ++w) {
      THALWEG_TRY(std::unique_ptr<net::AtpNode> node, net::AtpNode::bind(loopback(0)));
      options.members.push_back(node->address());
      request.workers.push_back(node->address().to_string());
      job->nodes_.push_back(std::move(node));
    }
    request.servers.push_back(request.workers.front());
    request.window = options.window;
    const Time until = net::monotonic_now() + Duration::milliseconds(5'000);
    THALWEG_TRY(net::SwitchClient client,
                net::SwitchClient::connect(job->daemon_->control_address(), {}, until));
    THALWEG_TRY(const net::JobGrant grant, client.create(request, until));
    options.job = grant.id;
    options.elements = load.elements;
    for (const std::string& address : grant.data) {
      THALWEG_TRY(const net::SocketAddress shard, net::SocketAddress::resolve(address));
      options.shards.push_back(shard);
    }
    for (auto& node : job->nodes_) {
      options.rank = static_cast<int>(&node - job->nodes_.data());
      THALWEG_TRY_STATUS(node->join(options));
    }
    job->client_ = std::make_unique<net::SwitchClient>(std::move(client));
    return job;
  }

  // Replaces every rank's tensor by the sum of all.
  Status reduce(std::vector<std::vector<std::int32_t>>& tensors) {
    std::vector<std::future<Status>> ends;
    for (std::size_t w = 0; w < nodes_.size(); ++w) {
      auto promise = std::make_shared<std::promise<Status>>();
      ends.push_back(promise->get_future());
      nodes_[w]->reduce({.type = DType::kInt32,
                         .data = reinterpret_cast<std::byte*>(tensors[w].data()),
                         .elements = static_cast<std::int64_t>(tensors[w].size()),
                         .deadline = Duration::milliseconds(30'000),
                         .done = [promise](const Status& status) { promise->set_value(status); }});
    }
    for (auto& end : ends) THALWEG_TRY_STATUS(end.get());
    return ok_status();
  }

  // A counter of the switch, or of its job, by name.
  Result<double> counter(const char* of, const char* name) {
    THALWEG_TRY(
        const nlohmann::json answer,
        client_->ask({{"op", "stats"}}, net::monotonic_now() + Duration::milliseconds(5'000)));
    const nlohmann::json& counters = std::string_view(of) == "switch"
                                         ? answer.at("switch")
                                         : answer.at("jobs").at(0).at("counters");
    return counters.at(name).get<double>();
  }

 private:
  std::unique_ptr<switchd::SwitchDaemon> daemon_;
  std::vector<std::unique_ptr<net::AtpNode>> nodes_;
  std::unique_ptr<net::SwitchClient> client_;
};

}  // namespace

Result<UdpRate> measure_udp(const SwitchLoad& load) {
  constexpr std::size_t kElements = std::size_t{1} << 18;
  THALWEG_TRY(const std::unique_ptr<LoopbackJob> job, LoopbackJob::make(load));
  const auto workers = static_cast<std::size_t>(load.workers);
  const double end = net::monotonic_now().since_start().s() + load.seconds;
  do {
    std::vector<std::vector<std::int32_t>> tensors(workers,
                                                   std::vector<std::int32_t>(kElements, 1));
    THALWEG_TRY_STATUS(job->reduce(tensors));
    for (const auto& tensor : tensors) {
      if (std::ranges::all_of(tensor, [&](std::int32_t x) { return x == load.workers; })) continue;
      return Error("a sum over the switch is wrong");
    }
  } while (net::monotonic_now().since_start().s() < end);
  double packets = 0;
  for (const char* cause : {"stored", "added", "completed", "collision", "resent", "flushed"}) {
    THALWEG_TRY(const double count, job->counter("job", cause));
    packets += count;
  }
  THALWEG_TRY(const double microseconds, job->counter("switch", "processor_us"));
  THALWEG_TRY(const double calls, job->counter("switch", "receive_calls"));
  return UdpRate{packets / (microseconds * 1e-6), packets / calls};
}

}  // namespace thalweg::lab
