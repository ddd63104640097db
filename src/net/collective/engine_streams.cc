// Streams to the other ranks: made when they are first needed, by the higher rank of the two.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/address.h"
#include "net/collective/engine.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {
namespace {

constexpr Duration kDialTry = Duration::milliseconds(500);

}  // namespace

Status Engine::connect_to(Lock& lock, const std::vector<Rank>& peers, Time until) {
  for (const Rank peer : peers) {
    Connection& connection = *connections_[peer.index()];
    if (!connection.over().empty()) {
      return Error(fmt::format("rank {} is gone: {}", peer.value(), connection.over()));
    }
    if (connection.connected() || peer.value() > options_.rank) continue;
    Result<DialedStream> stream = dial(lock, peer, 0, until);
    if (!broken_.empty()) return Error(broken_);
    if (!stream.ok()) return stream.error().within(fmt::format("rank {}", peer.value()));
    if (connection.connected() || !connection.over().empty()) continue;
    if (stream->answer) connection.expect(*stream->answer);
    adopt(connection, std::move(stream->fd));
    if (shares_memory(connection)) {
      offer_memory(connection);
    } else {
      THALWEG_TRY_STATUS(connect_lanes(lock, connection, stream->streams, until));
    }
  }
  return ok_status();
}

Status Engine::connect_lanes(Lock& lock, Connection& connection, std::size_t streams, Time until) {
  for (std::uint32_t number = 1; number < streams; ++number) {
    Result<DialedStream> stream = dial(lock, connection.peer(), number, until);
    if (!broken_.empty()) return Error(broken_);
    if (!stream.ok()) {
      return stream.error().within(fmt::format("rank {}", connection.peer().value()));
    }
    // It has ended, which others find out.
    if (!connection.over().empty()) break;
    adopt_lane(connection, number, std::move(stream->fd), stream->answer);
  }
  return ok_status();
}

bool Engine::shares_memory(const Connection& connection) const {
  return options_.share_memory && connection.within_host;
}

void Engine::offer_memory(Connection& connection) {
  Result<std::unique_ptr<SharedLink>> link = SharedLink::make(options_.ring_bytes);
  // Without shared memory the socket carries all.
  if (!link.ok()) return;
  const SharedLink::Offer offer = (*link)->offer();
  connection.share(std::move(*link));
  connection.queue({.kind = FrameKind::kOffer,
                    .operation = offer.pid,
                    .slot = offer.fd,
                    .signature = offer.label,
                    .started = started_},
                   "");
}

void Engine::take_offer(Connection& connection, const Frame& frame) {
  if (connection.shared() != nullptr || connection.has_lanes()) {
    connection.break_off("it offered shared memory twice, or besides lanes");
    return;
  }
  if (!options_.share_memory) return;
  Result<std::unique_ptr<SharedLink>> link =
      SharedLink::open({frame.operation, frame.slot, frame.signature});
  // It cannot be seen from here: another container, another user.
  if (!link.ok()) return;
  connection.share(std::move(*link));
  connection.use_shared();
  touch(connection);
}

// In short tries: the communicator may break meanwhile.
Result<DialedStream> Engine::dial(Lock& lock, Rank peer, std::uint32_t lane, Time until) {
  while (true) {
    const Time now = monotonic_now();
    lock.unlock();
    Result<DialedStream> stream =
        options_.connect(peer.value(), lane, std::min(until, now + kDialTry));
    lock.lock();
    take_abandoned();
    if (!stream.ok() && broken_.empty() && monotonic_now() < until) continue;
    if (!stream.ok() || !broken_.empty()) return stream;
    const auto hello = encode_frame({.kind = FrameKind::kHello,
                                     .operation = lane > 0 ? kLaneStream : 0,
                                     .slot = static_cast<std::uint32_t>(options_.size),
                                     .signature = options_.signature,
                                     .started = lane,
                                     .rank = static_cast<std::uint32_t>(options_.rank)});
    if (send(stream->fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(hello.size())) {
      return system_error("cannot greet it", errno);
    }
    return stream;
  }
}

// Higher ranks connect to us; as long as one is missing, the listener must be looked at.
bool Engine::streams_missing() {
  const auto missing = [&](const Rank peer) { return !connections_[peer.index()]->connected(); };
  for (const auto& op : running_) {
    if (op->has_streams) continue;
    if (std::ranges::any_of(op->plan->peers(), missing)) return true;
    op->has_streams = true;
  }
  return false;
}

void Engine::adopt(Connection& connection, Fd fd) {
  prepare_stream(fd.get());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd.get();
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0, "errno {}", errno);
  connection.watching = EPOLLIN;
  connection.attach(std::move(fd));
  connection.within_host = is_within_host(connection.fd());
  open_.push_back(&connection);
  touch(connection);
}

