#include "net/ps/stream.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error_code.h"
#include "net/auth/greeting.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

constexpr std::size_t kSealAtOnce = std::size_t{1} << 18;  // bytes
constexpr std::size_t kOpenAtOnce = std::size_t{1} << 18;  // bytes
static_assert(kOpenAtOnce > 2 * wire::kMaxSealedBytes);    // more than a record
constexpr const char* kKeylessServer =
    "Start the server with --key-file, or this worker without THALWEG_KEY_FILE";

}  // namespace

Result<PsStream> PsStream::connect(const std::string& server, Time until, StreamChecks checks,
                                   const std::optional<wire::JobKey>& key) {
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(server));
  std::string name = "the server at " + server;
  THALWEG_TRY(Fd fd, connect_tcp(remote, name, until));
  prepare_stream(fd.get());
  const bool checked = !key && has_checks(checks, fd.get());
  PsStream stream(std::move(fd), std::move(name), until, checked);
  if (key) {
    THALWEG_TRY(stream.seal_,
                greet_server(stream.fd_.get(), derived_key(*key, KeyPurpose::kParameterServer),
                             stream.name_, kKeylessServer, until));
  }
  return stream;
}

Error PsStream::fail(ErrorCode code, const std::string& why) {
  failed_ = Error(code, fmt::format("{} {}", name_, why));
  return *failed_;
}

Status PsStream::send(wire::PsHeader header, const std::string& text,
                      std::span<const std::byte> body) {
  if (failed_) return *failed_;
  header.text = static_cast<std::uint32_t>(text.size());
  header.checks = header.kind == wire::PsKind::kHello && checks_;
  const std::span<const std::byte> name = std::as_bytes(std::span(text));
  std::array<std::byte, wire::kCheckedPsHeaderSize> bytes;
  std::span<const std::byte> sent(bytes);
  if (!greeted_ || checks_) {
    wire::encode_checked_ps_header(header, wire::crc32c(name, body), bytes);
  } else {
    const auto bare = std::span(bytes).first<wire::kPsHeaderSize>();
    wire::encode_ps_header(header, bare);
    sent = bare;
  }
  greeted_ = true;
  THALWEG_TRY_STATUS(send_all(sent));
  THALWEG_TRY_STATUS(send_all(name));
  return send_all(body);
}

Result<wire::PsHeader> PsStream::receive_header() {
  if (failed_) return *failed_;
  payload_.reset();
  wire::PsHeader header;
  wire::WireError error = wire::WireError::kNone;
  std::array<std::byte, wire::kCheckedPsHeaderSize> bytes;
  if (std::exchange(answered_, true) && !checks_) {
    const auto bare = std::span(bytes).first<wire::kPsHeaderSize>();
    THALWEG_TRY_STATUS(receive_all(bare));
    error = wire::decode_ps_header(bare, header);
  } else {
    THALWEG_TRY_STATUS(receive_all(bytes));
    std::uint32_t expected = 0;
    error = wire::decode_checked_ps_header(bytes, header, expected);
    if (error == wire::WireError::kChecksum) return changed();
    payload_ = {.left = header.payload(), .expected = expected};
  }
  if (error == wire::WireError::kVersion) {
    return fail(ErrorCode::kInternal,
                fmt::format("has sent an answer that does not begin with {}: its Thalweg is of "
                            "another version, or the byte changed on the way",
                            wire::kPsVersion));
  }
  if (error != wire::WireError::kNone) return fail(ErrorCode::kInternal, "does not make sense");
  return header;
}

Error PsStream::changed() {
  return fail(ErrorCode::kInternal,
              "has sent an answer whose bytes changed on the way: its CRC-32C is wrong");
}

Result<wire::PsHeader> PsStream::answer() {
  THALWEG_TRY(const wire::PsHeader header, receive_header());
  if (header.kind != wire::PsKind::kError) return header;
  std::string text(header.text, '\0');
  THALWEG_TRY_STATUS(receive(std::as_writable_bytes(std::span(text))));
  const auto rank = header.worker == wire::kNoPsWorker
                        ? std::nullopt
                        : std::optional(static_cast<int>(header.worker));
  return Error(error_code_of(header.clock), text, rank).within(name_);
}

