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
    member_.emplace(options, socket_);
    if (!options.on_sum) worker_.emplace(*member_);
    if (options.on_sum || (!options.server_apart && options.rank < options.servers)) {
      server_.emplace(*member_);
    }
    if (options.own_sums && server_) {
      server_->keep_own(*worker_);
      worker_->keep_own(*server_);
    }
    THALWEG_TRY_STATUS(loop_->add(socket_.fd(), EPOLLIN, *this));
    thread_ = std::thread([this] { loop_->run([this] { return turn(); }); });
    return ok_status();
  }
  void start(AtpReduction reduction) { worker_->start(std::move(reduction), monotonic_now()); }
  void fail(const Error& cause) {
    if (worker_) worker_->fail(cause, monotonic_now());
  }
  [[nodiscard]] Counters counters() const {
    return {.worker = worker_ ? worker_->counters() : proto::AtpWorkerCounters(),
            .server_packets = server_ ? server_->packets() : 0,
            .server_bytes = server_ ? server_->bytes() : 0,
            .sent_direct = worker_ ? worker_->sent_direct() : 0,
            .refused = refused_,
            .corrupt = corrupt_ + (worker_ ? worker_->counters().corrupt : 0) +
                       (server_ ? server_->corrupt() : 0),
            .switch_gone = worker_ && worker_->switch_gone()};
  }

 private:
  void on_ready(int /*fd*/, std::uint32_t /*events*/) override {
    const Time now = monotonic_now();
    UdpSocket::Arrival arrival;
    SocketAddress from;
    for (int i = 0; i < kRunsPerTurn; ++i) {
      if (socket_.receive(arrival, &from) != UdpSocket::Received::kPackets) return;
      const AtpMember::Sender& sender = member_->sender(from);
      if (arrival.bytes.empty()) ++refused_;
      for (std::size_t at = 0; at < arrival.bytes.size(); at += arrival.packet_size) {
        on_packet(
            arrival.bytes.subspan(at, std::min(arrival.packet_size, arrival.bytes.size() - at)),
            sender, arrival.marked, now);
      }
    }
  }

  void on_packet(std::span<const std::byte> packet, const AtpMember::Sender& sender, bool marked,
                 Time now) {
    wire::AtpHeader header;
    const AtpMember::Read read =
        sender.known() ? member_->read(packet, header) : AtpMember::Read::kRefused;
    if (read != AtpMember::Read::kTaken) {
      ++(read == AtpMember::Read::kCorrupt ? corrupt_ : refused_);
      return;
    }
    header.congested = header.congested || marked;
    const bool up = header.kind == wire::AtpKind::kGradient;
    // A member may send only its own gradient and, if it is a server, sums.
    const bool own =
        sender.is_switch ||
        (up ? sender.rank && member_->ranks_of(header) == sender.alone : sender.is_server);
    if (!own || (up ? !server_ : !worker_)) {
      ++refused_;
    } else if (up) {
      server_->on_packet(header, packet, sender.is_switch, now);
    } else {
      worker_->on_packet(header, packet, sender.is_switch, now);
    }
  }

  std::optional<Time> turn() {
    const Time now = monotonic_now();
    const auto due = [&](const std::optional<Time>& time) { return time && *time <= now; };
    if (worker_ && due(worker_->next_timeout())) worker_->on_timeout(now);
    if (server_ && due(server_->next_timeout())) {
      server_->on_timeout(now);
      server_->pump();
    }
    const bool idle = !worker_ || worker_->pump(now);
    member_->flush();
    if (!idle) return now;
    return earlier(worker_ ? worker_->next_timeout() : std::optional<Time>(),
                   server_ ? server_->next_timeout() : std::optional<Time>());
  }

  std::unique_ptr<EventLoop> loop_;
  UdpSocket socket_;
  std::optional<AtpMember> member_;
  std::optional<AtpWorkerDriver> worker_;
  std::optional<AtpServerDriver> server_;
  std::uint64_t refused_ = 0;
  std::uint64_t corrupt_ = 0;  // packets whose headers were changed
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
