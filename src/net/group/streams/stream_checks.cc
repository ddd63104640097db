#include "net/group/streams/stream_checks.h"

#include <sys/socket.h>

#include <span>
#include <utility>

#include "base/check.h"

namespace thalweg::net {

std::unique_ptr<wire::StreamSeal> seal_of(const std::optional<StreamSecrets>& secrets) {
  return secrets ? std::make_unique<wire::StreamSeal>(secrets->out, secrets->in) : nullptr;
}

std::optional<GreetedStream> say_hello(DialedStream dialed, proto::HelloFrame hello,
                                       StreamChecks checks) {
  CheckedStream made{.fd = std::move(dialed.fd), .seal = seal_of(dialed.secrets)};
  made.check = made.seal ? wire::FrameCheck::kSealed : check_of(checks, made.fd.get());
  hello.check = made.check;
  // A hello that is not sealed always has checksums.
  const std::vector<std::byte> bytes =
      frame_bytes(proto::wire_frame(hello), "",
                  made.seal ? made.check : wire::FrameCheck::kChecksum, made.seal.get());
  // The hello fits the socket's buffer.
  if (send(made.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != std::ssize(bytes)) {
    return std::nullopt;
  }
  return GreetedStream{std::move(made), dialed.answer, dialed.streams};
}

std::vector<std::byte> frame_bytes(wire::Frame frame, std::string text, wire::FrameCheck check,
                                   wire::StreamSeal* seal) {
  CHECK((check == wire::FrameCheck::kSealed) == (seal != nullptr));
  frame.length = static_cast<std::uint32_t>(text.size());
  std::vector<std::byte> bytes;
  const auto append = [&](const auto& more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  const std::span<std::byte> payload = std::as_writable_bytes(std::span(text));
  switch (check) {
    case wire::FrameCheck::kNone:
      append(wire::encode_frame(frame));
      break;
    case wire::FrameCheck::kChecksum:
      append(wire::encode_checked_frame(frame, wire::crc32c(payload)));
      break;
    case wire::FrameCheck::kSealed: {
      wire::FrameSealer::Ticket ticket = seal->out.next();
      if (!payload.empty()) seal->out.seal_payload(ticket, payload, payload);
      append(seal->out.seal_header(std::move(ticket), frame));
      break;
    }
  }
  append(payload);
  return bytes;
}

}  // namespace thalweg::net
