#include "net/group/streams/joiner.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "proto/collective/frames.h"

namespace thalweg::net {

Joiner::Joiner(const JoinerOptions& options, int epoll, std::vector<Fd> listeners)
    : options_(options),
      joining_(Rank(options.rank), options.size, options.signature),
      epoll_(epoll) {
  for (Fd& listener : listeners) listeners_.emplace_back(std::move(listener), kMaxNewcomers);
}

std::optional<GreetedStream> Joiner::greet(DialedStream dialed, proto::HelloFrame::Purpose purpose,
                                           std::uint32_t number) const {
  return say_hello(std::move(dialed), joining_.hello(purpose, number), options_.checks);
}

bool Joiner::on_event(int fd, const OnJoined& on_joined) {
  if (const auto listener = std::ranges::find(listeners_, fd, &TcpListener::fd);
      listener != listeners_.end()) {
    accept(*listener, on_joined);
    return true;
  }
  const auto newcomer = std::ranges::find_if(
      newcomers_, [&](const Newcomer& n) { return n.fd.valid() && n.fd.get() == fd; });
  if (newcomer == newcomers_.end()) return false;
  read(*newcomer, on_joined);
  std::erase_if(newcomers_, [](const Newcomer& n) { return n.over; });
  return true;
}

void Joiner::accept(TcpListener& listener, const OnJoined& on_joined) {
  const auto take = [&](Fd fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd.get();
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd.get(), &event) != 0) return;
    if (newcomers_.size() >= kMaxNewcomers) {
      read(newcomers_.front(), on_joined);  // its hello may have arrived by now
      newcomers_.pop_front();
    }
    newcomers_.push_back({.fd = std::move(fd)});
  };
  // A stream that is refused is told why. With a key its rank would expect a proof first, so it
  // only sees that the stream is closed.
  listener.accept_all(take, [this](int fd) {
    if (options_.key) return;
    refuse(fd, check_of(options_.checks, fd), nullptr,
           {ErrorCode::kNoResource,
            fmt::format("rank {} has no file descriptors left (ulimit -n)", options_.rank),
            options_.rank});
  });
}

void Joiner::read(Newcomer& newcomer, const OnJoined& on_joined) {
  if (newcomer.over || !read_first(newcomer)) return;
  newcomer.over = true;
  const std::optional<proto::HelloFrame> hello = hello_of(newcomer);
  if (!hello || !joining_.takes(*hello, newcomer.seal != nullptr)) return;
  const bool by_place = options_.checks == StreamChecks::kBetweenHosts;
  std::optional<Error> mismatch =
      joining_.mismatch_of(*hello, own_check(newcomer.fd.get()), by_place);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, newcomer.fd.get(), nullptr);
  on_joined({*hello,
             {std::move(newcomer.fd), hello->check, std::move(newcomer.seal)},
             std::move(mismatch)});
}

bool Joiner::read_first(Newcomer& newcomer) const {
  const std::size_t opening = options_.key ? StreamKey::kOpeningSize : 0;
  while (true) {
    const bool opens = newcomer.size < opening;
    const std::size_t hello = newcomer.seal ? wire::kSealedFrameSize : wire::kCheckedFrameSize;
    const std::size_t wanted = opens ? opening : opening + hello;
    const ssize_t got = recv(newcomer.fd.get(), &newcomer.bytes[newcomer.size],
                             wanted - newcomer.size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    newcomer.size += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    newcomer.over = got <= 0;
    if (newcomer.over || newcomer.size < wanted) return false;
    if (!opens) return true;
    newcomer.over = !admit(newcomer);
    if (newcomer.over) return false;
  }
}

bool Joiner::admit(Newcomer& newcomer) const {
  const auto opening = std::span<const std::byte>(newcomer.bytes).first<StreamKey::kOpeningSize>();
  const std::optional<StreamKey::Admission> admission = options_.key->admit(opening);
  if (!admission) return false;
  newcomer.seal = seal_of(admission->secrets);
  // The answer fits into an empty socket buffer.
  return send(newcomer.fd.get(), admission->answer.data(), admission->answer.size(),
              MSG_NOSIGNAL) == std::ssize(admission->answer);
}

std::optional<proto::HelloFrame> Joiner::hello_of(const Newcomer& newcomer) const {
  const auto bytes = std::span<const std::byte>(newcomer.bytes).first(newcomer.size);
  wire::Frame frame;
  std::uint32_t payload = 0;
  const wire::WireError error =
      newcomer.seal
          ? newcomer.seal->in.open_header(bytes.last<wire::kSealedFrameSize>(), frame)
          : wire::decode_checked_frame(bytes.last<wire::kCheckedFrameSize>(), frame, payload);
  if (error == wire::WireError::kChecksum) {
    if (options_.on_spoiled_frame) options_.on_spoiled_frame();
    const wire::FrameCheck check =
        newcomer.seal ? wire::FrameCheck::kSealed : check_of(options_.checks, newcomer.fd.get());
    refuse(newcomer.fd.get(), check, newcomer.seal.get(),
           {ErrorCode::kInternal,
            fmt::format("bytes changed on the way to rank {}: the first ones of a stream ({})",
                        options_.rank, newcomer.seal ? "AES-GCM" : "CRC-32C")});
  }
  if (error != wire::WireError::kNone) return std::nullopt;
  return proto::hello_frame(frame);
}

wire::FrameCheck Joiner::own_check(int fd) const {
  const bool seals = options_.key && options_.key->seals();
  return seals ? wire::FrameCheck::kSealed : check_of(options_.checks, fd);
}

void Joiner::refuse(const CheckedStream& stream, const Error& why) const {
  refuse(stream.fd.get(), stream.check, stream.seal.get(), why);
}

void Joiner::refuse(int fd, wire::FrameCheck check, wire::StreamSeal* seal,
                    const Error& why) const {
  std::string text;
  const wire::Frame frame =
      proto::wire_frame(proto::abort_frame(why, Rank(options_.rank)), 0, text);
  const std::vector<std::byte> bytes = frame_bytes(frame, text, check, seal);
  static_cast<void>(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace thalweg::net
