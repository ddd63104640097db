// The lanes of a connection.
#include <fmt/core.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "net/group/streams/connection.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/job/interfaces.h"

namespace thalweg::net {
namespace {

// Bytes of a stream that the system has and has not sent for the first time. 0 if it cannot say.
int unsent_of(int fd) {
  int unsent = 0;
  return ioctl(fd, SIOCOUTQNSD, &unsent) == 0 ? unsent : 0;
}

}  // namespace

int lane_backlog(int fd) {
  constexpr double kSeconds = 0.002;
  constexpr double kLeast = 8 << 10;
  constexpr double kMost = 64 << 10;
  std::uint32_t bytes_per_second = ~std::uint32_t{0};
  socklen_t size = sizeof(bytes_per_second);
  getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second, &size);
  return static_cast<int>(std::clamp(bytes_per_second * kSeconds, kLeast, kMost));
}

void prepare_lane(int fd) {
  // The system reports room when less than half of this is unsent: when unsent_of() is below
  // lane_backlog().
  set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 2 * lane_backlog(fd));
  // Makes the receive buffer at least this large, for what arrives while another lane is read.
  // Unlike SO_RCVBUF, this lets the system enlarge the buffer further.
  set_option(fd, SOL_SOCKET, SO_RCVLOWAT, kLaneRoom);
  set_option(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
  // A path that is dead and idle shows by probes that are not answered (is_silent()). They never
  // end the connection before a minute has passed.
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 60);
}

bool is_silent(int fd) {
  constexpr std::uint32_t kSilentMs = 1000;
  constexpr std::uint32_t kTries = 2;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const bool repeats = info.tcpi_unacked > 0 && info.tcpi_retransmits > kTries;
  return (repeats || info.tcpi_probes >= kTries) && info.tcpi_last_ack_recv >= kSilentMs;
}

bool Connection::add_lane(std::uint32_t number, Fd fd, std::vector<std::byte> due) {
  CHECK(number >= 1 && number <= wire::kMaxLane);
  if (!over_.empty() || shared_) return false;
  if (number <= lanes_.size() && lanes_[number - 1].fd.valid()) return false;
  // This frame began when there was no lane.
  if (!has_lanes() && !out_.bytes.empty()) loans_.lend(0, out_.op, out_.send, out_.bytes.size());
  prepare_lane(fd.get());
  if (connected()) prepare_first();
  if (lanes_.size() < number) lanes_.resize(number);
  Lane& lane = lanes_[number - 1];
  lane.backlog = lane_backlog(fd.get());
  lane.fd = std::move(fd);
  lane.answer_due = std::move(due);
  lane.bytes.keep_copies();
  lane.bytes.expect_uncounted(lane.answer_due.size());
  return true;
}

void Connection::attach(Fd fd) {
  fd_ = std::move(fd);
  within_host_ = is_within_host(this->fd());
  if (has_lanes()) prepare_first();
}

void Connection::prepare_first() {
  prepare_lane(fd());
  backlog_ = lane_backlog(fd());
}

// This also reads lanes that only send. If such a lane were closed with its proof unread, the
// system would reset the stream, and what the peer has not read yet would be lost.
void Connection::read_proofs() {
  std::uint32_t number = 0;
  for (Lane& lane : lanes_) {
    ++number;
    if (lane.answer_due.empty()) continue;
    std::array<std::byte, wire::kSessionProofSize> proof;
    std::array<iovec, 1> into{iovec{proof.data(), lane.answer_due.size()}};
    const ssize_t got = lane.bytes.receive(lane.fd.get(), into);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0 && lose_path(number)) {
      if (!connected()) return;
      continue;
    }
    if (got <= 0) {
      break_off(lane_end(number, got));
      return;
    }
    const auto bytes = std::span<const std::byte>(proof).first(static_cast<std::size_t>(got));
    if (!wire::same_secret(bytes, std::span(lane.answer_due).first(bytes.size()))) {
      break_off("it does not hold the job key");
      return;
    }
    lane.answer_due.erase(lane.answer_due.begin(), lane.answer_due.begin() + got);
  }
}

std::string Connection::lane_end(std::uint32_t number, ssize_t got) const {
  const std::string why = got < 0 ? std::generic_category().message(errno) : "closed";
  return fmt::format("its {}: {}", words_for(number), why);
}

std::string Connection::words_for(std::uint32_t stream) const {
  SocketAddress here = SocketAddress::local_of(fd_of(stream)).unmapped();
  here.set_port(0);
  std::string name = here.host();
  if (const auto all = interfaces(); all.ok()) {
    for (const Interface& one : *all) {
      if (one.address == here) name = fmt::format("{} ({})", one.name, name);
    }
  }
  return fmt::format("stream by interface {} to {}", name,
                     SocketAddress::remote_of(fd_of(stream)).unmapped().host());
}

