// The receiver's side of a rendezvous (rendezvous.h).
#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "nccl/log.h"
#include "nccl/rendezvous.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::nccl {
namespace {

// Those who connected and have not said hello; more are closed, the oldest first.
constexpr std::size_t kMostGuests = 256;
// Connections of which some streams are there.
constexpr std::size_t kMostArrivals = 64;
constexpr Duration kHelloTimeout = Duration::milliseconds(20'000);
// Foreigners beyond these are closed without a word in the log.
constexpr int kMostToldOf = 3;
constexpr std::size_t kMostClients = 1024;

// A stream whose other end is gone already has no address.
std::string remote_of(int fd) {
  const net::SocketAddress remote = net::SocketAddress::remote_of(fd);
  return remote.family() == AF_UNSPEC ? "somewhere" : remote.to_string();
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::start(const Device& device, const Settings& settings) {
  THALWEG_TRY(net::Fd fd, net::listen_tcp(net::HostPort{device.address.host(), 0}.to_string()));
  return std::unique_ptr<Listener>(new Listener(std::move(fd), settings));
}

Listener::Listener(net::Fd fd, const Settings& settings)
    : listener_(std::move(fd), kMostClients), timeout_(settings.timeout) {
  handle_.address = net::SocketAddress::local_of(listener_.fd());
  handle_.keyed = settings.key.has_value();
  handle_.challenge = net::random_number();
  if (settings.key) key_.emplace(*settings.key, kKeySignature, handle_.challenge);
}

Result<std::optional<Streams>> Listener::advance(Time now) {
  if (!until_) until_ = now + timeout_;
  listener_.accept_all(
      [&](net::Fd fd) {
        guests_.push_back({.fd = std::move(fd), .until = now + kHelloTimeout});
        if (guests_.size() > kMostGuests) guests_.pop_front();
      },
      [](int) { log_warning("a stream was refused: this process has no file descriptors left"); });
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    THALWEG_TRY(const Verdict verdict, hear(*guest, now));
    guest = verdict == Verdict::kWait ? std::next(guest) : guests_.erase(guest);
  }
  const auto complete =
      std::ranges::find_if(arrivals_, [](const auto& entry) { return entry.second.missing == 0; });
  if (complete != arrivals_.end()) {
    Streams streams{.fds = std::move(complete->second.fds), .peer = {}};
    streams.peer = remote_of(streams.fds[0].get());
    arrivals_.erase(complete);
    until_.reset();
    return std::optional(std::move(streams));
  }
  if (now < *until_) return std::optional<Streams>();
  return Error(ErrorCode::kTimeout,
               fmt::format("nobody connected to {} in time (THALWEG_NCCL_TIMEOUT); is the plugin "
                           "set on all ranks?",
                           handle_.address.to_string()));
}

Result<Listener::Verdict> Listener::hear(Guest& guest, Time now) {
  while (guest.got < guest.hello.size()) {
    const ssize_t got =
        recv(guest.fd.get(), &guest.hello[guest.got], guest.hello.size() - guest.got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (now < guest.until) return Verdict::kWait;
      dismiss(guest, "it did not say hello in time");
      return Verdict::kClose;
    }
    if (got <= 0) {
      dismiss(guest, "it closed the connection before it had said hello");
      return Verdict::kClose;
    }
    guest.got += static_cast<std::size_t>(got);
    if (guest.got < kGreetingPrefixSize) continue;
    const auto wrong = check_hello_prefix(std::span(guest.hello).first<kGreetingPrefixSize>());
    if (wrong == GreetingError::kForeign) {
      dismiss(guest, "it is no Thalweg plugin");
      return Verdict::kClose;
    }
    if (wrong == GreetingError::kVersion) {
      const auto answer = encode_answer({.status = GreetingStatus::kWrongVersion});
      send(guest.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return Error(ErrorCode::kMismatch,
                   fmt::format("{} has another version of the plugin: install one version of "
                               "Thalweg on all hosts",
                               remote_of(guest.fd.get())));
    }
  }
  const auto hello = decode_hello(guest.hello);
  if (const auto* const right = std::get_if<StreamHello>(&hello)) return judge(guest, *right);
  dismiss(guest, "its hello is wrong");
  return Verdict::kClose;
}

Result<Listener::Verdict> Listener::judge(Guest& guest, const StreamHello& hello) {
  if (hello.challenge != handle_.challenge) {
    dismiss(guest, "its hello is for another listener");
    return Verdict::kClose;
  }
  StreamAnswer answer;
  if (key_) {
    const auto admission = hello.keyed ? key_->admit(hello.opening) : std::nullopt;
    const bool welcome = admission && !admission->secrets;  // the plugin's streams are not sealed
    answer.status = welcome ? GreetingStatus::kWelcome : GreetingStatus::kWrongKey;
    if (welcome) answer.proof = admission->answer;
  } else if (hello.keyed) {
    answer.status = GreetingStatus::kWrongKey;
  }
  const StreamAnswerBytes bytes = encode_answer(answer);
  // It fits the socket's buffer, which is empty.
  const bool sent = send(guest.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                    static_cast<ssize_t>(bytes.size());
  if (answer.status != GreetingStatus::kWelcome) {
    dismiss(guest, "wrong key: the job key that it holds is not ours");
    return Verdict::kClose;
  }
  if (arrivals_.size() >= kMostArrivals && !arrivals_.contains(hello.connection)) {
    dismiss(guest, "too many connections are incomplete");
    return Verdict::kClose;
  }
  Arrival& arrival = arrivals_[hello.connection];
  if (arrival.fds.empty()) {
    arrival.fds.resize(hello.streams);
    arrival.missing = hello.streams;
  }
  if (!sent || arrival.fds.size() != hello.streams || arrival.fds[hello.stream].valid()) {
    dismiss(guest, "its stream does not belong to the others");
    return Verdict::kClose;
  }
  net::prepare_stream(guest.fd.get());
  arrival.fds[hello.stream] = std::move(guest.fd);
  --arrival.missing;
  return Verdict::kTaken;
}

void Listener::dismiss(const Guest& guest, const std::string& why) {
  if (++dismissed_ > kMostToldOf) return;
  log_warning(fmt::format("a connection to {} from {} was closed: {}{}",
                          handle_.address.to_string(), remote_of(guest.fd.get()), why,
                          dismissed_ == kMostToldOf ? "; others will not be told of" : ""));
}

}  // namespace thalweg::nccl
