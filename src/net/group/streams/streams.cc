#include "net/group/streams/streams.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "net/group/streams/mover.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr std::size_t kReadBuffer = std::size_t{512} << 10;
// Up to this many streams are read one by one. With more, epoll says which to read.
constexpr std::ptrdiff_t kFewStreams = 4;
// A payload of which no more than this is left after its first bytes is read to its end before
// anything is sent. What follows from it then leaves in one piece.
constexpr std::size_t kShortRest = 64 << 10;
constexpr int kEventsPerWait = 64;
// How long what a peer has sent is kept after its end.
constexpr Duration kHangUpTime = Duration::milliseconds(250);

}  // namespace

Streams::Streams(StreamsOptions options, std::vector<Fd> listeners, Fd epoll, std::mutex& mutex,
                 proto::Collective& core, Owner& owner)
    : options_(std::move(options)),
      epoll_(std::move(epoll)),
      mutex_(mutex),
      core_(core),
      owner_(owner),
      joiner_(options_.joiner, epoll_.get(), std::move(listeners)),
      buffer_(kReadBuffer),
      mover_(std::make_unique<Mover>(*this)) {
  for (int r = 0; r < options_.joiner.size; ++r) {
    peers_.push_back(std::make_unique<StreamPeer>(Rank(r)));
  }
}

Streams::~Streams() = default;

bool Streams::share_memory_with(const std::vector<Rank>& ranks) const {
  return std::ranges::all_of(ranks, [&](const Rank rank) {
    const Connection& connection = to(rank);
    return connection.reads_shared() && connection.writes_shared() && connection.connected();
  });
}

bool Streams::all_share_memory() const {
  return std::ranges::all_of(open_,
                             [](const StreamPeer* p) { return p->connection.reads_shared(); });
}

bool Streams::read(StreamPeer& peer) {
  Connection& connection = peer.connection;
  const bool begins = connection.rest_of_payload() == 0;
  if (!connection.read(buffer_, owner_)) return false;
  const bool is_short = begins && connection.rest_of_payload() <= kShortRest;
  while (is_short && connection.rest_of_payload() > 0 && connection.read(buffer_, owner_)) {
  }
  attend(peer);
  return true;
}

bool Streams::few() const {
  if (joiner_.has_newcomers() || mover_->has_newcomers()) return false;
  std::ptrdiff_t by_socket = 0;
  for (const StreamPeer* peer : open_) {
    by_socket += peer->connection.reads_shared() ? 0 : 1;
    if (by_socket > kFewStreams || peer->connection.misses_lane()) return false;
  }
  return true;
}

void Streams::touch(StreamPeer& peer) {
  if (std::exchange(peer.dirty, true)) return;
  dirty_.push_back(&peer);
}

void Streams::flush() {
  while (!dirty_.empty()) {
    StreamPeer& peer = *dirty_.back();
    dirty_.pop_back();
    peer.dirty = false;
    if (!peer.connection.connected()) continue;
    peer.connection.flush(owner_);
    attend(peer);
  }
}

void Streams::forget_closed() {
  std::erase_if(open_, [](const StreamPeer* peer) { return !peer->connection.connected(); });
}

void Streams::resume(Rank rank) {
  StreamPeer& peer = *peers_[rank.index()];
  if (!peer.connection.stalled()) return;
  peer.connection.resume(owner_);
  touch(peer);  // so that it is watched again
}

void Streams::drop_data() {
  for (StreamPeer* peer : open_) {
    if (!peer->connection.connected()) continue;
    peer->connection.drop_data(owner_);
    touch(*peer);
  }
}

bool Streams::delivered() {
  for (StreamPeer* peer : open_) {
    while (peer->connection.read(buffer_, owner_)) {
    }
  }
  const auto is_delivered = [](const StreamPeer* peer) { return peer->connection.delivered(); };
  if (std::ranges::all_of(open_, is_delivered)) return true;
  for (StreamPeer* peer : open_) touch(*peer);
  return false;
}

bool Streams::prepare_sleep() {
  bool work = false;
  for (StreamPeer* peer : open_) {
    work = peer->connection.prepare_sleep() || peer->connection.has_early() || work;
  }
  return work;
}

void Streams::wake_up() {
  for (StreamPeer* peer : open_) peer->connection.wake_up();
}

bool Streams::is_quiet() const {
  return std::ranges::all_of(open_, [](const StreamPeer* p) { return p->connection.is_quiet(); });
}

