#include "net/atp/node.h"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.h"
#include "net/atp/job_message.h"
#include "net/atp/member.h"
#include "net/atp/server_driver.h"
#include "net/atp/worker_driver.h"
#include "net/io/event_loop.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr int kRunsPerTurn = 32;
// Bytes; enough for a window of packets from every rank.
constexpr std::size_t kSocketBuffer = std::size_t{8} << 20;

Status check(const AtpNodeOptions& options) {
  const std::size_t ranks = options.members.size();
  if (ranks < 1 || ranks > kMaxJobWorkers) {
    return Error(fmt::format("ranks of a job over atp: {}; from 1 to {} are allowed", ranks,
                             kMaxJobWorkers));
  }
  const std::size_t most_servers = std::min(ranks, kMaxJobServers);
  if (options.servers < 1 || static_cast<std::size_t>(options.servers) > most_servers) {
    return Error(
        fmt::format("atp_servers: {}; from 1 to {} are allowed", options.servers, most_servers));
  }
  const std::vector<std::uint8_t> groups = atp_groups(options);
  CHECK(groups.size() <= wire::kAtpMostGroups);
  CHECK(std::ranges::all_of(groups, [](std::uint8_t size) {
    return size >= 1 && size <= wire::kAtpMostWorkersPerGroup;
  }));
  CHECK(std::accumulate(groups.begin(), groups.end(), std::size_t{0}) == ranks);
  CHECK(!options.server_apart || options.servers == 1);
  CHECK(!options.on_sum || options.server_apart);
  if (options.own_sums && (options.server_apart || !own_sums_possible(groups, options.servers))) {
    return Error("own_sums: a server is no rank, or a group of its own");
  }
  return ok_status();
}

}  // namespace

class AtpNode::Core final : public EventLoop::Handler {
 public:
  Core(std::unique_ptr<EventLoop> loop, UdpSocket socket)
      : loop_(std::move(loop)), socket_(std::move(socket)) {}
  ~Core() override {
    loop_->stop();
    if (thread_.joinable()) thread_.join();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] SocketAddress address() const { return SocketAddress::local_of(socket_.fd()); }
  EventLoop& loop() { return *loop_; }

  Status join(const AtpNodeOptions& options) {
    THALWEG_TRY_STATUS(check(options));
    join_next(options);
    THALWEG_TRY_STATUS(loop_->add(socket_.fd(), EPOLLIN, *this));
    thread_ = std::thread([this] { loop_->run([this] { return turn(); }); });
    return ok_status();
  }
  // Requires options that check() accepts.
  void join_next(const AtpNodeOptions& options) {
    parts_.push_back(std::make_unique<Part>(options, socket_));
    if (failed_ && parts_.back()->worker) parts_.back()->worker->fail(*failed_, monotonic_now());
  }
  void use_next() {
    if (current_ + 1 < parts_.size()) ++current_;
  }
  void leave_earlier() {
    for (; current_ > 0; --current_) {
      parts_.front()->member.flush();
      corrupt_ += parts_.front()->corrupt();
      parts_.erase(parts_.begin());
    }
  }
  void start(AtpReduction reduction) {
    parts_[current_]->worker->start(std::move(reduction), monotonic_now());
  }
  void fail(const Error& cause) {
    if (!failed_) failed_ = cause;
    for (const auto& part : parts_) {
      if (part->worker) part->worker->fail(cause, monotonic_now());
    }
  }
  [[nodiscard]] Counters counters() const {
    const auto& worker = parts_[current_]->worker;
    const auto& server = parts_[current_]->server;
    std::uint64_t corrupt = corrupt_;
    for (const auto& part : parts_) corrupt += part->corrupt();
    return {.worker = worker ? worker->counters() : proto::AtpWorkerCounters(),
            .server_packets = server ? server->packets() : 0,
            .server_bytes = server ? server->bytes() : 0,
            .sent_direct = worker ? worker->sent_direct() : 0,
            .refused = refused_,
            .corrupt = corrupt,
            .switch_gone = worker && worker->switch_gone()};
  }

 private:
  // What the node is in one job.
  struct Part {
    Part(const AtpNodeOptions& options, UdpSocket& socket)
        : job(options.job), member(options, socket) {
      if (!options.on_sum) worker.emplace(member);
      if (options.on_sum || (!options.server_apart && options.rank < options.servers)) {
        server.emplace(member);
      }
      if (options.own_sums && server) {
        server->keep_own(*worker);
        worker->keep_own(*server);
      }
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part() = default;

    [[nodiscard]] std::uint64_t corrupt() const {
      return (worker ? worker->counters().corrupt : 0) + (server ? server->corrupt() : 0);
    }

    std::uint32_t job;
    AtpMember member;
    std::optional<AtpWorkerDriver> worker;
    std::optional<AtpServerDriver> server;
  };

