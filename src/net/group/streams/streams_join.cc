// How connections are made: the higher rank of two makes the streams, when they are first needed.
// Ranks of one host come to share memory.
#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/group/streams/mover.h"
#include "net/group/streams/streams.h"
#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

using Purpose = proto::HelloFrame::Purpose;

constexpr Duration kDialTry = Duration::milliseconds(500);
// After so many tries a stream is tried by the other interfaces, too: its own may be dead.
constexpr std::uint32_t kTriesByOwnWay = 4;

}  // namespace

// Tries every rank for a moment before it waits for one: a rank that is reached can ask and be
// answered meanwhile.
Status Streams::connect_to(Lock& lock, const std::vector<Rank>& ranks, Time until) {
  bool missing = true;
  for (int round = 0; missing && round < 2; ++round) {
    missing = false;
    for (const Rank rank : ranks) {
      StreamPeer& peer = *peers_[rank.index()];
      const Connection& connection = peer.connection;
      if (!connection.over().empty()) {
        return Error(ErrorCode::kPeerLost,
                     fmt::format("rank {} is gone: {}", rank.value(), connection.over()),
                     rank.value());
      }
      if (connection.connected() || rank.value() > options_.joiner.rank) continue;
      const Time limit = round == 0 ? std::min(until, monotonic_now() + kDialTry) : until;
      core_.set_reaching(rank);
      Result<GreetedStream> stream = dial(lock, rank, 0, limit);
      core_.set_reaching(std::nullopt);
      if (core_.broken()) return *core_.broken();
      if (!stream.ok() && round == 0) {
        missing = true;
        options_.log.info("rank {} is not reached yet, and is tried again: {}", rank.value(),
                          stream.error().message());
        continue;
      }
      if (!stream.ok()) return stream.error().within(fmt::format("rank {}", rank.value()));
      if (connection.connected() || !connection.over().empty()) continue;
      THALWEG_TRY_STATUS(take(lock, peer, *stream, until));
    }
  }
  return ok_status();
}

Result<GreetedStream> Streams::dial(Lock& lock, Rank peer, std::uint32_t lane, Time until) {
  for (std::uint32_t tries = 0;; ++tries) {
    const Time now = monotonic_now();
    const bool by_others = tries >= kTriesByOwnWay && joiner_.has_several_ways();
    const std::uint32_t way = by_others ? lane + tries : lane;
    lock.unlock();
    Result<DialedStream> stream =
        options_.connect(peer.value(), way, std::min(until, now + kDialTry));
    lock.lock();
    owner_.catch_up();
    const bool gone = !stream.ok() && options_.refusals_are_final &&
                      stream.error().code() == ErrorCode::kPeerLost;
    if (!stream.ok() && !gone && !core_.broken() && monotonic_now() < until) continue;
    if (!stream.ok()) return stream.error();
    if (core_.broken()) return *core_.broken();
    const auto streams = static_cast<std::uint32_t>(stream->streams);
    std::optional<GreetedStream> greeted =
        lane > 0 ? joiner_.greet(std::move(*stream), Purpose::kLane, lane)
                 : joiner_.greet(std::move(*stream), Purpose::kFirst, streams);
    if (!greeted) return system_error("cannot greet it", errno).blaming(peer.value());
    greeted->way = way % std::max(streams, 1U);
    return *std::move(greeted);
  }
}

Status Streams::take(Lock& lock, StreamPeer& peer, GreetedStream& stream, Time until) {
  if (stream.answer) peer.connection.expect(*stream.answer);
  if (stream.streams > 1) peer.connection.keep_copies();
  adopt(peer, std::move(stream.stream));
  if (!options_.share_memory || !peer.connection.within_host()) {
    return connect_lanes(lock, peer, stream.streams, stream.way, until);
  }
  offer_memory(peer.connection);
  return ok_status();
}

Status Streams::connect_lanes(Lock& lock, StreamPeer& peer, std::size_t streams,
                              std::uint32_t first_way, Time until) {
  if (streams <= 1) return ok_status();
  std::vector<std::uint32_t> ways{first_way};
  ways.resize(streams);
  const Rank rank = peer.connection.peer();
  for (std::uint32_t number = 1; number < streams; ++number) {
    Result<GreetedStream> stream = dial(lock, rank, number, until);
    if (core_.broken()) return *core_.broken();
    if (!stream.ok()) return stream.error().within(fmt::format("rank {}", rank.value()));
    // The connection has ended, which is noticed elsewhere.
    if (!peer.connection.over().empty()) break;
    ways[number] = stream->way;
    adopt_lane(peer, number, std::move(stream->stream.fd), stream->answer);
  }
  peer.places = proto::StreamPlaces(ways);
  return ok_status();
}

