#include "net/group/streams/connection.h"

#include <fmt/core.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace thalweg::net {
namespace {

// Bytes that are read along with a header. Small tensors then come whole with one call, and only
// little of a large one takes the detour through the buffer.
constexpr std::size_t kReadAhead = 16 << 10;
// Fewer bytes than this are not worth a system call of their own.
constexpr std::size_t kLeastDirect = 4096;
// Bytes that are sent before this side reads, which reads as many at once. So what two ranks of one
// host have sent each other and not read stays in their caches (docs/collectives.md).
constexpr std::size_t kMostSent = std::size_t{512} << 10;

}  // namespace

void Connection::break_off(std::string why) {
  if (!over_.empty()) return;
  over_ = std::move(why);
  fd_.reset();
  queue_.clear();
  out_ = {};
  target_ = nullptr;
  source_ = 0;
  lanes_.clear();
  loans_.clear();
}

void Connection::drop_data(Handler& handler) {
  drop_data_ = true;
  target_ = nullptr;
  if (!out_.bytes.empty()) {
    const std::span<const std::byte> rest = unsent_data();
    out_text_.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
    out_text_left_ = out_text_.size();
    out_ = {};
  }
  for (Lane& lane : lanes_) {
    if (lane.out.empty() || !lane.copy.empty()) continue;
    lane.copy.assign(lane.out.begin(), lane.out.end());
    lane.out = lane.copy;
  }
  loans_.clear();
  if (!stalled_) return;
  stalled_ = false;
  feed_kept(handler);
}

void Connection::feed_kept(Handler& handler) {
  if (stalled_ || source_ != 0) return;
  const std::vector<std::byte> kept = std::exchange(kept_, {});
  feed_or_keep(kept, handler);
}

std::span<std::byte> Connection::direct_place() {
  if (target_ == nullptr || left_ == 0) return {};
  const std::span<std::byte> place = checks_in() ? hold() : target_->executor->place(frame_.index);
  const std::size_t most = std::min(place.size(), left_);
  return most >= kLeastDirect ? place.first(most) : std::span<std::byte>();
}

void Connection::placed(std::size_t size, Handler& handler) {
  if (checks_in()) {
    held(size, handler);
    return;
  }
  left_ -= size;
  target_->executor->placed(frame_.index, size);
  handler.on_progress(*target_);
}

bool Connection::read(std::span<std::byte> buffer, Handler& handler) {
  if (has_lanes()) read_proofs();
  if (stalled_ || !connected()) return false;
  if (!spoiled_.empty()) return discard(buffer);
  if (reads_shared_) return read_shared(handler);
  if (source_ != 0) return read_lane(buffer, handler);
  const std::span<std::byte> place = direct_place();
  // After a place that is too small for the payload's rest nothing else can be read.
  std::size_t more = header_size_in() + kReadAhead;
  if (place.empty()) more += left_;
  if (!place.empty() && place.size() < left_) more = 0;
  const std::span<std::byte> ahead = buffer.first(std::min(buffer.size(), more));
  std::array<iovec, 2> pieces{iovec{place.data(), place.size()}, iovec{ahead.data(), ahead.size()}};
  const ssize_t got = bytes_.receive(fd(), std::span(pieces).subspan(place.empty() ? 1 : 0));
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return false;
    if (lose_path(0)) return true;
    break_off(std::generic_category().message(errno));
    return true;
  }
  if (got == 0 && !write_error_.empty()) {
    break_off(write_error_);
    return true;
  }
  if (got == 0) {
    break_off("its connection closed");
    return true;
  }
  const auto size = static_cast<std::size_t>(got);
  const std::size_t direct = std::min(size, place.size());
  if (direct > 0) placed(direct, handler);
  if (size > direct) feed_or_keep(ahead.first(size - direct), handler);
  return true;
}

void Connection::feed_or_keep(std::span<const std::byte> bytes, Handler& handler) {
  const std::size_t taken = feed(bytes, handler);
  if (!stalled_ && source_ == 0) return;
  bytes = bytes.subspan(taken);
  kept_.assign(bytes.begin(), bytes.end());
}

std::span<const std::byte> Connection::check_answer(std::span<const std::byte> bytes) {
  if (answer_due_.empty()) return bytes;
  const std::size_t size = std::min(bytes.size(), answer_due_.size());
  if (!wire::same_secret(bytes.first(size), std::span(answer_due_).first(size))) {
    break_off("it does not hold the job key");
    return {};
  }
  answer_due_.erase(answer_due_.begin(), answer_due_.begin() + static_cast<std::ptrdiff_t>(size));
  return bytes.subspan(size);
}

