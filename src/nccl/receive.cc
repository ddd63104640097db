// The receiving direction (connection.h).
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "nccl/connection.h"
#include "net/io/system.h"

namespace thalweg::nccl {
namespace {

// NCCL's thread reads short messages through a buffer, a few of them by one call. Workers read into
// NCCL's memory, and ahead only the header of the next piece.
constexpr std::size_t kReadAhead = 16 << 10;

}  // namespace

class ReceiveConnection::Receiver final : public Stream {
 public:
  Receiver(net::Fd fd, ReceiveConnection& connection, std::size_t buffer)
      : Stream(std::move(fd)), connection_(connection), buffer_(buffer) {}

  Progress advance() override;
  void on_refused(const Error& error) override { connection_.fail(error); }
  [[nodiscard]] std::uint32_t events() const override { return EPOLLIN; }

 private:
  enum class Parsed : std::uint8_t { kNeedsBytes, kWaits };
  // Uses up what is in the buffer, as far as it goes.
  Parsed parse();
  // Returns the bytes read; 0 if there is nothing to read now, or ever.
  std::size_t read();
  void moved(std::size_t bytes);

  ReceiveConnection& connection_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // what of the buffer is not used up
  std::size_t end_ = 0;
  Request* request_ = nullptr;  // of the piece that arrives; null between pieces
  std::byte* to_ = nullptr;     // where its next byte belongs
  std::size_t left_ = 0;        // its bytes that have not come
  std::uint32_t length_ = 0;
  bool ended_ = false;
  bool drained_ = false;  // the last read got less than it asked for
};

Stream::Progress ReceiveConnection::Receiver::advance() {
  for (std::size_t moved = 0; moved < kBytesOfTurn;) {
    if (connection_.failed() || ended_ || parse() == Parsed::kWaits) return Progress::kWaiting;
    const std::size_t got = read();
    if (got == 0) return Progress::kWaiting;
    moved += got;
    // The socket was empty a moment ago. What comes later, an end as well, makes it ready again.
    if (drained_ && !hung_up()) {
      parse();
      return Progress::kWaiting;
    }
  }
  return Progress::kMore;
}

ReceiveConnection::Receiver::Parsed ReceiveConnection::Receiver::parse() {
  while (!connection_.failed()) {
    if (request_ != nullptr) {
      const std::size_t here = std::min(left_, end_ - begin_);
      if (here > 0) std::memcpy(to_, buffer_.data() + begin_, here);
      begin_ += here;
      moved(here);
      if (request_ != nullptr) return Parsed::kNeedsBytes;
      continue;
    }
    if (end_ - begin_ < kPieceHeaderSize) return Parsed::kNeedsBytes;
    const std::optional<Piece> piece =
        decode_piece(std::span(buffer_).subspan(begin_).first<kPieceHeaderSize>());
    if (!piece) {
      connection_.fail(
          Error(ErrorCode::kInternal,
                fmt::format("{} sent what is no piece of a message", connection_.peer())));
      return Parsed::kWaits;
    }
    Result<Request*> request = connection_.take(*piece, *this);
    if (!request.ok()) {
      connection_.fail(request.error());
      return Parsed::kWaits;
    }
    if (*request == nullptr) return Parsed::kWaits;
    begin_ += kPieceHeaderSize;
    request_ = *request;
    to_ = request_->data + piece->offset;
    left_ = length_ = piece->length;
    if (left_ == 0) moved(0);
  }
  return Parsed::kWaits;
}

void ReceiveConnection::Receiver::moved(std::size_t bytes) {
  to_ += bytes;
  left_ -= bytes;
  if (left_ > 0) return;
  Request* const request = std::exchange(request_, nullptr);
  request->left.fetch_sub(weight_of(length_), std::memory_order_release);
}

std::size_t ReceiveConnection::Receiver::read() {
  // Less than a header is left in the buffer.
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  iovec parts[2];
  parts[0] = {.iov_base = to_, .iov_len = left_};
  parts[1] = {.iov_base = buffer_.data() + end_, .iov_len = buffer_.size() - end_};
  msghdr message = {};
  message.msg_iov = left_ > 0 ? parts : parts + 1;
  message.msg_iovlen = left_ > 0 ? 2 : 1;
  ssize_t got = -1;
  do {
    got = recvmsg(fd(), &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    if (errno != EAGAIN) {
      connection_.fail(
          net::system_error(fmt::format("lost the connection to {}", connection_.peer()), errno));
    }
    return 0;
  }
  if (got == 0) {
    ended_ = true;
    if (request_ != nullptr || end_ > 0) {
      connection_.fail(
          Error(ErrorCode::kPeerLost,
                fmt::format("{} is gone in the middle of a message", connection_.peer())));
    } else {
      connection_.on_end_of_stream();
    }
    return 0;
  }
  const auto bytes = static_cast<std::size_t>(got);
  drained_ = bytes < left_ + buffer_.size() - end_;
  const std::size_t direct = std::min(bytes, left_);
  end_ += bytes - direct;
  if (direct > 0) moved(direct);
  return bytes;
}

ReceiveConnection::ReceiveConnection(std::vector<net::Fd> streams, Options options)
    : Connection(std::move(options)), open_(streams.size()) {
  for (net::Fd& fd : streams) {
    const bool own = streams_.empty() || options_.pool == nullptr;
    streams_.push_back(
        std::make_unique<Receiver>(std::move(fd), *this, own ? kReadAhead : kPieceHeaderSize));
  }
  early_.reserve(streams_.size());
  woken_.reserve(streams_.size());
  start();
}

Result<Request*> ReceiveConnection::receive(void* data, std::size_t size) {
  if (failed()) return failure();
  Request* request = nullptr;
  {
    const std::lock_guard lock(mutex_);
    request = next_request();
    if (request == nullptr) return request;
    request->data = static_cast<std::byte*>(data);
    request->size = size;
    request->left.store(1, std::memory_order_relaxed);  // until its first piece tells
    woken_.clear();
    woken_.swap(early_);
  }
  for (Receiver* const receiver : woken_) receiver->worker()->wake(*receiver);
  return request;
}

Result<Request*> ReceiveConnection::take(const Piece& piece, Receiver& receiver) {
  const std::lock_guard lock(mutex_);
  if (piece.message >= posted_) {
    const bool told = std::ranges::find(early_, &receiver) != early_.end();
    if (receiver.worker() != nullptr && !told) early_.push_back(&receiver);
    return nullptr;
  }
  Request& request = slot(piece.message);
  const bool known = request.posted && request.message == piece.message;
  if (known && !request.sized) {
    if (piece.size > request.size) {
      return Error(ErrorCode::kMismatch, fmt::format("{} sent {} bytes where {} were asked for",
                                                     peer(), piece.size, request.size));
    }
    request.size = piece.size;
    request.sized = true;
    request.left.store(weight_of(piece.size), std::memory_order_relaxed);
  }
  // An empty message is one piece.
  const bool again = known && (piece.size == 0 ? request.begun++ > 0
                                               : (request.begun += piece.length) > piece.size);
  if (!known || request.size != piece.size || again) {
    return Error(ErrorCode::kInternal,
                 fmt::format("{} sent a part of message {} twice", peer(), piece.message));
  }
  return &request;
}

void ReceiveConnection::on_end_of_stream() {
  {
    const std::lock_guard lock(mutex_);
    if (--open_ > 0) return;
  }
  // Requests that are not done now never will be.
  fail(Error(ErrorCode::kPeerLost, fmt::format("{} has closed the connection", peer())));
}

}  // namespace thalweg::nccl
