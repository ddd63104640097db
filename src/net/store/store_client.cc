#include "net/store/store_client.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <span>
#include <system_error>
#include <utility>

#include "net/dlcp/control_stream.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

// If the store's system does not answer for this long, the connection is lost.
constexpr int kStoreTimeoutMs = 30'000;
// How long after the deadline the reply may arrive that the key was not set by then.
constexpr Duration kReplyTime = Duration::milliseconds(100);
constexpr std::size_t kClientReadSize = std::size_t{1} << 16;

using Outcome = StoreReply::Outcome;
using What = StoreRequest::What;

// A key as error messages show it.
std::string shown(const std::string& key) {
  constexpr std::size_t kMost = 64;
  std::string text = key.substr(0, kMost);
  for (char& c : text) {
    if (c < 0x20 || c >= 0x7f) c = '?';
  }
  return key.size() > kMost ? text + "…" : text;
}

Status check_sizes(const std::string& key, const std::string& value) {
  if (key.empty() || key.size() > kMaxStoreKey) {
    return Error(fmt::format("key '{}': has {} bytes; from 1 to {} are allowed", shown(key),
                             key.size(), kMaxStoreKey));
  }
  if (value.size() > kMaxStoreValue) {
    return Error(fmt::format("value of key '{}': has {} bytes; at most {} are allowed", shown(key),
                             value.size(), kMaxStoreValue));
  }
  return ok_status();
}

}  // namespace

Result<StoreClient> StoreClient::connect(const std::string& address, wire::JobToken token,
                                         Time deadline, const std::optional<wire::JobKey>& key,
                                         StreamChecks checks) {
  return connect(address, [token] { return token; }, deadline, key, checks);
}

Result<StoreClient> StoreClient::connect(const std::string& address, const FindToken& find_token,
                                         Time deadline, const std::optional<wire::JobKey>& key,
                                         StreamChecks checks) {
  const std::string name = fmt::format("the store at {}", address);
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(address));
  THALWEG_TRY(Fd fd, connect_tcp(remote, name, deadline));
  set_signal_options(fd.get(), kStoreTimeoutMs);
  StoreClient client(std::move(fd), name);
  const StoreHello own{.token = find_token(),
                       .keyed = key.has_value(),
                       .checks = !key && has_checks(checks, client.fd_.get())};
  THALWEG_TRY_STATUS(client.greet(own, deadline, key));
  return client;
}

Status StoreClient::greet(const StoreHello& own, Time deadline,
                          const std::optional<wire::JobKey>& key) {
  THALWEG_TRY_STATUS(send_all(encode_store_hello(own), deadline));
  while (in_.size() < kStoreHelloSize) THALWEG_TRY_STATUS(read_more("hello", deadline));
  StoreHello hello;
  const wire::WireError error =
      decode_store_hello(std::span<const std::byte>(in_).first<kStoreHelloSize>(), hello);
  if (error != wire::WireError::kNone) {
    return lost(ErrorCode::kMismatch,
                fmt::format("its hello is wrong ({}): something else listens there",
                            thalweg::wire::name_of(error)));
  }
  if (hello.status != HelloStatus::kHello) {
    return lost(code_of(hello.status), fmt::format("it refused us: {}", describe(hello.status)));
  }
  in_.erase(in_.begin(), in_.begin() + kStoreHelloSize);
  if (key) return prove(StreamKey(*key, own.token, 0, true), hello.token, deadline);
  if (hello.checks != own.checks) {
    return lost(ErrorCode::kInternal, "bytes changed on the way: the hellos do not fit");
  }
  if (own.checks) cover_.emplace();
  return ok_status();
}

Status StoreClient::prove(const StreamKey& key, std::uint64_t challenge, Time deadline) {
  const StreamKey::Opening opening = key.open(challenge, random_number());
  THALWEG_TRY_STATUS(send_all(opening.bytes, deadline));
  while (in_.size() < wire::kSessionProofSize) {
    // A store with another key closes the connection.
    const Status read = read_more("proof of the job key", deadline);
    if (!read.ok()) {
      return Error(ErrorCode::kMismatch, read.error().within("wrong key?").message());
    }
  }
  const auto proof = std::span<const std::byte>(in_).first<wire::kSessionProofSize>();
  if (!wire::same_secret(proof, opening.answer)) {
    return lost(ErrorCode::kMismatch, "wrong key: it holds another job key");
  }
  in_.erase(in_.begin(), in_.begin() + wire::kSessionProofSize);
  cover_.emplace(*opening.secrets);
  covered_ = std::exchange(in_, {});
  return uncover();
}

Status StoreClient::uncover() {
  if (cover_->take(covered_, in_)) return ok_status();
  return lost(ErrorCode::kInternal,
              fmt::format("bytes changed on the way from it: their {} is wrong", cover_->check()));
}

Error StoreClient::lost(ErrorCode code, const std::string& why) {
  fd_.reset();
  lost_ = Error(code, why).within(name_);
  return *lost_;
}

Status StoreClient::send_all(std::span<const std::byte> bytes, Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      // A half-sent request cannot be taken back, so the connection is lost.
      if (!wait_for_socket(fd_.get(), POLLOUT, deadline)) {
        return lost(ErrorCode::kTimeout, "it does not read in time");
      }
    } else if (errno != EINTR) {
      return lost(ErrorCode::kPeerLost, "cannot send: " + std::generic_category().message(errno));
    }
  }
  return ok_status();
}

