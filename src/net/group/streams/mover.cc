#include "net/group/streams/mover.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "base/check.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

// The most time that a new connection, and the answer on it, may take.
constexpr Duration kMoveTry = Duration::milliseconds(500);
constexpr Duration kAnswerTime = Duration::milliseconds(1000);
// An old socket stays open for so long. If it were closed while the other end still reads it, the
// end of the connection would be taken for the end of this process.
constexpr Duration kRetirement = Duration::milliseconds(10'000);
// Streams of one communicator that others have begun to move; more are not taken.
constexpr std::size_t kMostNewcomers = 1024;

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

std::size_t resume_size(const CheckedStream& stream) {
  return stream.seal ? wire::kSealedFrameSize : wire::kCheckedFrameSize;
}

// The bytes that the other end has, if this is a frame that says so of the stream.
std::optional<std::uint64_t> read_resume(std::span<const std::byte> bytes,
                                         const CheckedStream& stream, std::uint32_t number) {
  wire::Frame frame;
  std::uint32_t payload = 0;
  const wire::WireError error =
      stream.seal
          ? stream.seal->in.open_header(bytes.first<wire::kSealedFrameSize>(), frame)
          : wire::decode_checked_frame(bytes.first<wire::kCheckedFrameSize>(), frame, payload);
  if (error != wire::WireError::kNone) return std::nullopt;
  const auto resume = proto::resume_frame(frame);
  if (!resume || resume->stream != number) return std::nullopt;
  return resume->received;
}

// It fits the socket's buffer, which is empty.
bool send_resume(const CheckedStream& stream, std::uint32_t number, std::uint64_t received) {
  const std::vector<std::byte> bytes = frame_bytes(
      proto::wire_frame(proto::ResumeFrame{number, received}), "",
      stream.seal ? wire::FrameCheck::kSealed : wire::FrameCheck::kChecksum, stream.seal.get());
  return send(stream.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         std::ssize(bytes);
}

// Waits for the proof of the job key, if one is due, and for what the other end has received.
std::optional<std::uint64_t> await_resume(const GreetedStream& greeted, std::uint32_t number) {
  const Time until = monotonic_now() + kAnswerTime;
  const int fd = greeted.stream.fd.get();
  if (greeted.answer) {
    wire::SessionProof proof;
    if (!read_exactly(fd, proof, until) || !wire::same_secret(proof, *greeted.answer)) {
      return std::nullopt;
    }
  }
  std::array<std::byte, wire::kSealedFrameSize> bytes;
  if (!read_exactly(fd, std::span(bytes).first(resume_size(greeted.stream)), until)) {
    return std::nullopt;
  }
  return read_resume(bytes, greeted.stream, number);
}

}  // namespace

std::optional<Time> Mover::next_look() const {
  const bool some = std::ranges::any_of(
      streams_.open_, [](const StreamPeer* peer) { return peer->places.streams() > 0; });
  return some ? std::optional(look_at_) : std::nullopt;
}

void Mover::look(Time now) {
  if (now < look_at_ || stopping_) return;
  look_at_ = now + proto::StreamPlaces::kLookEvery;
  std::erase_if(retired_, [&](const auto& each) { return each.second + kRetirement < now; });
  for (StreamPeer* peer : streams_.open_) {
    for (std::uint32_t s = 0; s < peer->places.streams() && !move_; ++s) {
      if (peer->connection.can_move(s)) look_at(*peer, s, now);
    }
  }
}

void Mover::look_at(StreamPeer& peer, std::uint32_t stream, Time now) {
  Connection& connection = peer.connection;
  const bool silent = connection.bytes_of(stream).down() || is_silent(connection.fd_of(stream));
  const std::optional<std::uint32_t> way = peer.places.look(stream, silent, now);
  if (peer.places.silent_anew()) {
    streams_.options_.log.warn("rank {}: nothing passes by the {}: moves it",
                               connection.peer().value(), connection.words_for(stream));
  }
  if (!way) return;
  move_ = {&peer, stream, *way};
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  wanted_.notify_one();
}

void Mover::stop() {
  {
    const Lock lock(streams_.mutex_);
    stopping_ = true;
    wanted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Mover::run() {
  Lock lock(streams_.mutex_);
  while (!stopping_) {
    if (!move_) {
      wanted_.wait(lock);
      continue;
    }
    carry_out(lock, *move_);
    move_.reset();
  }
}

void Mover::carry_out(Lock& lock, const Move& move) {
  Connection& connection = move.peer->connection;
  lock.unlock();
  Result<DialedStream> dialed =
      streams_.options_.connect(connection.peer().value(), move.way, monotonic_now() + kMoveTry);
  lock.lock();
  if (!dialed.ok() || stopping_ || !connection.can_move(move.stream)) return;
  connection.bytes_of(move.stream).pause();
  streams_.watch(*move.peer);
  lock.unlock();
  std::optional<GreetedStream> greeted =
      streams_.joiner_.greet(*std::move(dialed), proto::HelloFrame::Purpose::kMoved, move.stream);
  const std::optional<std::uint64_t> theirs =
      greeted ? await_resume(*greeted, move.stream) : std::nullopt;
  lock.lock();
  if (!connection.can_move(move.stream)) return;
  if (!theirs || !send_resume(greeted->stream, move.stream, connection.drain(move.stream))) {
    stay(*move.peer, move.stream, false);
    streams_.owner_.settle();
    return;
  }
  move.peer->places.moved(move.stream, move.way, monotonic_now());
  go_on_by(*move.peer, move.stream, std::move(greeted->stream.fd), *theirs);
}

void Mover::stay(StreamPeer& peer, std::uint32_t stream, bool keeps_all) {
  peer.connection.bytes_of(stream).go_on(keeps_all);
  streams_.watch(peer);
  streams_.touch(peer);
}

void Mover::go_on_by(StreamPeer& peer, std::uint32_t stream, Fd fd, std::uint64_t theirs) {
  Connection& connection = peer.connection;
  prepare_stream(fd.get());
  keep_to_line_rate(fd.get(), streams_.options_.line_bps);
  epoll_ctl(streams_.epoll(), EPOLL_CTL_DEL, connection.fd_of(stream), nullptr);
  Fd old = connection.move(stream, std::move(fd), theirs);
  if (connection.connected()) {
    retired_.emplace_back(std::move(old), monotonic_now());
    if (stream > 0) {
      if (stream <= peer.lanes_watching.size()) peer.lanes_watching[stream - 1] = 0;
    } else {
      peer.watching = StreamPeer::kUnwatched;
    }
    streams_.options_.log.warn("rank {}: its data goes on by the {}", connection.peer().value(),
                               connection.words_for(stream));
    if (streams_.options_.on_moved_stream) streams_.options_.on_moved_stream();
    streams_.touch(peer);
  }
  streams_.attend(peer);
  streams_.owner_.settle();
  // A driver that sleeps would not notice bytes that were read from the old socket.
  streams_.owner_.wake();
}

void Mover::begin(StreamPeer& peer, std::uint32_t number, CheckedStream stream) {
  Connection& connection = peer.connection;
  if (!connection.can_move(number) || newcomers_.size() >= kMostNewcomers) return;
  // The other end has given up an earlier try. If it has confirmed that one, it counts.
  for (Newcomer& earlier : newcomers_) {
    if (earlier.over || earlier.peer != &peer || earlier.number != number) continue;
    read_confirmation(earlier);
    if (!earlier.over) give_up(earlier);
  }
  if (!connection.can_move(number)) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = stream.fd.get();
  if (epoll_ctl(streams_.epoll(), EPOLL_CTL_ADD, stream.fd.get(), &event) != 0) return;
  connection.bytes_of(number).pause();
  streams_.watch(peer);
  Newcomer& newcomer = newcomers_.emplace_back(&peer, number, std::move(stream));
  if (!send_resume(newcomer.stream, number, connection.drain(number))) give_up(newcomer);
  std::erase_if(newcomers_, [](const Newcomer& n) { return n.over; });
}

bool Mover::on_event(int fd) {
  const auto newcomer = std::ranges::find_if(
      newcomers_, [fd](const Newcomer& n) { return !n.over && n.stream.fd.get() == fd; });
  if (newcomer == newcomers_.end()) return false;
  read_confirmation(*newcomer);
  std::erase_if(newcomers_, [](const Newcomer& n) { return n.over; });
  return true;
}

void Mover::read_confirmation(Newcomer& newcomer) {
  const std::size_t wanted = resume_size(newcomer.stream);
  const ssize_t got = recv(newcomer.stream.fd.get(), &newcomer.bytes[newcomer.size],
                           wanted - newcomer.size, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  newcomer.size += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  if (got > 0 && newcomer.size < wanted) return;
  const std::optional<std::uint64_t> theirs =
      got > 0 ? read_resume(newcomer.bytes, newcomer.stream, newcomer.number) : std::nullopt;
  if (!theirs || !newcomer.peer->connection.can_move(newcomer.number)) {
    give_up(newcomer);
    return;
  }
  newcomer.over = true;
  epoll_ctl(streams_.epoll(), EPOLL_CTL_DEL, newcomer.stream.fd.get(), nullptr);
  go_on_by(*newcomer.peer, newcomer.number, std::move(newcomer.stream.fd), *theirs);
}

void Mover::give_up(Newcomer& newcomer) {
  newcomer.over = true;
  if (newcomer.peer->connection.can_move(newcomer.number)) {
    stay(*newcomer.peer, newcomer.number, true);
  }
}

}  // namespace thalweg::net
