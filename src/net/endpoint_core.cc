#include "net/endpoint_core.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <utility>

#include "net/address.h"
#include "net/net_counters.h"
#include "net/record_file.h"
#include "net/system.h"
#include "net/tcp.h"
#include "tensor/tags.h"

namespace thalweg {
namespace {

constexpr Duration kHelloTime = Duration::milliseconds(5'000);
constexpr Duration kFarewellTime = Duration::milliseconds(500);
constexpr std::size_t kMaxIncoming = 256;
constexpr std::size_t kMaxAccepted = 4096;

Status validate(const EndpointOptions& options) {
  if (options.name.size() > kMaxPeerName) {
    return Error(fmt::format("name: '{}' has {} bytes, at most {} are allowed", options.name,
                             options.name.size(), kMaxPeerName));
  }
  const auto printable = [](char c) { return c >= 0x20 && c < 0x7f; };
  if (!std::ranges::all_of(options.name, printable)) {
    return Error("name: only printable ASCII is allowed");
  }
  if (!options.job_key.empty()) {
    if (const auto key = JobKey::from_hex(options.job_key); !key.ok()) {
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
  if (!options.record_folder.empty() && access(options.record_folder.c_str(), W_OK | X_OK) != 0) {
    return system_error(fmt::format("record_folder: cannot write to '{}'", options.record_folder),
                        errno);
  }
  for (const std::uint8_t dscp : options.dscp) {
    if (dscp >= kDscpCount) {
      return Error(fmt::format("dscp: {}; from 0 to {} are allowed", dscp, kDscpCount - 1));
    }
  }
  return ok_status();
}

// The same warning once, however many sockets there are.
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

Endpoint::Core::Core(EndpointOptions options, std::shared_ptr<EventLoop> loop)
    : options_(std::move(options)), loop_(std::move(loop)) {
  options_.warn = once(std::move(options_.warn));
  if (options_.name.empty()) options_.name = fmt::format("process {}", getpid());
}

Result<std::unique_ptr<Endpoint::Core>> Endpoint::Core::make(const EndpointOptions& options) {
  THALWEG_TRY_STATUS(validate(options));
  THALWEG_TRY(std::shared_ptr<EventLoop> loop, EventLoop::make());
  std::unique_ptr<Core> core(new Core(options, std::move(loop)));
  if (!options.listen.empty()) THALWEG_TRY_STATUS(core->listen());
  core->thread_ = std::thread([raw = core.get()] { raw->run(); });
  return core;
}

Status Endpoint::Core::listen() {
  THALWEG_TRY(Fd socket, listen_tcp(options_.listen));
  listener_.emplace(std::move(socket), kMaxAccepted);
  address_ = SocketAddress::local_of(listener_->fd()).to_string();
  return loop_->add(listener_->fd(), EPOLLIN, *this);
}

Endpoint::Core::~Core() {
  if (!thread_.joinable()) return;
  loop_->post([this] {
    if (listener_) loop_->remove(listener_->fd());
    incoming_.clear();
    shut_by_ = monotonic_now() + kFarewellTime;
    for (const auto& link : links_) link->shut("the endpoint was closed");
  });
  thread_.join();
}

void Endpoint::Core::run() {
  // Pacing needs timers that are not rounded up by the default 50 µs.
  prctl(PR_SET_TIMERSLACK, 1);
  loop_->run([this] { return turn(); });
  for (const auto& link : links_) link->lose("the endpoint was closed");
}

std::optional<Time> Endpoint::Core::turn() {
  const Time now = monotonic_now();
  std::optional<Time> next = turn_handshakes(now);
  bool settled = true;
  for (const auto& link : links_) {
    next = earlier(next, link->turn());
    settled = settled && link->settled();
  }
  std::erase_if(links_, [&](const auto& link) {
    if (!link->lost()) return false;
    add(ended_, link->counters_after_end());
    return true;
  });
  if (shut_by_) {
    if (settled || now >= *shut_by_) loop_->stop();
    next = earlier(next, shut_by_);
  }
  return next;
}

std::optional<Time> Endpoint::Core::turn_handshakes(Time now) {
  std::optional<Time> next;
  std::vector<std::shared_ptr<Link>> links;
  std::erase_if(incoming_, [&](const std::unique_ptr<IncomingPeer>& peer) {
    peer->on_timeout(now);
    switch (peer->state()) {
      case IncomingPeer::State::kWaiting:
        next = earlier(next, peer->until());
        return false;
      case IncomingPeer::State::kRefused: {
        ++refused_;
        const std::lock_guard lock(mutex_);
        last_refusal_ = peer->refusal();
        return true;
      }
      case IncomingPeer::State::kDone:
        links.push_back(make_link(peer->take()));
        return true;
    }
    return true;
  });
  for (const auto& link : links) {
    adopt(link);
    const std::lock_guard lock(mutex_);
    accepted_.push_back(link);
  }
  if (!links.empty()) arrived_.notify_all();
  return next;
}

void Endpoint::Core::on_ready(int /*fd*/, std::uint32_t /*events*/) {
  const auto refuse = [this](int /*fd*/) {
    const std::lock_guard lock(mutex_);
    ++refused_;
  };
  const auto take = [&](Fd stream) {
    {
      const std::lock_guard lock(mutex_);
      if (accepted_.size() >= kMaxAccepted || incoming_.size() >= kMaxIncoming) {
        ++refused_;
        return;
      }
    }
    incoming_.push_back(std::make_unique<IncomingPeer>(*loop_, std::move(stream), options_,
                                                       monotonic_now() + kHelloTime));
  };
  listener_->accept_all(take, refuse);
}

std::shared_ptr<Link> Endpoint::Core::make_link(Link::Parts parts) {
  auto link = std::make_shared<Link>(loop_, std::move(parts), options_);
  if (options_.record_folder.empty()) return link;
  std::string name = options_.name;
  std::ranges::replace(name, '/', '_');
  const std::string path =
      fmt::format("{}/{}-{}.dlcp", options_.record_folder, name, recordings_++);
  Result<RecordFile> opened = RecordFile::open(path);
  if (!opened.ok()) {
    options_.warn("nothing is recorded: " + opened.error().message());
    return link;
  }
  link->record([file = std::make_shared<RecordFile>(std::move(*opened)), path, broken = false,
                warn = options_.warn](std::span<const std::byte> content) mutable {
    if (broken || file->write(content)) return;
    broken = true;
    warn(system_error(fmt::format("the recording {} ends early", path), errno).message());
  });
  return link;
}

void Endpoint::Core::adopt(const std::shared_ptr<Link>& link) {
  links_.push_back(link);
  link->open();
  if (shut_by_) link->shut("the endpoint was closed");
}

Result<Peer> Endpoint::Core::connect(const std::string& address, std::chrono::nanoseconds limit) {
  THALWEG_TRY(
      Link::Parts parts,
      connect_peer(address, options_, monotonic_now() + Duration::nanoseconds(limit.count())));
  auto link = make_link(std::move(parts));
  loop_->post([this, link] { adopt(link); });
  return Peer(std::make_shared<Peer::State>(Peer::State{link}));
}

Result<Peer> Endpoint::Core::accept(std::chrono::nanoseconds limit) {
  if (address_.empty()) return Error("accept: this endpoint does not listen");
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, limit, [&] { return !accepted_.empty(); })) {
    return Error(
        fmt::format("no peer connected to {} within {}{}", address_,
                    to_string(Duration::nanoseconds(limit.count())),
                    last_refusal_.empty() ? "" : "; the last one refused was " + last_refusal_));
  }
  auto link = std::move(accepted_.front());
  accepted_.pop_front();
  return Peer(std::make_shared<Peer::State>(Peer::State{std::move(link)}));
}

NetCounters Endpoint::Core::sum() const {
  NetCounters counters = ended_;
  for (const auto& link : links_) add(counters, link->counters());
  counters.peers_refused = refused_;
  // Those that know of it already, and are forgotten at the end of this turn.
  for (const auto& peer : incoming_) {
    if (peer->state() == IncomingPeer::State::kRefused) ++counters.peers_refused;
  }
  return counters;
}

NetCounters Endpoint::Core::counters() {
  std::promise<NetCounters> answer;
  loop_->post([&] { answer.set_value(sum()); });
  return answer.get_future().get();
}

}  // namespace thalweg
