#include "net/parameter/stream.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {

Result<PsStream> PsStream::connect(const std::string& server, Time until) {
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(server));
  std::string name = "the server at " + server;
  THALWEG_TRY(Fd fd, connect_tcp(remote, name, until));
  prepare_stream(fd.get());
  return PsStream(std::move(fd), std::move(name), until);
}

Error PsStream::fail(const std::string& why) {
  failed_ = fmt::format("{} {}", name_, why);
  return Error(failed_);
}

Status PsStream::send(PsHeader header, const std::string& text, std::span<const std::byte> body) {
  if (!failed_.empty()) return Error(failed_);
  header.text = static_cast<std::uint32_t>(text.size());
  std::array<std::byte, kPsHeaderSize> bytes;
  encode_ps_header(header, bytes);
  THALWEG_TRY_STATUS(send_all(bytes));
  THALWEG_TRY_STATUS(send_all(std::as_bytes(std::span(text))));
  return send_all(body);
}

Result<PsHeader> PsStream::answer() {
  std::array<std::byte, kPsHeaderSize> bytes;
  THALWEG_TRY_STATUS(receive(bytes));
  PsHeader header;
  if (decode_ps_header(bytes, header) != WireError::kNone) return fail("does not make sense");
  if (header.kind != PsKind::kError) return header;
  std::string text(header.text, '\0');
  THALWEG_TRY_STATUS(receive(std::as_writable_bytes(std::span(text))));
  return Error(text).within(name_);
}

Result<PsHeader> PsStream::value(std::span<float> elements) {
  THALWEG_TRY(const PsHeader header, answer());
  if (header.kind != PsKind::kValue || header.elements != elements.size()) {
    return fail(
        fmt::format("sent {} elements; {} were expected", header.elements, elements.size()));
  }
  THALWEG_TRY_STATUS(receive(std::as_writable_bytes(elements)));
  return header;
}

Result<std::string> PsStream::bytes(PsKind kind, std::size_t most) {
  THALWEG_TRY(const PsHeader header, answer());
  if (header.kind != kind || header.bytes > most) return fail("answered something else");
  std::string text(header.bytes, '\0');
  THALWEG_TRY_STATUS(receive(std::as_writable_bytes(std::span(text))));
  return text;
}

Status PsStream::send_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN) {
      return fail(system_error("is gone", errno).message());
    } else if (!wait_for_socket(fd_.get(), POLLOUT, until_)) {
      return fail("takes nothing more");
    }
  }
  return ok_status();
}

Status PsStream::receive(std::span<std::byte> bytes) {
  if (!failed_.empty()) return Error(failed_);
  while (!bytes.empty()) {
    const ssize_t got = recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return fail("has closed the connection");
    } else if (errno != EAGAIN) {
      return fail(system_error("is gone", errno).message());
    } else if (!wait_for_socket(fd_.get(), POLLIN, until_)) {
      return fail("did not answer in time");
    }
  }
  return ok_status();
}

}  // namespace thalweg
