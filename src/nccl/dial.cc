// The sender's side of a rendezvous (rendezvous.h).
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "nccl/rendezvous.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::nccl {

Result<std::unique_ptr<Dial>> Dial::start(const Handle& handle, const Settings& settings,
                                          const Device& device, Time now) {
  if (handle.keyed != settings.key.has_value()) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("{} holds {} job key, and this process {} (THALWEG_KEY_FILE)",
                             handle.address.to_string(), handle.keyed ? "a" : "no",
                             settings.key ? "does" : "does not"));
  }
  std::unique_ptr<Dial> dial(new Dial(handle, now + settings.timeout));
  dial->peer_ = handle.address.to_string();
  dial->connection_ = net::random_number();
  if (settings.key) dial->key_.emplace(*settings.key, kKeySignature, 0);
  dial->lines_.resize(static_cast<std::size_t>(settings.streams));
  const bool choose =
      settings.devices.size() > 1 && device.address.family() == handle.address.family();
  for (Line& line : dial->lines_) {
    THALWEG_TRY_STATUS(dial->open(line, choose ? &device : nullptr));
  }
  return dial;
}

Status Dial::open(Line& line, const Device* from) {
  line.fd =
      net::Fd(socket(handle_.address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!line.fd.valid()) return net::system_error("cannot make a socket", errno);
  if (from != nullptr) {
    net::set_option(line.fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (bind(line.fd.get(), from->address.get(), from->address.size()) != 0) {
      return net::system_error(fmt::format("cannot send from {}", from->address.host()), errno);
    }
  }
  if (connect(line.fd.get(), handle_.address.get(), handle_.address.size()) != 0 &&
      errno != EINPROGRESS) {
    return net::system_error(fmt::format("cannot connect to {}", peer_), errno);
  }
  return ok_status();
}

Result<std::optional<Streams>> Dial::advance(Time now) {
  bool complete = true;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    Line& line = lines_[i];
    if (!line.greeted) THALWEG_TRY_STATUS(greet(line, i));
    THALWEG_TRY(const bool there, read_answer(line));
    complete = complete && there;
  }
  if (!complete) {
    if (now < until_) return std::optional<Streams>();
    return Error(ErrorCode::kTimeout,
                 fmt::format("{} did not answer in time (THALWEG_NCCL_TIMEOUT)", peer_));
  }
  Streams streams{.fds = {}, .peer = peer_};
  for (Line& line : lines_) streams.fds.push_back(std::move(line.fd));
  return std::optional(std::move(streams));
}

Status Dial::greet(Line& line, std::size_t number) {
  pollfd item{line.fd.get(), POLLOUT, 0};
  if (poll(&item, 1, 0) <= 0) return ok_status();
  int failure = 0;
  socklen_t size = sizeof(failure);
  getsockopt(line.fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
  if (failure != 0) return net::system_error(fmt::format("cannot connect to {}", peer_), failure);
  net::prepare_stream(line.fd.get());
  StreamHello hello{.keyed = key_.has_value(),
                    .stream = static_cast<std::uint8_t>(number),
                    .streams = static_cast<std::uint8_t>(lines_.size()),
                    .challenge = handle_.challenge,
                    .connection = connection_};
  if (key_) {
    const net::StreamKey::Opening opening = key_->open(handle_.challenge, net::random_number());
    hello.opening = opening.bytes;
    line.expected = opening.answer;
  }
  const StreamHelloBytes bytes = encode_hello(hello);
  // It fits the socket's buffer, which is empty.
  if (send(line.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(bytes.size())) {
    return net::system_error(fmt::format("cannot greet {}", peer_), errno);
  }
  line.greeted = true;
  return ok_status();
}

Result<bool> Dial::read_answer(Line& line) {
  if (!line.greeted) return false;
  while (line.got < line.answer.size()) {
    const ssize_t got =
        recv(line.fd.get(), &line.answer[line.got], line.answer.size() - line.got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got < 0) return net::system_error(fmt::format("{} did not answer", peer_), errno);
    if (got == 0) {
      return Error(ErrorCode::kPeerLost,
                   fmt::format("{} closed the connection before it answered", peer_));
    }
    line.got += static_cast<std::size_t>(got);
    if (line.got < line.answer.size()) continue;
    const auto answer = decode_answer(line.answer);
    const auto* const error = std::get_if<GreetingError>(&answer);
    const auto* const said = std::get_if<StreamAnswer>(&answer);
    if ((error != nullptr && *error == GreetingError::kVersion) ||
        (said != nullptr && said->status == GreetingStatus::kWrongVersion)) {
      return Error(ErrorCode::kMismatch,
                   fmt::format("{} has another version of the plugin: install one version of "
                               "Thalweg on all hosts",
                               peer_));
    }
    if (error != nullptr) {
      return Error(ErrorCode::kMismatch, fmt::format("{} is no Thalweg plugin", peer_));
    }
    if (said->status == GreetingStatus::kWrongKey ||
        (key_ && !wire::same_secret(said->proof, line.expected))) {
      return Error(ErrorCode::kMismatch,
                   fmt::format("{}: wrong key: the job key that it holds is not ours", peer_));
    }
  }
  return true;
}

}  // namespace thalweg::nccl