Result<wire::PsHeader> PsStream::value(std::span<float> elements) {
  THALWEG_TRY(const wire::PsHeader header, answer());
  if (header.kind != wire::PsKind::kValue || header.elements != elements.size()) {
    return fail(ErrorCode::kInternal, fmt::format("sent {} elements; {} were expected",
                                                  header.elements, elements.size()));
  }
  THALWEG_TRY_STATUS(receive(std::as_writable_bytes(elements)));
  return header;
}

Result<std::string> PsStream::bytes(wire::PsKind kind, std::size_t most) {
  THALWEG_TRY(const wire::PsHeader header, answer());
  if (header.kind != kind || header.bytes > most) {
    return fail(ErrorCode::kInternal, "answered something else");
  }
  std::string text(header.bytes, '\0');
  THALWEG_TRY_STATUS(receive(std::as_writable_bytes(std::span(text))));
  return text;
}

Status PsStream::send_all(std::span<const std::byte> bytes) {
  if (!seal_) return send_raw(bytes);
  std::vector<std::byte> sealed;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kSealAtOnce));
    bytes = bytes.subspan(part.size());
    sealed.clear();
    seal_->out.seal(part, sealed);
    THALWEG_TRY_STATUS(send_raw(sealed));
  }
  return ok_status();
}

Status PsStream::send_raw(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN) {
      return fail(ErrorCode::kPeerLost, system_error("is gone", errno).message());
    } else if (!wait_for_socket(fd_.get(), POLLOUT, until_)) {
      return fail(ErrorCode::kTimeout, "takes nothing more");
    }
  }
  return ok_status();
}

Status PsStream::receive(std::span<std::byte> bytes) {
  if (failed_) return *failed_;
  THALWEG_TRY_STATUS(receive_all(bytes));
  if (!payload_) return ok_status();
  payload_->sum.add(bytes);
  payload_->left -= std::min(payload_->left, bytes.size());
  if (payload_->left == 0 && payload_->sum.value() != payload_->expected) return changed();
  return ok_status();
}

Status PsStream::receive_all(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    if (seal_) {
      THALWEG_TRY_STATUS(open_more());
      const std::size_t size = std::min(bytes.size(), opened_.size() - taken_);
      std::ranges::copy(std::span(opened_).subspan(taken_, size), bytes.begin());
      taken_ += size;
      bytes = bytes.subspan(size);
    } else {
      THALWEG_TRY(const std::size_t size, receive_some(bytes));
      bytes = bytes.subspan(size);
    }
  }
  return ok_status();
}

Status PsStream::open_more() {
  while (taken_ == opened_.size()) {
    opened_.clear();
    taken_ = 0;
    sealed_.resize(kOpenAtOnce);
    THALWEG_TRY(const std::size_t got, receive_some(std::span(sealed_).subspan(unopened_)));
    std::span<const std::byte> left = std::span(sealed_).first(unopened_ + got);
    const wire::WireError error = seal_->in.open(left, opened_);
    unopened_ = left.size();
    std::ranges::copy(left, sealed_.begin());
    if (error != wire::WireError::kNone && error != wire::WireError::kShort) {
      return fail(ErrorCode::kInternal,
                  "has sent an answer whose bytes changed on the way: its AES-GCM tag is wrong");
    }
  }
  return ok_status();
}

Result<std::size_t> PsStream::receive_some(std::span<std::byte> bytes) {
  while (true) {
    const ssize_t got = recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) {
      return fail(ErrorCode::kPeerLost, "has closed the connection");
    } else if (errno != EAGAIN) {
      return fail(ErrorCode::kPeerLost, system_error("is gone", errno).message());
    } else if (!wait_for_socket(fd_.get(), POLLIN, until_)) {
      return fail(ErrorCode::kTimeout, "did not answer in time");
    }
  }
}

}  // namespace thalweg::net
