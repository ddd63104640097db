// Streams to the other ranks. The higher rank of the two makes them, when they are first needed.
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/group/drive/engine.h"
#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

constexpr Duration kDialTry = Duration::milliseconds(500);
// After so many tries a stream is tried by the other interfaces, too: its own may be dead.
constexpr std::uint32_t kTriesByOwnWay = 4;

}  // namespace

// Tries every rank for a moment before it waits for one: a rank that is reached can ask and be
// answered meanwhile.
Status Engine::connect_to(Lock& lock, const std::vector<Rank>& peers, Time until) {
  bool missing = true;
  for (int round = 0; missing && round < 2; ++round) {
    missing = false;
    for (const Rank peer : peers) {
      Connection& connection = *connections_[peer.index()];
      if (!connection.over().empty()) {
        return Error(ErrorCode::kPeerLost,
                     fmt::format("rank {} is gone: {}", peer.value(), connection.over()),
                     peer.value());
      }
      if (connection.connected() || peer.value() > options_.rank) continue;
      const Time limit = round == 0 ? std::min(until, monotonic_now() + kDialTry) : until;
      core_.set_reaching(peer);
      Result<GreetedStream> stream = dial(lock, peer, 0, limit);
      core_.set_reaching(std::nullopt);
      if (core_.broken()) return *core_.broken();
      missing = missing || !stream.ok();
      if (!stream.ok() && round == 0) {
        options_.log.info("rank {} is not reached yet, and is tried again: {}", peer.value(),
                          stream.error().message());
      }
      if (!stream.ok() && round == 0) continue;
      if (!stream.ok()) return stream.error().within(fmt::format("rank {}", peer.value()));
      if (connection.connected() || !connection.over().empty()) continue;
      THALWEG_TRY_STATUS(take_stream(lock, connection, *stream, until));
    }
  }
  return ok_status();
}

Status Engine::take_stream(Lock& lock, Connection& connection, GreetedStream& stream, Time until) {
  if (stream.answer) connection.expect(*stream.answer);
  if (stream.streams > 1) connection.keep_copies();
  adopt(connection, std::move(stream.stream));
  if (!shares_memory(connection)) {
    return connect_lanes(lock, connection, stream.streams, stream.way, until);
  }
  offer_memory(connection);
  return ok_status();
}

Status Engine::connect_lanes(Lock& lock, Connection& connection, std::size_t streams,
                             std::uint32_t first_way, Time until) {
  if (streams <= 1) return ok_status();
  std::vector<Connection::Place> places(streams);
  places[0].way = places[0].tried = first_way;
  for (std::uint32_t number = 1; number < streams; ++number) {
    Result<GreetedStream> stream = dial(lock, connection.peer(), number, until);
    if (core_.broken()) return *core_.broken();
    if (!stream.ok()) {
      return stream.error().within(fmt::format("rank {}", connection.peer().value()));
    }
    // The connection has ended, which is noticed elsewhere.
    if (!connection.over().empty()) break;
    places[number].way = places[number].tried = stream->way;
    adopt_lane(connection, number, std::move(stream->stream.fd), stream->answer);
  }
  connection.places = std::move(places);
  return ok_status();
}

bool Engine::shares_memory(const Connection& connection) const {
  return options_.share_memory && connection.within_host;
}

void Engine::offer_memory(Connection& connection) {
  Result<std::unique_ptr<SharedRings>> rings = SharedRings::make(options_.ring_bytes);
  // Without shared memory the socket carries everything.
  if (!rings.ok()) {
    options_.log.warn("rank {}: no memory to share, so the socket carries everything: {}",
                      connection.peer().value(), rings.error().message());
    return;
  }
  options_.log.info("rank {}: offers it shared memory", connection.peer().value());
  const SharedRings::Offer offer = (*rings)->offer();
  connection.share(std::move(*rings));
  connection.queue({.kind = wire::FrameKind::kOffer,
                    .operation = offer.pid,
                    .slot = offer.fd,
                    .signature = offer.label,
                    .started = core_.started()},
                   "");
}