void Engine::adopt_lane(Connection& connection, std::uint32_t number, Fd fd,
                        const std::optional<SessionProof>& answer) {
  prepare_stream(fd.get());
  std::vector<std::byte> due;
  if (answer) due.assign(answer->begin(), answer->end());
  if (connection.add_lane(number, std::move(fd), std::move(due))) touch(connection);
}

void Engine::accept_streams(TcpListener& listener) {
  const auto take = [this](Fd fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd.get();
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return;
    if (newcomers_.size() >= kMaxNewcomers) {
      greet(0);  // it may have said by now whose it is
      newcomers_.pop_front();
    }
    newcomers_.push_back({std::move(fd), {}, 0, false});
  };
  // One that is refused hears why; with a key it would wait for a proof first, and only hears that
  // it is closed.
  listener.accept_all(take, [this](int fd) {
    if (options_.key) return;
    const std::string why =
        fmt::format("rank {} has no file descriptors left (ulimit -n)", options_.rank);
    const auto head = encode_frame({.kind = FrameKind::kAbort,
                                    .length = static_cast<std::uint32_t>(why.size()),
                                    .rank = kNoFrameRank});
    std::string bytes(reinterpret_cast<const char*>(head.data()), head.size());
    bytes += why;
    static_cast<void>(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  });
}

bool Engine::admit(const Newcomer& newcomer) {
  if (!options_.key) return true;
  const auto opening = std::span<const std::byte>(newcomer.bytes).first<StreamKey::kOpeningSize>();
  const std::optional<SessionProof> answer = options_.key->admit(opening);
  if (!answer) return false;
  // It fits an empty buffer.
  return send(newcomer.fd.get(), answer->data(), answer->size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(answer->size());
}

// Reads the hello of a stream, and with a key what comes before it, and only that.
void Engine::greet(std::size_t index) {
  Newcomer& newcomer = newcomers_[index];
  const std::size_t opening = options_.key ? StreamKey::kOpeningSize : 0;
  const std::size_t size = opening + kFrameSize;
  const ssize_t got =
      recv(newcomer.fd.get(), &newcomer.bytes[newcomer.size], size - newcomer.size, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  newcomer.size += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  if (got > 0 && newcomer.size < size) return;
  newcomer.over = true;
  Frame frame;
  const std::span<const std::byte> bytes(newcomer.bytes);
  const bool good =
      got > 0 && admit(newcomer) &&
      decode_frame(bytes.subspan(opening).first<kFrameSize>(), frame) == WireError::kNone &&
      frame.kind == FrameKind::kHello && frame.length == 0 &&
      frame.signature == options_.signature &&
      frame.slot == static_cast<std::uint32_t>(options_.size) &&
      frame.rank < static_cast<std::uint32_t>(options_.size);
  if (!good) return;
  if (frame.operation == kMessageStream && options_.on_message_stream) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, newcomer.fd.get(), nullptr);
    options_.on_message_stream(static_cast<int>(frame.rank), std::move(newcomer.fd));
    return;
  }
  if (frame.rank <= static_cast<std::uint32_t>(options_.rank)) return;
  Connection& connection = *connections_[frame.rank];
  if (frame.operation == kLaneStream) {
    if (frame.started == 0 || frame.started > kMaxLane) return;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, newcomer.fd.get(), nullptr);
    adopt_lane(connection, frame.started, std::move(newcomer.fd), std::nullopt);
    return;
  }
  if (connection.connected() || !connection.over().empty()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, newcomer.fd.get(), nullptr);
  adopt(connection, std::move(newcomer.fd));
  if (!broken_.empty()) {
    connection.drop_data(*this);
    connection.queue({.kind = FrameKind::kAbort, .started = started_, .rank = kNoFrameRank},
                     broken_);
  }
}

}  // namespace thalweg
