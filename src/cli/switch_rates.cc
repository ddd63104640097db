#include "cli/switch_rates.h"

#include <fmt/format.h>

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
#include "cli/command.h"
#include "net/atp/node.h"
#include "net/atp/switch_client.h"
#include "net/system.h"
#include "net/udp_socket.h"
#include "switchd/daemon.h"
#include "switchd/data_plane.h"
#include "switchd/xdp/frame.h"
#include "switchd/xdp/xdp_plane.h"
#include "tensor/reduce.h"

namespace thalweg {
namespace {

constexpr std::uint32_t kJob = 1;
constexpr std::size_t kRun = UdpSocket::kMaxPackets;
constexpr std::uint32_t kSlots = 16'384;

// Where packets would be sent from.
class MemoryOutput final : public DataPlane::Output {
 public:
  std::span<std::byte> to_server(std::uint32_t /*job*/, std::uint64_t /*sequence*/,
                                 std::size_t size) override {
    return room(size);
  }
  std::span<std::byte> to_workers(std::uint32_t /*job*/, std::optional<std::size_t> /*worker*/,
                                  std::size_t size) override {
    return room(size);
  }

 private:
  std::span<std::byte> room(std::size_t size) {
    if (used_ + size > bytes_.size()) used_ = 0;
    used_ += size;
    return std::span(bytes_).subspan(used_ - size, size);
  }
  std::vector<std::byte> bytes_ = std::vector<std::byte>(UdpSocket::kMaxMessage);
  std::size_t used_ = 0;
};

SocketAddress loopback(int port) {
  return SocketAddress::resolve("127.0.0.1:" + std::to_string(port)).value();
}

constexpr int kFirstPort = 20'000;

// A job whose workers are at kFirstPort and after it, the server after them.
AdmittedJob bench_job(int workers) {
  AdmittedJob job;
  job.id = kJob;
  for (int w = 0; w < workers; ++w) job.workers.push_back(loopback(kFirstPort + w));
  job.servers.push_back(loopback(kFirstPort + workers));
  return job;
}

AtpHeader gradient_of(const SwitchLoad& load, int worker) {
  AtpHeader header;
  header.job = kJob;
  header.fan_in = static_cast<std::uint8_t>(load.workers);
  header.elements = static_cast<std::uint16_t>(load.elements);
  header.workers = atp_bit(static_cast<unsigned>(worker));
  return header;
}

AtpHeader parameter_of(const SwitchLoad& load) {
  AtpHeader header = gradient_of(load, 0);
  header.kind = AtpKind::kParameter;
  header.workers = 0;
  header.groups = 1;
  return header;
}

// A run of packets of consecutive sequences, from one end.
class PacketRun {
 public:
  PacketRun(AtpHeader header, const SocketAddress& from) : header_(header), from_(from) {
    size_ = atp_packet_size(header_);
    bytes_.resize(kRun * size_);
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i % 7);
  }
  void number(std::uint64_t first) {
    for (std::size_t i = 0; i < kRun; ++i) {
      header_.sequence = first + i;
      encode_atp_header(header_, std::span(bytes_).subspan(i * size_, size_));
    }
  }
  [[nodiscard]] DataPlane::Run run() const { return {bytes_, size_, false}; }
  [[nodiscard]] const SocketAddress& from() const { return from_; }