void Engine::take_offer(Connection& connection, const wire::Frame& frame) {
  if (connection.shared() != nullptr || connection.has_lanes()) {
    connection.break_off("it offered shared memory twice, or besides lanes");
    return;
  }
  if (!options_.share_memory) return;
  Result<std::unique_ptr<SharedRings>> rings =
      SharedRings::open({frame.operation, frame.slot, frame.signature});
  // The memory cannot be opened from here: the peer is in another container, or of another user.
  if (!rings.ok()) {
    options_.log.warn("rank {}: its shared memory cannot be used, so the socket carries all: {}",
                      connection.peer().value(), rings.error().message());
    return;
  }
  options_.log.info("rank {}: uses its shared memory", connection.peer().value());
  connection.share(std::move(*rings));
  connection.use_shared();
  touch(connection);
}

// Dials in short tries, because the communicator may break meanwhile.
Result<GreetedStream> Engine::dial(Lock& lock, Rank peer, std::uint32_t lane, Time until) {
  for (std::uint32_t tries = 0;; ++tries) {
    const Time now = monotonic_now();
    const bool by_others = tries >= kTriesByOwnWay && listeners_.size() > 1;
    const std::uint32_t way = by_others ? lane + tries : lane;
    lock.unlock();
    Result<DialedStream> stream =
        options_.connect(peer.value(), way, std::min(until, now + kDialTry));
    lock.lock();
    take_abandoned();
    const bool gone = !stream.ok() && options_.refusals_are_final &&
                      stream.error().code() == ErrorCode::kPeerLost;
    if (!stream.ok() && !gone && !core_.broken() && monotonic_now() < until) continue;
    if (!stream.ok()) return stream.error();
    if (core_.broken()) return *core_.broken();
    const auto streams = static_cast<std::uint32_t>(stream->streams);
    std::optional<GreetedStream> greeted = say_hello(
        std::move(*stream), lane > 0 ? hello_for(wire::kLaneStream, lane) : hello_for(0, streams),
        options_.checks);
    if (!greeted) return system_error("cannot greet it", errno).blaming(peer.value());
    greeted->way = way % std::max(streams, 1U);
    return *std::move(greeted);
  }
}

wire::Frame Engine::hello_for(std::uint32_t what, std::uint32_t number) const {
  return {.kind = wire::FrameKind::kHello,
          .operation = what,
          .slot = static_cast<std::uint32_t>(options_.size),
          .signature = options_.signature,
          .started = number,
          .rank = static_cast<std::uint32_t>(options_.rank)};
}

// Higher ranks connect to this one. As long as one is missing, the listener must be looked at.
bool Engine::streams_missing() {
  const auto missing = [&](const Rank peer) { return !connections_[peer.index()]->connected(); };
  for (const auto& op : running_) {
    if (op->has_streams) continue;
    if (std::ranges::any_of(op->plan->peers(), missing)) return true;
    op->has_streams = true;
  }
  return false;
}

void Engine::adopt(Connection& connection, CheckedStream stream) {
  const int fd = stream.fd.get();
  prepare_stream(fd);
  keep_to_line_rate(fd, options_.line_bps);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "errno {}", errno);
  connection.watching = EPOLLIN;
  connection.set_check(stream.check, std::move(stream.seal));
  connection.attach(std::move(stream.fd));
  connection.within_host = is_within_host(connection.fd());
  if (options_.log.shows(DebugLevel::kInfo)) {
    options_.log.info("rank {}: connected, {} to {}{}{}", connection.peer().value(),
                      SocketAddress::local_of(connection.fd()).unmapped().to_string(),
                      SocketAddress::remote_of(connection.fd()).unmapped().to_string(),
                      connection.within_host ? ", on this host" : "",
                      connection.sealed() ? ", encrypted" : "");
  }
  open_.push_back(&connection);
  core_.on_connected(connection.peer());
  touch(connection);
}