std::size_t Connection::feed(std::span<const std::byte> bytes, Handler& handler) {
  const std::size_t all = bytes.size();
  bytes = check_answer(bytes);
  while (!bytes.empty() && connected() && spoiled_.empty()) {
    if (left_ == 0) {
      const std::size_t size = std::min(bytes.size(), header_size_in() - header_size_);
      std::ranges::copy(bytes.first(size),
                        header_.begin() + static_cast<std::ptrdiff_t>(header_size_));
      header_size_ += size;
      bytes = bytes.subspan(size);
      if (header_size_ < header_size_in()) break;
      begin_frame(handler);
      if (stalled_ || frame_.kind == wire::FrameKind::kShared || source_ != 0) break;
      continue;
    }
    const std::span<const std::byte> part = bytes.first(std::min(bytes.size(), left_));
    bytes = bytes.subspan(part.size());
    if (frame_.kind == wire::FrameKind::kData) {
      take_data(part, handler);
    } else {
      take_text(part, handler);
    }
  }
  return all - bytes.size();
}

void Connection::take_data(std::span<const std::byte> bytes, Handler& handler) {
  if (checks_in() && target_ != nullptr) {
    take_checked(bytes, handler);
    return;
  }
  left_ -= bytes.size();
  if (target_ == nullptr) return;
  target_->executor->consume(frame_.index, bytes);
  handler.on_progress(*target_);
}

void Connection::begin_frame(Handler& handler) {
  header_size_ = 0;
  const wire::WireError error = decode_header();
  // The hello had the same version.
  const bool changed =
      checks_in() && (error == wire::WireError::kChecksum || error == wire::WireError::kVersion);
  if (changed) {
    spoil("the header of a frame", handler);
    return;
  }
  if (error != wire::WireError::kNone) {
    break_off(fmt::format("it sent bytes that are not a frame ({})", wire::name_of(error)));
    return;
  }
  if (frame_.kind == wire::FrameKind::kShared) {
    if (!shared_ || reads_shared_ || frame_.length > 0) {
      break_off("it uses shared memory that does not exist");
      return;
    }
    reads_shared_ = true;
  }
  target_ = nullptr;
  sum_ = {};
  hold_ = {};
  if (frame_.kind == wire::FrameKind::kLaneData) {
    if (shared_) {
      break_off("it uses a lane besides shared memory");
      return;
    }
    source_ = std::exchange(frame_.rank, 0);
    frame_.kind = wire::FrameKind::kData;
  }
  if (frame_.kind != wire::FrameKind::kData) {
    left_ = frame_.length;
    text_.clear();
    if (left_ == 0) handler.on_frame(*this, frame_, text_);
    return;
  }
  if (!drop_data_) {
    target_ = handler.on_data(*this, frame_);
    if (!connected()) return;
    stalled_ = target_ == nullptr && !drop_data_;
  }
  left_ = frame_.length;
}

void Connection::resume(Handler& handler) {
  if (!stalled_) return;
  target_ = handler.on_data(*this, frame_);
  if (!connected() || (target_ == nullptr && !drop_data_)) return;
  stalled_ = false;
  feed_kept(handler);
}

void Connection::queue(const wire::Frame& frame, const std::string& text) {
  wire::Frame whole = frame;
  const std::string cut = text.substr(0, wire::kMaxFrameText);
  whole.length = static_cast<std::uint32_t>(cut.size());
  queue_.push_back({whole, cut, next_proof()});
}

bool Connection::delivered() const {
  if (!connected() || !write_error_.empty()) return true;
  if (out_header_left_ != 0 || out_text_left_ != 0 || !queue_.empty()) return false;
  // The peer reads the lanes' payloads before the frames that follow them.
  if (std::ranges::any_of(lanes_, [](const Lane& lane) { return !lane.out.empty(); })) return false;
  if (bytes_.repeats() ||
      std::ranges::any_of(lanes_, [](const Lane& lane) { return lane.bytes.repeats(); })) {
    return false;
  }
  const auto is_with_peer = [](int fd) {
    int unsent = 0;
    return ioctl(fd, SIOCOUTQ, &unsent) != 0 || unsent == 0;
  };
  const bool lanes_are = std::ranges::all_of(
      lanes_, [&](const Lane& lane) { return !lane.fd.valid() || is_with_peer(lane.fd.get()); });
  if (lanes_are && is_with_peer(fd())) return true;
  // A peer that closed the socket takes nothing more.
  pollfd closed{fd(), 0, 0};
  return poll(&closed, 1, 0) > 0;
}

