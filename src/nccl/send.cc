// The sending direction (connection.h).
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "nccl/connection.h"
#include "net/io/system.h"

namespace thalweg::nccl {
namespace {

// Pieces are as large as lets every stream have one, up to this size. Smaller ones cost more
// calls than they gain; larger ones keep a stream busy while others have nothing to do.
constexpr std::size_t kMostPiece = 256 << 10;

}  // namespace

class SendConnection::Sender final : public Stream {
 public:
  Sender(net::Fd fd, SendConnection& connection) : Stream(std::move(fd)), connection_(connection) {}

  Progress advance() override;
  void on_refused(const Error& error) override { connection_.fail(error); }
  [[nodiscard]] std::uint32_t events() const override { return EPOLLOUT; }

 private:
  // Returns false if the socket takes no more now, or is broken.
  bool write();

  SendConnection& connection_;
  std::optional<Claim> claim_;
  PieceHeader header_ = {};
  std::size_t written_ = 0;  // of header and piece together
};

Stream::Progress SendConnection::Sender::advance() {
  if (connection_.failed()) return Progress::kWaiting;
  if (hung_up()) {
    connection_.fail(Error(ErrorCode::kPeerLost,
                           fmt::format("{} has closed the connection", connection_.peer())));
    return Progress::kWaiting;
  }
  for (std::size_t moved = 0; moved < kBytesOfTurn;) {
    if (!claim_) {
      claim_ = connection_.claim(*this);
      if (!claim_) return Progress::kWaiting;
      header_ = encode_piece(claim_->piece);
      written_ = 0;
    }
    if (!write()) return Progress::kWaiting;
    const std::uint32_t length = claim_->piece.length;
    moved += kPieceHeaderSize + length;
    Request* const request = claim_->request;
    const bool helped = claim_->help;
    claim_.reset();
    request->left.fetch_sub(weight_of(length), std::memory_order_release);
    // NCCL's thread has other work, and asks again soon.
    if (helped) return Progress::kMore;
  }
  return Progress::kMore;
}

bool SendConnection::Sender::write() {
  const std::size_t all = kPieceHeaderSize + claim_->piece.length;
  while (written_ < all) {
    const std::size_t of_piece = written_ - std::min(written_, kPieceHeaderSize);
    iovec parts[2];
    parts[0] = {.iov_base = header_.data() + std::min(written_, kPieceHeaderSize),
                .iov_len = kPieceHeaderSize - std::min(written_, kPieceHeaderSize)};
    parts[1] = {.iov_base = claim_->request->data + claim_->piece.offset + of_piece,
                .iov_len = claim_->piece.length - of_piece};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) {
        connection_.fail(
            net::system_error(fmt::format("cannot send to {}", connection_.peer()), errno));
      }
      return false;
    }
    written_ += static_cast<std::size_t>(sent);
  }
  return true;
}

SendConnection::SendConnection(std::vector<net::Fd> streams, Options options)
    : Connection(std::move(options)) {
  for (net::Fd& fd : streams) {
    streams_.push_back(std::make_unique<Sender>(std::move(fd), *this));
  }
  if (options_.pool != nullptr) workers_ = streams_.size() - 1;
  idle_.reserve(streams_.size());
  woken_.reserve(streams_.size());
  start();
}

Result<Request*> SendConnection::send(const void* data, std::size_t size) {
  if (failed()) return failure();
  Request* request = nullptr;
  {
    const std::lock_guard lock(mutex_);
    request = next_request();
    if (request == nullptr) return request;
    // Streams only read from it.
    request->data = static_cast<std::byte*>(const_cast<void*>(data));
    request->size = size;
    request->inlined = size == 0 || (workers_ > 0 && size <= options_.inline_bytes);
    request->left.store(weight_of(size), std::memory_order_relaxed);
    // As many streams as there are pieces, and no stream more.
    const std::size_t least = std::max<std::size_t>(options_.piece_bytes, 1);
    const std::size_t pieces = request->inlined ? 0 : (size + least - 1) / least;
    woken_.clear();
    while (woken_.size() < pieces && !idle_.empty()) {
      woken_.push_back(idle_.back());
      idle_.pop_back();
    }
  }
  for (Sender* const sender : woken_) sender->worker()->wake(*sender);
  drive();
  return request;
}

std::optional<SendConnection::Claim> SendConnection::claim(Sender& sender) {
  const std::lock_guard lock(mutex_);
  const bool own = sender.worker() == nullptr;  // NCCL's thread
  const bool help = own && workers_ > 0;
  Request* request = own ? next_inlined() : nullptr;
  if (request == nullptr) request = next_dealt();
  if (request == nullptr) {
    if (!own) idle_.push_back(&sender);
    return std::nullopt;
  }
  const std::size_t least = std::max<std::size_t>(options_.piece_bytes, 1);
  const std::size_t takers = workers_ + 1;
  const std::size_t share =
      std::clamp((request->size + takers - 1) / takers, least, std::max(least, kMostPiece));
  const std::size_t most = help ? least : share;
  const std::size_t length =
      request->inlined ? request->size : std::min(most, request->size - request->begun);
  Claim claim{.request = request,
              .piece = {.message = request->message,
                        .size = request->size,
                        .offset = request->begun,
                        .length = static_cast<std::uint32_t>(length)},
              .help = help && !request->inlined};
  request->begun += length;
  if (request->inlined) inlined_ = request->message + 1;
  return claim;
}

Request* SendConnection::next_inlined() {
  for (; inlined_ < posted_; ++inlined_) {
    Request& request = slot(inlined_);
    if (request.message == inlined_ && request.posted && request.inlined) return &request;
  }
  return nullptr;
}

Request* SendConnection::next_dealt() {
  for (; dealt_ < posted_; ++dealt_) {
    Request& request = slot(dealt_);
    if (request.message == dealt_ && request.posted && !request.inlined &&
        request.begun < request.size) {
      return &request;
    }
  }
  return nullptr;
}

}  // namespace thalweg::nccl