  void on_ready(int /*fd*/, std::uint32_t /*events*/) override {
    const Time now = monotonic_now();
    UdpSocket::Arrival arrival;
    SocketAddress from;
    for (int i = 0; i < kRunsPerTurn; ++i) {
      if (socket_.receive(arrival, &from) != UdpSocket::Received::kPackets) return;
      if (arrival.bytes.empty()) ++refused_;
      Part* last = nullptr;
      const AtpMember::Sender* sender = nullptr;
      for (std::size_t at = 0; at < arrival.bytes.size(); at += arrival.packet_size) {
        const std::span<const std::byte> packet =
            arrival.bytes.subspan(at, std::min(arrival.packet_size, arrival.bytes.size() - at));
        Part& part = part_of(packet);
        if (&part != last) sender = &part.member.sender(from);
        last = &part;
        on_packet(part, packet, *sender, arrival.marked, now);
      }
    }
  }

  // The part in the packet's job. Packets of any other job are for the current one, which refuses
  // them.
  [[nodiscard]] Part& part_of(std::span<const std::byte> packet) {
    if (parts_.size() > 1) {
      const std::uint32_t job = wire::atp_job_of(packet);
      for (const auto& part : parts_) {
        if (part->job == job) return *part;
      }
    }
    return *parts_[current_];
  }

  void on_packet(Part& part, std::span<const std::byte> packet, const AtpMember::Sender& sender,
                 bool marked, Time now) {
    wire::AtpHeader header;
    const AtpMember::Read read =
        sender.known() ? part.member.read(packet, header) : AtpMember::Read::kRefused;
    if (read != AtpMember::Read::kTaken) {
      ++(read == AtpMember::Read::kCorrupt ? corrupt_ : refused_);
      return;
    }
    header.congested = header.congested || marked;
    const bool up = header.kind == wire::AtpKind::kGradient;
    // A member may send only its own gradient and, if it is a server, sums.
    const bool own =
        sender.is_switch ||
        (up ? sender.rank && part.member.ranks_of(header) == sender.alone : sender.is_server);
    if (!own || (up ? !part.server : !part.worker)) {
      ++refused_;
    } else if (up) {
      part.server->on_packet(header, packet, sender.is_switch, now);
    } else {
      part.worker->on_packet(header, packet, sender.is_switch, now);
    }
  }

  std::optional<Time> turn() {
    const Time now = monotonic_now();
    bool idle = true;
    std::optional<Time> next;
    for (const auto& part : parts_) {
      idle = turn_of(*part, now) && idle;
      if (part->worker) next = earlier(next, part->worker->next_timeout());
      if (part->server) next = earlier(next, part->server->next_timeout());
    }
    return idle ? next : now;
  }

  // Returns false if more packets must be sent at the next turn.
  static bool turn_of(Part& part, Time now) {
    const auto due = [&](const std::optional<Time>& time) { return time && *time <= now; };
    if (part.worker && due(part.worker->next_timeout())) part.worker->on_timeout(now);
    if (part.server && due(part.server->next_timeout())) {
      part.server->on_timeout(now);
      part.server->pump();
    }
    const bool idle = !part.worker || part.worker->pump(now);
    part.member.flush();
    return idle;
  }

  std::unique_ptr<EventLoop> loop_;
  UdpSocket socket_;
  std::vector<std::unique_ptr<Part>> parts_;  // in the order of the jobs
  std::size_t current_ = 0;                   // whose worker starts reductions
  std::optional<Error> failed_;
  std::uint64_t refused_ = 0;
  // Packets whose headers were changed, and what the parts counted that are over.
  std::uint64_t corrupt_ = 0;
  std::thread thread_;
};

AtpNode::AtpNode(std::unique_ptr<Core> core) : core_(std::move(core)) {}
AtpNode::~AtpNode() = default;

Result<std::unique_ptr<AtpNode>> AtpNode::bind(const SocketAddress& local) {
  THALWEG_TRY(UdpSocket socket, UdpSocket::bind(local, {.receive_buffer_bytes = kSocketBuffer,
                                                        .send_buffer_bytes = kSocketBuffer}));
  THALWEG_TRY(std::unique_ptr<EventLoop> loop, EventLoop::make());
  return std::unique_ptr<AtpNode>(
      new AtpNode(std::make_unique<Core>(std::move(loop), std::move(socket))));
}

SocketAddress AtpNode::address() const { return core_->address(); }
Status AtpNode::join(const AtpNodeOptions& options) { return core_->join(options); }
Status AtpNode::join_next(const AtpNodeOptions& options) {
  THALWEG_TRY_STATUS(check(options));
  core_->loop().post([core = core_.get(), options] { core->join_next(options); });
  return ok_status();
}
void AtpNode::use_next() {
  core_->loop().post([core = core_.get()] { core->use_next(); });
}
void AtpNode::leave_earlier() {
  core_->loop().post([core = core_.get()] { core->leave_earlier(); });
}
bool AtpNode::reduce(AtpReduction reduction) {
  return core_->loop().post(
      [core = core_.get(), work = std::make_shared<AtpReduction>(std::move(reduction))] {
        core->start(std::move(*work));
      });
}
void AtpNode::fail(const Error& cause) {
  core_->loop().post([core = core_.get(), cause] { core->fail(cause); });
}
AtpNode::Counters AtpNode::counters() {
  std::promise<Counters> answer;
  core_->loop().post([&] { answer.set_value(core_->counters()); });
  return answer.get_future().get();
}

}  // namespace thalweg::net