void Engine::adopt_lane(Connection& connection, std::uint32_t number, Fd fd,
                        const std::optional<wire::SessionProof>& answer) {
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
      greet(0);  // its hello may have arrived by now
      if (newcomers_.front().moves && !newcomers_.front().over) give_up_move(newcomers_.front());
      newcomers_.pop_front();
    }
    newcomers_.push_back({.fd = std::move(fd)});
  };
  // A stream that is refused is told why. With a key its rank would expect a proof first, so it
  // only sees that the stream is closed.
  listener.accept_all(take, [this](int fd) {
    if (options_.key) return;
    refuse(fd, check_of(options_.checks, fd), nullptr,
           {ErrorCode::kNoResource,
            fmt::format("rank {} has no file descriptors left (ulimit -n)", options_.rank),
            options_.rank});
  });
}

void Engine::refuse(int fd, wire::FrameCheck check, wire::StreamSeal* seal,
                    const Error& why) const {
  std::string text;
  const wire::Frame frame =
      proto::wire_frame(proto::abort_frame(why, Rank(options_.rank)), core_.started(), text);
  const std::vector<std::byte> bytes = frame_bytes(frame, text, check, seal);
  static_cast<void>(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

bool Engine::admit(Newcomer& newcomer) {
  const auto opening = std::span<const std::byte>(newcomer.bytes).first<StreamKey::kOpeningSize>();
  const std::optional<StreamKey::Admission> admission = options_.key->admit(opening);
  if (!admission) return false;
  newcomer.seal = seal_of(admission->secrets);
  // The answer fits into an empty socket buffer.
  return send(newcomer.fd.get(), admission->answer.data(), admission->answer.size(),
              MSG_NOSIGNAL) == std::ssize(admission->answer);
}

bool Engine::read_first(Newcomer& newcomer) {
  const std::size_t opening = options_.key ? StreamKey::kOpeningSize : 0;
  while (true) {
    const bool opens = newcomer.size < opening;
    const std::size_t hello = newcomer.seal ? wire::kSealedFrameSize : wire::kCheckedFrameSize;
    const std::size_t wanted = opens ? opening : opening + hello;
    const ssize_t got = recv(newcomer.fd.get(), &newcomer.bytes[newcomer.size],
                             wanted - newcomer.size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    newcomer.size += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    newcomer.over = got <= 0;
    if (newcomer.over || newcomer.size < wanted) return false;
    if (!opens) return true;
    newcomer.over = !admit(newcomer);
    if (newcomer.over) return false;
  }
}

std::optional<wire::Frame> Engine::hello_of(Newcomer& newcomer) const {
  const auto bytes = std::span<const std::byte>(newcomer.bytes).first(newcomer.size);
  wire::Frame frame;
  std::uint32_t payload = 0;
  const wire::WireError error =
      newcomer.seal
          ? newcomer.seal->in.open_header(bytes.last<wire::kSealedFrameSize>(), frame)
          : wire::decode_checked_frame(bytes.last<wire::kCheckedFrameSize>(), frame, payload);
  if (error == wire::WireError::kChecksum) {
    if (options_.on_spoiled_frame) options_.on_spoiled_frame();
    const wire::FrameCheck check =
        newcomer.seal ? wire::FrameCheck::kSealed : check_of(options_.checks, newcomer.fd.get());
    refuse(newcomer.fd.get(), check, newcomer.seal.get(),
           {ErrorCode::kInternal,
            fmt::format("bytes changed on the way to rank {}: the first ones of a stream ({})",
                        options_.rank, newcomer.seal ? "AES-GCM" : "CRC-32C")});
  }
  const bool says_sealed = frame.check == wire::FrameCheck::kSealed;
  if (error != wire::WireError::kNone || !is_hello(frame) ||
      says_sealed != (newcomer.seal != nullptr)) {
    return std::nullopt;
  }
  return frame;
}

wire::FrameCheck Engine::own_check(int fd) const {
  const bool seals = options_.key && options_.key->seals();
  return seals ? wire::FrameCheck::kSealed : check_of(options_.checks, fd);
}

void Engine::greet(std::size_t index) {
  Newcomer& newcomer = newcomers_[index];
  if (newcomer.moves) {
    if (!newcomer.over) end_move(newcomer);
    return;
  }
  if (!read_first(newcomer)) return;
  newcomer.over = true;
  const std::optional<wire::Frame> hello = hello_of(newcomer);
  if (!hello) return;
  const wire::Frame& frame = *hello;
  const std::optional<Error> mismatch = mismatch_of(frame, own_check(newcomer.fd.get()));
  if (frame.operation == wire::kMessageStream && options_.on_message_stream) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, newcomer.fd.get(), nullptr);
    if (mismatch) {
      // No message of it may be taken.
      core_.fail(*mismatch);
      refuse(newcomer.fd.get(), frame.check, newcomer.seal.get(), *mismatch);
      return;
    }
    options_.on_message_stream(static_cast<int>(frame.rank),
                               {std::move(newcomer.fd), frame.check, std::move(newcomer.seal)});
    return;
  }
  if (frame.rank <= static_cast<std::uint32_t>(options_.rank)) return;
  Connection& connection = *connections_[frame.rank];
  if (frame.operation == wire::kMovedStream) {
    if (!mismatch) begin_move(newcomer, connection, frame.started);
    return;
  }
  if (frame.operation == wire::kLaneStream) {
    if (frame.started == 0 || frame.started > wire::kMaxLane) return;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, newcomer.fd.get(), nullptr);
    adopt_lane(connection, frame.started, std::move(newcomer.fd), std::nullopt);
    return;
  }
  if (connection.connected() || !connection.over().empty()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, newcomer.fd.get(), nullptr);
  if (frame.started > 1) connection.keep_copies();
  // In its own way, so that it can be told what is wrong.
  adopt(connection, {std::move(newcomer.fd), frame.check, std::move(newcomer.seal)});
  if (mismatch) core_.fail(*mismatch);
  if (core_.broken()) connection.drop_data(*this);
}

