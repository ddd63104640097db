// Streams move when an interface or a cable dies, and back when it returns
// (streams/stream_bytes.h). The rank that connects them notices and moves them, one at a time, in a
// thread of its own, because connecting by a dead path takes a while and the other streams go on
// meanwhile.
#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "net/group/drive/engine.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

constexpr Duration kLookEvery = Duration::milliseconds(250);
// The most time that a new connection, and the answer on it, may take.
constexpr Duration kMoveTry = Duration::milliseconds(500);
constexpr Duration kAnswerTime = Duration::milliseconds(1000);
// A path that dies again within this time after a stream came back is tried less often.
constexpr Duration kSteady = Duration::milliseconds(30'000);
constexpr Duration kFirstWait = Duration::milliseconds(1000);
constexpr Duration kLongestWait = Duration::milliseconds(30'000);
// An old socket stays open for so long. If it were closed while the other end still reads it, the
// end of the connection would be taken for the end of this process.
constexpr Duration kRetirement = Duration::milliseconds(10'000);

// Reads exactly so many bytes. False: they do not come.
bool read_exactly(int fd, std::span<std::byte> into, Time until) {
  while (!into.empty()) {
    const ssize_t got = recv(fd, into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) {
      into = into.subspan(static_cast<std::size_t>(got));
      continue;
    }
    const bool later = got < 0 && (errno == EAGAIN || errno == EINTR);
    if (!later || !wait_for_socket(fd, POLLIN, until)) return false;
  }
  return true;
}

std::size_t resume_size(const wire::StreamSeal* seal) {
  return seal != nullptr ? wire::kSealedFrameSize : wire::kCheckedFrameSize;
}

// The bytes that the other end has, if this is a frame that says so of the stream.
std::optional<std::uint64_t> read_resume(std::span<const std::byte> bytes, wire::StreamSeal* seal,
                                         std::uint32_t stream) {
  wire::Frame frame;
  std::uint32_t payload = 0;
  const wire::WireError error =
      seal != nullptr
          ? seal->in.open_header(bytes.first<wire::kSealedFrameSize>(), frame)
          : wire::decode_checked_frame(bytes.first<wire::kCheckedFrameSize>(), frame, payload);
  if (error != wire::WireError::kNone || frame.kind != wire::FrameKind::kResume ||
      frame.length != 0 || frame.started != stream) {
    return std::nullopt;
  }
  return frame.signature;
}

// It fits the socket's buffer, which is empty.
bool send_resume(int fd, wire::StreamSeal* seal, std::uint32_t stream, std::uint64_t received) {
  const std::vector<std::byte> bytes =
      frame_bytes({.kind = wire::FrameKind::kResume, .signature = received, .started = stream}, "",
                  seal != nullptr ? wire::FrameCheck::kSealed : wire::FrameCheck::kChecksum, seal);
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == std::ssize(bytes);
}

// Waits for the proof of the job key, if one is due, and for what the other end has received.
std::optional<std::uint64_t> await_resume(const GreetedStream& greeted, std::uint32_t stream) {
  const Time until = monotonic_now() + kAnswerTime;
  const int fd = greeted.stream.fd.get();
  if (greeted.answer) {
    wire::SessionProof proof;
    if (!read_exactly(fd, proof, until) || !wire::same_secret(proof, *greeted.answer)) {
      return std::nullopt;
    }
  }
  std::array<std::byte, wire::kSealedFrameSize> bytes;
  wire::StreamSeal* const seal = greeted.stream.seal.get();
  const auto all = std::span(bytes).first(resume_size(seal));
  if (!read_exactly(fd, all, until)) return std::nullopt;
  return read_resume(bytes, seal, stream);
}

}  // namespace

std::optional<Time> Engine::next_look() const {
  const bool some = !running_.empty() && std::ranges::any_of(open_, [](const Connection* c) {
    return !c->places.empty();
  });
  return some ? std::optional(look_at_) : std::nullopt;
}

void Engine::look_at_streams(Time now) {
  if (now < look_at_ || running_.empty() || stopping_) return;
  look_at_ = now + kLookEvery;
  std::erase_if(retired_, [&](const auto& each) { return each.second + kRetirement < now; });
  for (Connection* connection : open_) {
    for (std::uint32_t s = 0; s < connection->places.size() && !move_; ++s) {
      if (connection->can_move(s)) look_at_stream(*connection, s, now);
    }
  }
}

void Engine::look_at_stream(Connection& connection, std::uint32_t stream, Time now) {
  Connection::Place& place = connection.places[stream];
  const auto ways = static_cast<std::uint32_t>(connection.places.size());
  const bool silent = connection.bytes_of(stream).down() || is_silent(connection.fd_of(stream));
  if (silent) {
    if (place.tried == place.way) {
      options_.log.warn("rank {}: nothing passes by the {}: moves it", connection.peer().value(),
                        connection.words_for(stream));
      const bool soon = place.way == stream && now < place.came_back + kSteady;
      place.wait = soon ? std::min(place.wait * 2, kLongestWait) : kFirstWait;
    }
    place.tried = (place.tried + 1) % ways;
    place.back_at = now + place.wait;
    move_ = {connection.peer(), stream, place.tried};
  } else if (place.way != stream && now >= place.back_at) {
    place.back_at = now + place.wait;
    move_ = {connection.peer(), stream, stream};
  }
  if (!move_) return;
  if (!mover_.joinable()) mover_ = std::thread([this] { run_mover(); });
  move_wanted_.notify_one();
}

void Engine::run_mover() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (!move_) {
      move_wanted_.wait(lock);
      continue;
    }
    carry_out(lock, *move_);
    move_.reset();
  }
}