std::optional<Time> Streams::next_look() const { return mover_->next_look(); }
void Streams::look(Time now) { mover_->look(now); }
void Streams::stop_moving() { mover_->stop(); }

bool Streams::handle_events(int timeout_ms) {
  std::array<epoll_event, kEventsPerWait> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsPerWait, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const int fd = event.data.fd;
    const auto peer =
        std::ranges::find_if(open_, [fd](const StreamPeer* p) { return p->connection.owns(fd); });
    if (peer != open_.end()) {
      on_socket(**peer, fd, event.events);
      continue;
    }
    if (mover_->on_event(fd)) continue;
    joiner_.on_event(fd, [this](Joiner::Joined joined) { on_joined(std::move(joined)); });
  }
  forget_closed();
  return count > 0;
}

void Streams::on_socket(StreamPeer& peer, int fd, std::uint32_t events) {
  Connection& connection = peer.connection;
  if (connection.reads_shared()) connection.hear_bells(buffer_);
  const bool moved = connection.read(buffer_, owner_);
  const bool waits = connection.stalled() || connection.source() != 0;
  const bool ended = fd == connection.fd() && (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;
  if (waits && ended && !connection.reads_shared()) hang_up(peer, moved);
  if ((events & EPOLLOUT) != 0) touch(peer);
  attend(peer);
}

// What a peer has sent may belong to an operation that has not begun here, or be on a lane. The
// peer may have done all its part and left. Then its data is still read.
void Streams::hang_up(StreamPeer& peer, bool moved) {
  const Time now = monotonic_now();
  if (!peer.hung_up || moved) peer.hung_up = now;
  if (now < *peer.hung_up + kHangUpTime) return;
  if (!peer.connection.stalled()) {
    peer.connection.break_off("its connection closed");
    return;
  }
  // Its last words may be behind the frame that waits.
  core_.on_hang_up(peer.connection.peer());
  peer.connection.resume(owner_);
}

// Ends are handled here, because a connection must not disappear while it is being read.
void Streams::attend(StreamPeer& peer) {
  const Connection& connection = peer.connection;
  if (!connection.over().empty()) core_.on_closed(connection.peer(), connection.over());
  watch(peer);
}

void Streams::watch(StreamPeer& peer) {
  Connection& connection = peer.connection;
  if (!connection.connected()) return;
  watch_lanes(peer);
  const bool frames =
      !connection.reads_shared() && !connection.stalled() && connection.source() == 0;
  const bool bells = connection.reads_shared() && !connection.deaf();
  // A stream that is about to move is not watched at all.
  const bool still = connection.bytes_of(0).moving();
  const bool room = !connection.writes_shared() && connection.first_blocked();
  // While a lane is read, the first stream is watched only for its end.
  const bool end = connection.source() != 0;
  const std::uint32_t events = (frames || bells ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                               (end ? static_cast<std::uint32_t>(EPOLLRDHUP) : 0U) |
                               (room ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  const std::uint32_t wanted = still ? StreamPeer::kUnwatched : events;
  const std::uint32_t before = std::exchange(peer.watching, wanted);
  if (wanted == before) return;
  epoll_event event{};
  event.events = wanted;
  event.data.fd = connection.fd();
  // A socket that has ended would report that again and again.
  const int added = before == StreamPeer::kUnwatched ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  const int change = connection.deaf() || still ? EPOLL_CTL_DEL : added;
  epoll_ctl(epoll_.get(), change, connection.fd(), &event);
}

// A lane is watched only while it is to be read or written. Otherwise its end would be reported
// again and again.
void Streams::watch_lanes(StreamPeer& peer) {
  Connection& connection = peer.connection;
  if (peer.lanes_watching.size() < connection.lanes().size()) {
    peer.lanes_watching.resize(connection.lanes().size());
  }
  std::uint32_t number = 0;
  for (const Lane& lane : connection.lanes()) {
    std::uint32_t& watching = peer.lanes_watching[number++];
    const bool payload =
        (connection.source() == number && !connection.stalled()) || !lane.answer_due.empty();
    const std::uint32_t events = (payload ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                                 (lane.blocked ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
    const std::uint32_t wanted = lane.bytes.moving() || !lane.fd.valid() ? 0U : events;
    const std::uint32_t before = std::exchange(watching, wanted);
    if (wanted == before) continue;
    epoll_event event{};
    event.events = wanted;
    event.data.fd = lane.fd.get();
    const int change = wanted == 0 ? EPOLL_CTL_DEL : before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    epoll_ctl(epoll_.get(), change, lane.fd.get(), &event);
  }
}

}  // namespace thalweg::net