Status StoreClient::read_more(const std::string& waiting_for, Time deadline) {
  while (true) {
    if (!wait_for_socket(fd_.get(), POLLIN, deadline)) {
      return Error(ErrorCode::kTimeout, fmt::format("{}: no {} in time", name_, waiting_for));
    }
    std::vector<std::byte>& in = cover_ ? covered_ : in_;
    const std::size_t had = in.size();
    in.resize(had + kClientReadSize);
    const ssize_t got = recv(fd_.get(), &in[had], kClientReadSize, 0);
    in.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got > 0) return cover_ ? uncover() : ok_status();
    if (got == 0) return lost(ErrorCode::kPeerLost, "it closed the connection");
    if (errno != EAGAIN && errno != EINTR) {
      return lost(ErrorCode::kPeerLost,
                  "the connection broke: " + std::generic_category().message(errno));
    }
  }
}

Result<StoreReply> StoreClient::receive(std::uint32_t number, const std::string& key,
                                        Time deadline) {
  while (true) {
    std::span<const std::byte> left(in_);
    StoreReply reply;
    const wire::WireError error = take_store(left, reply);
    in_.erase(in_.begin(), in_.end() - static_cast<std::ptrdiff_t>(left.size()));
    if (error == wire::WireError::kShort) {
      THALWEG_TRY_STATUS(read_more(fmt::format("reply about '{}'", shown(key)), deadline));
    } else if (error != wire::WireError::kNone) {
      return lost(ErrorCode::kInternal, fmt::format("it sent a reply that makes no sense ({})",
                                                    thalweg::wire::name_of(error)));
    } else if (reply.outcome == Outcome::kChanged) {
      return lost(ErrorCode::kInternal, "bytes changed on the way to it: their CRC-32C is wrong");
    } else if (reply.number == number) {
      return reply;
    }
    // Otherwise the reply is for an earlier request whose deadline has passed.
  }
}

Result<StoreReply> StoreClient::ask(StoreRequest request, Time deadline) {
  if (lost_) return *lost_;
  THALWEG_TRY_STATUS(check_sizes(request.key, request.value));
  THALWEG_TRY_STATUS(check_sizes(request.key, request.expected.value_or("")));
  request.number = next_number_++;
  std::vector<std::byte> bytes;
  encode_store(request, bytes);
  if (cover_) {
    const std::vector<std::byte> plain = std::exchange(bytes, {});
    cover_->put(plain, bytes);
  }
  THALWEG_TRY_STATUS(send_all(bytes, deadline));
  THALWEG_TRY(StoreReply reply, receive(request.number, request.key, deadline));
  if (reply.outcome == Outcome::kFull) {
    return Error(ErrorCode::kNoResource,
                 fmt::format("{}: '{}': it has no room for more", name_, shown(request.key)));
  }
  return reply;
}

Status StoreClient::set(const std::string& key, const std::string& value, Time deadline) {
  const Result<StoreReply> reply = ask({.what = What::kSet, .key = key, .value = value}, deadline);
  return reply.ok() ? ok_status() : reply.error();
}

Result<std::optional<std::string>> StoreClient::ask_for(What what, const std::string& key,
                                                        Time patience, Time deadline) {
  const double left_ms = std::clamp((patience - monotonic_now()).ms(), 0.0, 4e9);
  THALWEG_TRY(
      StoreReply reply,
      ask({.what = what, .key = key, .wait_ms = static_cast<std::uint32_t>(left_ms)}, deadline));
  if (reply.outcome != Outcome::kDone) return std::optional<std::string>();
  return std::optional(std::move(reply.value));
}

Result<std::string> StoreClient::wait_for(What what, const std::string& key, Time deadline) {
  const Time started = monotonic_now();
  THALWEG_TRY(std::optional<std::string> value,
              ask_for(what, key, deadline, deadline + kReplyTime));
  if (value) return *std::move(value);
  return Error(ErrorCode::kTimeout, fmt::format("{}: nobody has set '{}' within {}", name_,
                                                shown(key), to_human(monotonic_now() - started)));
}

Result<std::optional<std::string>> StoreClient::find(const std::string& key, Time patience,
                                                     Time deadline) {
  return ask_for(What::kGet, key, patience, deadline);
}

Result<std::string> StoreClient::get(const std::string& key, Time deadline) {
  return wait_for(What::kGet, key, deadline);
}

Status StoreClient::wait(const std::string& key, Time deadline) {
  const Result<std::string> found = wait_for(What::kWait, key, deadline);
  return found.ok() ? ok_status() : found.error();
}

Result<std::int64_t> StoreClient::add(const std::string& key, std::int64_t delta, Time deadline) {
  THALWEG_TRY(const StoreReply reply,
              ask({.what = What::kAdd, .key = key, .delta = delta}, deadline));
  std::int64_t sum = 0;
  const std::string& text = reply.value;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), sum);
  if (reply.outcome != Outcome::kDone || failure != std::errc()) {
    return Error(
        fmt::format("{}: cannot add {} to '{}': it holds no decimal number, or the sum "
                    "has more than 63 bits",
                    name_, delta, shown(key)));
  }
  return sum;
}

Result<bool> StoreClient::compare_and_set(const std::string& key,
                                          const std::optional<std::string>& expected,
                                          const std::string& value, Time deadline) {
  THALWEG_TRY(const StoreReply reply,
              ask({.what = What::kCompareAndSet, .key = key, .value = value, .expected = expected},
                  deadline));
  return reply.outcome == Outcome::kDone;
}

Result<bool> StoreClient::remove(const std::string& key, Time deadline) {
  THALWEG_TRY(const StoreReply reply, ask({.what = What::kDelete, .key = key}, deadline));
  return reply.outcome == Outcome::kDone;
}

}  // namespace thalweg::net