void Engine::carry_out(Lock& lock, const Move move) {
  Connection& connection = *connections_[move.peer.index()];
  lock.unlock();
  Result<DialedStream> dialed =
      options_.connect(move.peer.value(), move.way, monotonic_now() + kMoveTry);
  lock.lock();
  if (!dialed.ok() || stopping_ || !connection.can_move(move.stream)) return;
  StreamBytes& bytes = connection.bytes_of(move.stream);
  bytes.pause();
  watch(connection);
  lock.unlock();
  std::optional<GreetedStream> greeted =
      say_hello(*std::move(dialed), hello_for(wire::kMovedStream, move.stream), options_.checks);
  const std::optional<std::uint64_t> theirs =
      greeted ? await_resume(*greeted, move.stream) : std::nullopt;
  lock.lock();
  if (!connection.can_move(move.stream)) return;
  wire::StreamSeal* const seal = greeted ? greeted->stream.seal.get() : nullptr;
  if (!theirs ||
      !send_resume(greeted->stream.fd.get(), seal, move.stream, connection.drain(move.stream))) {
    connection.bytes_of(move.stream).go_on(false);
    watch(connection);
    touch(connection);
    settle();
    return;
  }
  Connection::Place& place = connection.places[move.stream];
  place.way = place.tried = move.way;
  place.back_at = monotonic_now() + place.wait;
  if (move.way == move.stream) place.came_back = monotonic_now();
  go_on_by(connection, move.stream, std::move(greeted->stream.fd), *theirs);
}

void Engine::go_on_by(Connection& connection, std::uint32_t stream, Fd fd, std::uint64_t theirs) {
  prepare_stream(fd.get());
  keep_to_line_rate(fd.get(), options_.line_bps);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.fd_of(stream), nullptr);
  Fd old = connection.move(stream, std::move(fd), theirs);
  if (connection.connected()) {
    retired_.emplace_back(std::move(old), monotonic_now());
    if (stream > 0) {
      connection.lanes()[stream - 1].watching = 0;
    } else {
      connection.watching = Connection::kUnwatched;
    }
    options_.log.warn("rank {}: its data goes on by the {}", connection.peer().value(),
                      connection.words_for(stream));
    if (options_.on_moved_stream) options_.on_moved_stream();
    touch(connection);
  }
  look_over(connection);
  watch(connection);
  settle();
  // A driver that sleeps would not notice bytes that were read from the old socket.
  eventfd_write(wake_.get(), 1);
  nudge();
}

void Engine::begin_move(Newcomer& newcomer, Connection& connection, std::uint32_t stream) {
  if (!connection.can_move(stream)) return;
  // The other end has given up an earlier try. If it has confirmed that one, it counts.
  for (std::size_t i = 0; i < newcomers_.size(); ++i) {
    Newcomer& earlier = newcomers_[i];
    if (!earlier.moves || earlier.over || earlier.moves->first != &connection ||
        earlier.moves->second != stream) {
      continue;
    }
    end_move(earlier);
    if (!earlier.over) give_up_move(earlier);
  }
  if (!connection.can_move(stream)) return;
  connection.bytes_of(stream).pause();
  watch(connection);
  newcomer.moves = {&connection, stream};
  newcomer.size = 0;
  newcomer.over =
      !send_resume(newcomer.fd.get(), newcomer.seal.get(), stream, connection.drain(stream));
  if (newcomer.over) give_up_move(newcomer);
}

void Engine::end_move(Newcomer& newcomer) {
  const auto [connection, stream] = *newcomer.moves;
  const std::size_t wanted = resume_size(newcomer.seal.get());
  const ssize_t got =
      recv(newcomer.fd.get(), &newcomer.bytes[newcomer.size], wanted - newcomer.size, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  newcomer.size += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  if (got > 0 && newcomer.size < wanted) return;
  const std::optional<std::uint64_t> theirs =
      got > 0 ? read_resume(newcomer.bytes, newcomer.seal.get(), stream) : std::nullopt;
  if (!theirs || !connection->can_move(stream)) {
    give_up_move(newcomer);
    return;
  }
  newcomer.over = true;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, newcomer.fd.get(), nullptr);
  go_on_by(*connection, stream, std::move(newcomer.fd), *theirs);
}

void Engine::give_up_move(Newcomer& newcomer) {
  const auto [connection, stream] = *newcomer.moves;
  newcomer.over = true;
  if (!connection->can_move(stream)) return;
  connection->bytes_of(stream).go_on(true);
  watch(*connection);
  touch(*connection);
}

}  // namespace thalweg::net