void Streams::on_joined(Joiner::Joined joined) {
  const proto::HelloFrame& hello = joined.hello;
  StreamPeer& peer = *peers_[hello.rank.index()];
  switch (hello.purpose) {
    case Purpose::kMessages:
      if (joined.mismatch) {
        // No message of it may be taken.
        core_.fail(*joined.mismatch);
        joiner_.refuse(joined.stream, *joined.mismatch);
      } else if (options_.on_message_stream) {
        options_.on_message_stream(hello.rank.value(), std::move(joined.stream));
      }
      return;
    case Purpose::kMoved:
      if (!joined.mismatch) mover_->begin(peer, hello.number, std::move(joined.stream));
      return;
    case Purpose::kLane:
      adopt_lane(peer, hello.number, std::move(joined.stream.fd), std::nullopt);
      return;
    case Purpose::kFirst:
      if (peer.connection.connected() || !peer.connection.over().empty()) return;
      if (hello.number > 1) peer.connection.keep_copies();
      // In its own way of checking, so that it can be told what is wrong.
      adopt(peer, std::move(joined.stream));
      if (joined.mismatch) core_.fail(*joined.mismatch);
      if (core_.broken()) peer.connection.drop_data(owner_);
      return;
  }
}

void Streams::adopt(StreamPeer& peer, CheckedStream stream) {
  Connection& connection = peer.connection;
  const int fd = stream.fd.get();
  prepare_stream(fd);
  keep_to_line_rate(fd, options_.line_bps);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "errno {}", errno);
  peer.watching = EPOLLIN;
  connection.set_check(stream.check, std::move(stream.seal));
  connection.attach(std::move(stream.fd));
  if (options_.log.shows(DebugLevel::kInfo)) {
    options_.log.info("rank {}: connected, {} to {}{}{}", connection.peer().value(),
                      SocketAddress::local_of(connection.fd()).unmapped().to_string(),
                      SocketAddress::remote_of(connection.fd()).unmapped().to_string(),
                      connection.within_host() ? ", on this host" : "",
                      connection.sealed() ? ", encrypted" : "");
  }
  open_.push_back(&peer);
  core_.on_connected(connection.peer());
  touch(peer);
}

void Streams::adopt_lane(StreamPeer& peer, std::uint32_t number, Fd fd,
                         const std::optional<wire::SessionProof>& answer) {
  prepare_stream(fd.get());
  keep_to_line_rate(fd.get(), options_.line_bps);
  std::vector<std::byte> due;
  if (answer) due.assign(answer->begin(), answer->end());
  if (peer.connection.add_lane(number, std::move(fd), std::move(due))) touch(peer);
}

bool Streams::on_frame(Connection& connection, const wire::Frame& frame) {
  if (const auto offer = proto::offer_frame(frame)) {
    take_offer(connection, *offer);
    return true;
  }
  if (frame.kind != wire::FrameKind::kShared) return false;
  // The rank that offered the memory uses it second.
  if (connection.peer().value() > options_.joiner.rank) return true;
  connection.shared()->close_offer();
  connection.use_shared();
  touch(connection.peer());
  return true;
}

void Streams::offer_memory(Connection& connection) {
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
  wire::Frame frame = proto::wire_frame(proto::OfferFrame{offer.pid, offer.fd, offer.label});
  frame.started = core_.started();
  connection.queue(frame, "");
}

void Streams::take_offer(Connection& connection, const proto::OfferFrame& offer) {
  if (connection.shared() != nullptr || connection.has_lanes()) {
    connection.break_off("it offered shared memory twice, or besides lanes");
    return;
  }
  if (!options_.share_memory) return;
  Result<std::unique_ptr<SharedRings>> rings =
      SharedRings::open({offer.process, offer.descriptor, offer.label});
  // The memory cannot be opened from here: the peer is in another container, or of another user.
  if (!rings.ok()) {
    options_.log.warn("rank {}: its shared memory cannot be used, so the socket carries all: {}",
                      connection.peer().value(), rings.error().message());
    return;
  }
  options_.log.info("rank {}: uses its shared memory", connection.peer().value());
  connection.share(std::move(*rings));
  connection.use_shared();
  touch(connection.peer());
}

}  // namespace thalweg::net