bool Connection::prepare(Handler& handler) {
  wire::Frame frame;
  Proof proof;
  if (!queue_.empty()) {
    frame = queue_.front().frame;
    proof = std::move(queue_.front().proof);
    out_text_ = std::move(queue_.front().text);
    out_text_left_ = out_text_.size();
    queue_.pop_front();
    const std::span<std::byte> text = std::as_writable_bytes(std::span(out_text_));
    if (!text.empty()) prove_payload(proof, text, text);
  } else if (!has_lanes() && handler.next_data(*this, frame, out_)) {
    proof = next_proof();
    prove_data(proof, out_.bytes, sealed_out_);
    out_is_sealed_ = seals_out();
  } else {
    return false;
  }
  says_shared_ = frame.kind == wire::FrameKind::kShared;
  put_header(frame, std::move(proof));
  return true;
}

void Connection::flush(Handler& handler) {
  do {
    flush_first(handler);
  } while (has_lanes() && flush_lanes(handler));
}

void Connection::flush_first(Handler& handler) {
  blocked_ = false;
  std::size_t written = 0;
  while (connected() && write_error_.empty() && repeat_first()) {
    const bool idle = out_header_left_ == 0 && out_text_left_ == 0 && out_.bytes.empty();
    if (idle) {
      writes_shared_ = writes_shared_ || std::exchange(says_shared_, false);
      if (!prepare(handler)) break;
    }
    std::array<iovec, 2> pieces{};
    std::size_t count = 0;
    if (out_header_left_ > 0) {
      pieces[count++] = {&out_header_[out_header_size_ - out_header_left_], out_header_left_};
    }
    if (out_text_left_ > 0) {
      pieces[count++] = {&out_text_[out_text_.size() - out_text_left_], out_text_left_};
    } else if (!out_.bytes.empty()) {
      const std::size_t most = writes_shared_ ? out_.bytes.size() : kMostSent - written;
      // The kernel only reads what is sent; iovec has no const.
      pieces[count++] = {const_cast<std::byte*>(unsent_data().data()),  // NOLINT
                         std::min(out_.bytes.size(), most)};
    }
    const std::size_t sent = send_pieces(std::span(pieces).first(count));
    if (sent == 0) break;
    account(sent, handler);
    written += sent;
    // A full ring has room again at once, while its reader reads. This side must read now, or what
    // is sent to it piles up.
    const bool left = out_header_left_ + out_text_left_ + out_.bytes.size() > 0;
    if (writes_shared_ ? left : written >= kMostSent) {
      blocked_ = true;
      break;
    }
  }
  if (writes_shared_ && connected() && shared_->out().must_wake_reader()) ring_bell();
}

std::size_t Connection::send_pieces(std::span<iovec> pieces) {
  if (writes_shared_) {
    const std::size_t sent = shared_->out().write(pieces);
    blocked_ = sent == 0;
    if (shared_->out().broken()) break_off("it wrote nonsense into the shared memory");
    // The peer has closed the socket and makes no room any more, and while stalled this side does
    // not read the ring to its end. So neither side would end the connection.
    if (blocked_ && stalled_ && deaf()) break_off(end_);
    return sent;
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t sent = sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      note_sent(pieces, static_cast<std::size_t>(sent));
      return static_cast<std::size_t>(sent);
    }
    if (sent < 0 && errno == EINTR) continue;
    blocked_ = errno == EAGAIN;
    if (blocked_ || lose_path(0)) return 0;
    write_error_ = std::generic_category().message(errno);
    // The peer may have sent a reason before it closed the stream, which is read first. While
    // stalled, nothing is read.
    if (stalled_) break_off(write_error_);
    return 0;
  }
}

void Connection::account(std::size_t sent, Handler& handler) {
  const std::size_t header = std::min(sent, out_header_left_);
  out_header_left_ -= header;
  sent -= header;
  if (sent == 0) return;
  if (out_text_left_ > 0) {
    CHECK(sent <= out_text_left_);
    out_text_left_ -= sent;
    return;
  }
  out_.bytes = out_.bytes.subspan(sent);
  if (has_lanes()) {
    loans_.sent(0, sent, [&](Streamed& op) { handler.on_progress(op); });
    return;
  }
  out_.op->executor->sent(out_.send, sent);
  handler.on_progress(*out_.op);
}

}  // namespace thalweg::net