bool Engine::is_hello(const wire::Frame& frame) const {
  return frame.kind == wire::FrameKind::kHello && frame.length == 0 &&
         frame.signature == options_.signature &&
         frame.slot == static_cast<std::uint32_t>(options_.size) &&
         frame.rank < static_cast<std::uint32_t>(options_.size);
}

// A rank that takes for its host's own what the other takes for a network's goes by the other: a
// proxy may be between them.
std::optional<Error> Engine::mismatch_of(const wire::Frame& hello, wire::FrameCheck own) const {
  const bool by_other =
      options_.checks == StreamChecks::kBetweenHosts && hello.check == wire::FrameCheck::kChecksum;
  const bool seals = own == wire::FrameCheck::kSealed;
  if (hello.check == own || (by_other && !seals)) return std::nullopt;
  const bool on_sealing = seals || hello.check == wire::FrameCheck::kSealed;
  const auto words = [&](wire::FrameCheck check) {
    if (check == wire::FrameCheck::kSealed) return "encrypts its streams";
    if (on_sealing) return "does not encrypt them";
    return check == wire::FrameCheck::kNone ? "sends frames without checksums"
                                            : "sends frames with checksums";
  };
  const bool other_first = hello.check == wire::FrameCheck::kSealed || !on_sealing;
  const auto other = std::pair(hello.rank, hello.check);
  const auto mine = std::pair(static_cast<std::uint32_t>(options_.rank), own);
  const auto& [first, first_check] = other_first ? other : mine;
  const auto& [second, second_check] = other_first ? mine : other;
  return Error(ErrorCode::kMismatch,
               fmt::format("rank {} {}, and rank {} {}: {} must be the same on all ranks", first,
                           words(first_check), second, words(second_check),
                           on_sealing ? "THALWEG_ENCRYPT" : "THALWEG_CHECKSUM"));
}

}  // namespace thalweg::net