 private:
  AtpHeader header_;
  SocketAddress from_;
  std::size_t size_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace

double measure_stage(const SwitchLoad& load) {
  MemoryOutput output;
  DataPlane plane({.slots = kSlots, .slot_elements = load.elements}, 0, output);
  const AdmittedJob job = bench_job(load.workers);
  std::vector<PacketRun> runs;
  for (int w = 0; w < load.workers; ++w) {
    runs.emplace_back(gradient_of(load, w), job.workers[static_cast<std::size_t>(w)]);
  }
  runs.emplace_back(parameter_of(load), job.servers.front());
  CHECK(plane.install(job).ok());

  const double end = monotonic_now().since_start().s() + load.seconds;
  double used = 0;
  std::uint64_t sequences = 0;
  while (monotonic_now().since_start().s() < end) {
    for (PacketRun& run : runs) {
      run.number(sequences);
      const double start = processor_seconds();
      plane.on_run(run.run(), run.from(), monotonic_now());
      used += processor_seconds() - start;
    }
    sequences += kRun;
  }
  const AggregateCounters& counters = *plane.table().counters(kJob);
  CHECK(counters.of(AggregateAction::Cause::kCompleted) == sequences &&
            counters.of(AggregateAction::Cause::kFreed) == sequences,
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
  const SocketAddress data = loopback(kFirstPort - 1);
  XdpOptions options;
  options.slots = kSlots;
  options.data = data;
  options.next_hop = std::array<std::uint8_t, 6>{2, 0, 0, 0, 0, 1};
  THALWEG_TRY(const std::unique_ptr<XdpPlane> plane, XdpPlane::load(options));
  const AdmittedJob job = bench_job(load.workers);
  THALWEG_TRY_STATUS(plane->install(job));
  std::vector<std::byte> packet(atp_packet_size(gradient_of(load, 0)));
  std::vector<std::byte> out(2048);
  std::chrono::nanoseconds used{};
  std::uint64_t sequence = 0;
  const auto run = [&](AtpHeader header, const SocketAddress& from) -> Status {
    header.sequence = sequence;
    encode_atp_header(header, packet);
    THALWEG_TRY(const XdpPlane::Outcome outcome, plane->run(udp_frame(from, data, packet), out));
    used += outcome.duration;
    return ok_status();
  };
  for (const double end = monotonic_now().since_start().s() + load.seconds;
       monotonic_now().since_start().s() < end; ++sequence) {
    for (int w = 0; w < load.workers; ++w) {
      THALWEG_TRY_STATUS(run(gradient_of(load, w), job.workers[static_cast<std::size_t>(w)]));
    }
    THALWEG_TRY_STATUS(run(parameter_of(load), job.servers.front()));
  }
  const SwitchPlane::Counters counters = plane->counters(kJob);
  CHECK(counters[static_cast<std::size_t>(AggregateAction::Cause::kCompleted)].second == sequence,
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
    reduce(DType::kInt32, ReduceOp::kSum, a.data(), a.data(), b.data(), count);
    best = std::max(best, 3.0 * kArray / (processor_seconds() - start));
  }
  return best / (3.0 * load.elements * sizeof(std::int32_t) + double{kAtpHeaderSize});
}

namespace {

// The ranks of a job over a switch, in this process.
class LoopbackJob {
 public:
  static Result<std::unique_ptr<LoopbackJob>> make(const SwitchLoad& load) {
    auto job = std::make_unique<LoopbackJob>();
    SwitchConfig config;
    config.control = "127.0.0.1:0";
    config.elements = load.elements;
    THALWEG_TRY(job->daemon_, SwitchDaemon::start(config));
    AtpNodeOptions options;
    JobRequest request;
    for (int w = 0; w < load.workers; ++w) {
      THALWEG_TRY(std::unique_ptr<AtpNode> node, AtpNode::bind(loopback(0)));
      options.members.push_back(node->address());
      request.workers.push_back(node->address().to_string());
      job->nodes_.push_back(std::move(node));
    }
    request.servers.push_back(request.workers.front());
    request.window = options.window;
    const Time until = monotonic_now() + Duration::milliseconds(5'000);
    THALWEG_TRY(SwitchClient client,
                SwitchClient::connect(job->daemon_->control_address(), "", until));
    THALWEG_TRY(const JobGrant grant, client.create(request, until));
    options.job = grant.id;
    options.elements = load.elements;
    for (const std::string& address : grant.data) {
      THALWEG_TRY(const SocketAddress shard, SocketAddress::resolve(address));
      options.shards.push_back(shard);
    }
    for (auto& node : job->nodes_) {
      options.rank = static_cast<int>(&node - job->nodes_.data());
      THALWEG_TRY_STATUS(node->join(options));
    }
    job->client_ = std::make_unique<SwitchClient>(std::move(client));
    return job;
  }

  // Every node's tensor, which is 1 everywhere, becomes the sum.
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

  // A counter of the switch.
  Result<double> counter(const char* of, const char* name) {
    THALWEG_TRY(const nlohmann::json answer,
                client_->ask({{"op", "stats"}}, monotonic_now() + Duration::milliseconds(5'000)));
    const nlohmann::json& counters = std::string_view(of) == "switch"
                                         ? answer.at("switch")
                                         : answer.at("jobs").at(0).at("counters");
    return counters.at(name).get<double>();
  }

 private:
  std::unique_ptr<SwitchDaemon> daemon_;
  std::vector<std::unique_ptr<AtpNode>> nodes_;
  std::unique_ptr<SwitchClient> client_;
};

}  // namespace

Result<UdpRate> measure_udp(const SwitchLoad& load) {
  constexpr std::size_t kElements = std::size_t{1} << 18;
  THALWEG_TRY(const std::unique_ptr<LoopbackJob> job, LoopbackJob::make(load));
  const auto workers = static_cast<std::size_t>(load.workers);
  const double end = monotonic_now().since_start().s() + load.seconds;
  do {
    std::vector<std::vector<std::int32_t>> tensors(workers,
                                                   std::vector<std::int32_t>(kElements, 1));
    THALWEG_TRY_STATUS(job->reduce(tensors));
    for (const auto& tensor : tensors) {
      if (std::ranges::all_of(tensor, [&](std::int32_t x) { return x == load.workers; })) continue;
      return Error("a sum over the switch is wrong");
    }
  } while (monotonic_now().since_start().s() < end);
  double packets = 0;
  for (const char* cause : {"stored", "added", "completed", "collision", "resent", "flushed"}) {
    THALWEG_TRY(const double count, job->counter("job", cause));
    packets += count;
  }
  THALWEG_TRY(const double microseconds, job->counter("switch", "processor_us"));
  THALWEG_TRY(const double calls, job->counter("switch", "receive_calls"));
  return UdpRate{packets / (microseconds * 1e-6), packets / calls};
}

}  // namespace thalweg
