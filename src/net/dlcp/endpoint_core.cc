#include "net/dlcp/endpoint_core.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <future>
#include <utility>

#include "base/check.h"
#include "net/dlcp/net_counters.h"
#include "net/dlcp/record_file.h"
#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "tensor/tags.h"

namespace thalweg {
namespace {

constexpr Duration kHelloTime = Duration::milliseconds(5'000);
constexpr Duration kFarewellTime = Duration::milliseconds(500);
constexpr std::size_t kMaxIncoming = 256;
constexpr std::size_t kMaxAccepted = 4096;

Status validate(const GraceOptions& grace) {
  const std::array<std::pair<const char*, std::chrono::nanoseconds>, 3> waits{
      {{"grace.initial", grace.initial}, {"grace.least", grace.least}, {"grace.most", grace.most}}};
  for (const auto& [name, wait] : waits) {
    if (wait < std::chrono::microseconds(1) || wait > std::chrono::hours(1)) {
      return Error(fmt::format("{}: {} ns; from 1 us to an hour is allowed", name, wait.count()));
    }
    if (wait > grace.most) {
      return Error(fmt::format("{}: {} ns; at most grace.most, {} ns, is allowed", name,
                               wait.count(), grace.most.count()));
    }
  }
  return ok_status();
}

Status validate_grants(const EndpointOptions& options) {
  constexpr auto kMost = std::chrono::seconds(10);
  if (options.grants_round_trip != std::chrono::nanoseconds(0) &&
      (options.grants_round_trip < std::chrono::microseconds(1) ||
       options.grants_round_trip > kMost)) {
    return Error(fmt::format("grants_round_trip: {} ns; 0 or from 1 us to 10 s is allowed",
                             options.grants_round_trip.count()));
  }
  if (options.grants && !options.record_folder.empty()) {
    return Error(
        "grants: an endpoint that gives grants cannot be recorded, because they depend on all its "
        "peers: set record_folder or grants, not both");
  }
  return ok_status();
}

Status validate(const EndpointOptions& options) {
  if (options.name.size() > net::kMaxPeerName) {
    return Error(fmt::format("name: '{}' has {} bytes, at most {} are allowed", options.name,
                             options.name.size(), net::kMaxPeerName));
  }
  const auto printable = [](char c) { return c >= 0x20 && c < 0x7f; };
  if (!std::ranges::all_of(options.name, printable)) {
    return Error("name: only printable ASCII is allowed");
  }
  if (!options.job_key.empty()) {
    if (const auto key = wire::JobKey::from_hex(options.job_key); !key.ok()) {
      return key.error().within("job_key");
    }
  }
  constexpr std::uint32_t kLeast = 8;
  constexpr std::uint32_t kMost = 60'000;
  const std::uint32_t payload = options.packet_payload;
  if (payload != 0 && (payload < kLeast || payload > kMost)) {
    return Error(fmt::format("packet_payload: {} bytes; 0 or from {} to {} are allowed", payload,
                             kLeast, kMost));
  }
  if (options.paths > net::kMaxPaths) {
    return Error(
        fmt::format("paths: {}; from 0 to {} are allowed", options.paths, int{net::kMaxPaths}));
  }
  constexpr double kFastest = 10'000;
  if (!(options.line_rate_gbps >= 0 && options.line_rate_gbps <= kFastest) ||
      (options.line_rate_gbps > 0 && options.line_rate_gbps < 1e-6)) {
    return Error(fmt::format("line_rate_gbps: {}; 0 or from 1e-6 to {} are allowed",
                             options.line_rate_gbps, kFastest));
  }
  if (options.peer_timeout < std::chrono::milliseconds(10) ||
      options.peer_timeout > std::chrono::hours(24)) {
    return Error(fmt::format("peer_timeout: {} ms; from 10 ms to a day is allowed",
                             options.peer_timeout.count()));
  }
  THALWEG_TRY_STATUS(validate(options.grace));
  THALWEG_TRY_STATUS(validate_grants(options));
  if (!options.record_folder.empty() && access(options.record_folder.c_str(), W_OK | X_OK) != 0) {
    return net::system_error(
        fmt::format("record_folder: cannot write to '{}'", options.record_folder), errno);
  }
  for (const std::uint8_t dscp : options.dscp) {
    if (dscp >= tensor::kDscpCount) {
      return Error(fmt::format("dscp: {}; from 0 to {} are allowed", dscp, tensor::kDscpCount - 1));
    }
  }
  return ok_status();
}

// Passes each distinct warning on only once, however many sockets cause it.
std::function<void(const std::string&)> once(std::function<void(const std::string&)> warn) {
  if (!warn) {
    warn = [](const std::string& text) { fmt::print(stderr, "thalweg: warning: {}\n", text); };
  }
  auto said = std::make_shared<std::pair<std::mutex, std::vector<std::string>>>();
  return [warn = std::move(warn), said](const std::string& text) {
    {
      const std::lock_guard lock(said->first);
      if (std::ranges::find(said->second, text) != said->second.end()) return;
      said->second.push_back(text);
    }
    warn(text);
  };
}

}  // namespace

Endpoint::Core::Core(EndpointOptions options, std::shared_ptr<net::EventLoop> loop,
                     std::shared_ptr<net::HostGrants> grants)
    : options_(std::move(options)), loop_(std::move(loop)), grants_(std::move(grants)) {
  options_.warn = once(std::move(options_.warn));
  if (options_.name.empty()) options_.name = fmt::format("process {}", getpid());
}

Result<std::unique_ptr<Endpoint::Core>> Endpoint::Core::make(const EndpointOptions& options) {
  THALWEG_TRY_STATUS(validate(options));
  THALWEG_TRY(std::shared_ptr<net::EventLoop> loop, net::EventLoop::make());
  std::shared_ptr<net::HostGrants> grants;
  if (options.grants) {
    THALWEG_TRY(grants, net::HostGrants::make(options));
  }
  std::unique_ptr<Core> core(new Core(options, std::move(loop), std::move(grants)));
  if (!options.listen.empty()) THALWEG_TRY_STATUS(core->listen());
  core->thread_ = std::thread([raw = core.get()] { raw->run(); });
  return core;
}

Status Endpoint::Core::listen() {
  THALWEG_TRY(net::Fd socket, net::listen_tcp(options_.listen));
  listener_.emplace(std::move(socket), kMaxAccepted);
  address_ = net::SocketAddress::local_of(listener_->fd()).to_string();
  return loop_->add(listener_->fd(), EPOLLIN, *this);
}

Endpoint::Core::~Core() {
  if (!thread_.joinable()) return;
  loop_->post([this] {
    if (listener_) loop_->remove(listener_->fd());
    incoming_.clear();
    shut_by_ = net::monotonic_now() + kFarewellTime;
    for (const auto& peer : peers_) peer->shut("the endpoint was closed");
  });
  thread_.join();
}

void Endpoint::Core::run() {
  // Pacing needs precise timers; by default the kernel may fire them 50 µs late.
  prctl(PR_SET_TIMERSLACK, 1);
  loop_->run([this] { return turn(); });
  for (const auto& peer : peers_) {
    peer->lose({ErrorCode::kCancelled, "the endpoint was closed"});
  }
  CHECK(grants_ == nullptr || grants_->scheduler().transfers() == 0);
}

std::optional<Time> Endpoint::Core::turn() {
  const Time now = net::monotonic_now();
  std::optional<Time> next = turn_handshakes(now);
  if (grants_) {
    grants_->give(peers_, now);
    net::HostGrants::sort(peers_);
  }
  bool settled = true;
  for (const auto& peer : peers_) {
    next = net::earlier(next, peer->turn());
    settled = settled && peer->settled();
  }
  // A turn may have ended transfers, which makes room for others. The next turn sees to the
  // streams.
  if (grants_) {
    next = net::earlier(next, grants_->scheduler().next_timeout());
    if (grants_->give(peers_, now)) next = Time();
  }
  std::erase_if(peers_, [&](const auto& peer) {
    if (!peer->lost()) return false;
    add(ended_, peer->counters_after_end());
    return true;
  });
  if (shut_by_) {
    if (settled || now >= *shut_by_) loop_->stop();
    next = net::earlier(next, shut_by_);
  }
  return next;
}

std::optional<Time> Endpoint::Core::turn_handshakes(Time now) {
  std::optional<Time> next;
  std::vector<std::shared_ptr<net::DlcpPeer>> peers;
  std::erase_if(incoming_, [&](const std::unique_ptr<net::IncomingPeer>& peer) {
    peer->on_timeout(now);
    switch (peer->state()) {
      case net::IncomingPeer::State::kWaiting:
        next = net::earlier(next, peer->until());
        return false;
      case net::IncomingPeer::State::kRefused: {
        ++refused_;
        const std::lock_guard lock(mutex_);
        last_refusal_ = peer->refusal();
        return true;
      }
      case net::IncomingPeer::State::kDone:
        peers.push_back(make_peer(peer->take()));
        return true;
    }
    return true;
  });
  for (const auto& peer : peers) {
    adopt(peer);
    const std::lock_guard lock(mutex_);
    accepted_.push_back(peer);
  }
  if (!peers.empty()) arrived_.notify_all();
  return next;
}

void Endpoint::Core::on_ready(int /*fd*/, std::uint32_t /*events*/) {
  const auto refuse = [this](int /*fd*/) {
    const std::lock_guard lock(mutex_);
    ++refused_;
  };
  const auto take = [&](net::Fd stream) {
    {
      const std::lock_guard lock(mutex_);
      if (accepted_.size() >= kMaxAccepted || incoming_.size() >= kMaxIncoming) {
        ++refused_;
        return;
      }
    }
    incoming_.push_back(std::make_unique<net::IncomingPeer>(*loop_, std::move(stream), options_,
                                                            net::monotonic_now() + kHelloTime));
  };
  listener_->accept_all(take, refuse);
}

std::shared_ptr<net::DlcpPeer> Endpoint::Core::make_peer(net::DlcpPeer::Parts parts) {
  auto peer =
      std::make_shared<net::DlcpPeer>(loop_, std::move(parts), options_, lose_packet_, grants_);
  if (options_.record_folder.empty()) return peer;
  std::string name = options_.name;
  std::ranges::replace(name, '/', '_');
  const std::string path =
      fmt::format("{}/{}-{}.dlcp", options_.record_folder, name, recordings_++);
  Result<net::RecordFile> opened = net::RecordFile::open(path);
  if (!opened.ok()) {
    options_.warn("nothing is recorded: " + opened.error().message());
    return peer;
  }
  peer->record([file = std::make_shared<net::RecordFile>(std::move(*opened)), path, broken = false,
                warn = options_.warn](std::span<const std::byte> content) mutable {
    if (broken || file->write(content)) return;
    broken = true;
    warn(net::system_error(fmt::format("the recording {} ends early", path), errno).message());
  });
  return peer;
}

void Endpoint::Core::adopt(const std::shared_ptr<net::DlcpPeer>& peer) {
  peers_.push_back(peer);
  peer->open();
  if (shut_by_) peer->shut("the endpoint was closed");
}

Result<Peer> Endpoint::Core::connect(const std::string& address, std::chrono::nanoseconds limit) {
  THALWEG_TRY_STATUS(home_.check("the endpoint"));
  THALWEG_TRY(net::DlcpPeer::Parts parts,
              net::connect_peer(address, options_,
                                net::monotonic_now() + Duration::nanoseconds(limit.count())));
  auto peer = make_peer(std::move(parts));
  loop_->post([this, peer] { adopt(peer); });
  return Peer(std::make_shared<Peer::State>(std::move(peer)));
}

Result<Peer> Endpoint::Core::accept(std::chrono::nanoseconds limit) {
  THALWEG_TRY_STATUS(home_.check("the endpoint"));
  if (address_.empty()) return Error("accept: this endpoint does not listen");
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, limit, [&] { return !accepted_.empty(); })) {
    return Error(
        ErrorCode::kTimeout,
        fmt::format("no peer connected to {} within {}{}", address_,
                    to_string(Duration::nanoseconds(limit.count())),
                    last_refusal_.empty() ? "" : "; the last one refused was " + last_refusal_));
  }
  auto peer = std::move(accepted_.front());
  accepted_.pop_front();
  return Peer(std::make_shared<Peer::State>(std::move(peer)));
}

NetCounters Endpoint::Core::sum() const {
  NetCounters counters = ended_;
  for (const auto& peer : peers_) add(counters, peer->counters());
  counters.peers_refused = refused_;
  // Refused peers that turn_handshakes() has not counted and removed yet.
  for (const auto& peer : incoming_) {
    if (peer->state() == net::IncomingPeer::State::kRefused) ++counters.peers_refused;
  }
  return counters;
}

NetCounters Endpoint::Core::counters() {
  if (!home_.here()) return {};
  std::promise<NetCounters> answer;
  loop_->post([&] { answer.set_value(sum()); });
  return answer.get_future().get();
}

}  // namespace thalweg