bool Connection::read_lane(std::span<std::byte> buffer, Handler& handler) {
  if (misses_lane()) return false;
  Lane& lane = lanes_[source_ - 1];
  if (!lane.answer_due.empty()) return false;
  const std::span<std::byte> place = direct_place();
  // Reads no more than the payload: what follows it belongs to another frame.
  const std::span<std::byte> into =
      place.empty() ? buffer.first(std::min(buffer.size(), left_)) : place;
  std::array<iovec, 1> pieces{iovec{into.data(), into.size()}};
  const ssize_t got = lane.bytes.receive(lane.fd.get(), pieces);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got < 0 && lose_path(source_)) return true;
  if (got <= 0) {
    break_off(lane_end(source_, got));
    return true;
  }
  const auto bytes = into.first(static_cast<std::size_t>(got));
  if (!place.empty()) {
    placed(bytes.size(), handler);
  } else {
    take_data(bytes, handler);
  }
  if (left_ > 0 || !spoiled_.empty()) return true;
  source_ = 0;
  feed_kept(handler);
  return true;
}

void Connection::push(std::size_t index, Handler& handler) {
  Lane& lane = lanes_[index];
  const auto number = static_cast<std::uint32_t>(index + 1);
  lane.blocked = false;
  if (lane.bytes.paused()) return;
  if (lane.bytes.repeats() && !lane.bytes.repeat(lane.fd.get())) {
    lane.blocked = errno == EAGAIN;
    if (!lane.blocked && !lose_path(number)) lose_lane(number);
    return;
  }
  while (!lane.out.empty()) {
    const ssize_t sent =
        send(lane.fd.get(), lane.out.data(), lane.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      lane.blocked = true;
      return;
    }
    if (sent < 0) {
      if (!lose_path(number)) lose_lane(number);
      return;
    }
    lane.bytes.sent(lane.out.first(static_cast<std::size_t>(sent)), lane.fd.get());
    lane.out = lane.out.subspan(static_cast<std::size_t>(sent));
    if (!lane.copy.empty()) continue;
    loans_.sent(number, static_cast<std::size_t>(sent),
                [&](Streamed& op) { handler.on_progress(op); });
  }
}

void Connection::lose_lane(std::uint32_t number) {
  write_error_ = lane_end(number, -1);
  // The peer must learn of it, and what the peer sent before it closed is read first. While
  // stalled, nothing is read.
  shutdown(fd(), SHUT_WR);
  if (stalled_) break_off(write_error_);
}

std::optional<std::uint32_t> Connection::choose_stream(std::size_t bytes) {
  // Headers of frames that began earlier come first.
  const bool idle =
      queue_.empty() && out_header_left_ == 0 && out_text_left_ == 0 && out_.bytes.empty();
  const bool first_has_room =
      idle && !bytes_.paused() && !bytes_.repeats() && unsent_of(fd()) < backlog_;
  blocked_ = !first_has_room;
  if (bytes < kLeastLaneFrame) return first_has_room ? std::optional(0U) : std::nullopt;
  std::optional<std::uint32_t> best;
  double least = 1;  // unsent bytes, as a part of the most that the stream may have
  const auto streams = static_cast<std::uint32_t>(lanes_.size() + 1);
  // Starts after the stream that was chosen last, so that streams with equally few unsent bytes
  // take turns.
  for (std::uint32_t i = 1; i <= streams; ++i) {
    const std::uint32_t stream = (last_chosen_ + i) % streams;
    double part = 0;
    if (stream > 0) {
      Lane& lane = lanes_[stream - 1];
      if (!lane.fd.valid() || !lane.out.empty()) continue;
      if (lane.bytes.paused() || lane.bytes.repeats()) continue;
      const int unsent = unsent_of(lane.fd.get());
      lane.blocked = unsent >= lane.backlog;
      part = static_cast<double>(unsent) / lane.backlog;
    } else {
      if (!first_has_room) continue;
      part = static_cast<double>(unsent_of(fd())) / backlog_;
    }
    if (part >= least) continue;
    least = part;
    best = stream;
  }
  return best;
}

bool Connection::flush_lanes(Handler& handler) {
  for (std::size_t i = 0; i < lanes_.size() && write_error_.empty(); ++i) push(i, handler);
  if (!connected()) return false;
  if (!write_error_.empty()) {
    // Nothing is sent any more, so no lane waits for room.
    for (Lane& lane : lanes_) lane.blocked = false;
    return false;
  }
  wire::Frame frame;
  Outgoing next;
  if (!handler.next_data(*this, frame, next)) return false;
  const std::optional<std::uint32_t> stream = choose_stream(next.bytes.size());
  if (!stream) return false;
  last_chosen_ = *stream;
  loans_.lend(*stream, next.op, next.send, next.bytes.size());
  // Frames that are queued have their places already, and are sent before this one.
  Proof proof = next_proof();
  if (*stream == 0) {
    out_ = next;
    prove_data(proof, next.bytes, sealed_out_);
    out_is_sealed_ = seals_out();
    put_header(frame, std::move(proof));
    return true;
  }
  Lane& lane = lanes_[*stream - 1];
  prove_data(proof, next.bytes, lane.sealed);
  lane.out = seals_out() ? std::span<const std::byte>(lane.sealed) : next.bytes;
  frame.kind = wire::FrameKind::kLaneData;
  frame.rank = *stream;
  queue_.push_back({frame, "", std::move(proof)});
  return true;
}

}  // namespace thalweg::net
