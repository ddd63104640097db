#include "net/auth/greeting.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/io/system.h"
#include "net/io/tcp.h"
#include "wire/byte_io.h"

namespace thalweg::net {
namespace {

constexpr std::uint32_t kGreetingMagic = 0x4b57'4c54;  // "TLWK"
constexpr std::uint8_t kGreetingVersion = 1;

using Greeting = std::array<std::byte, kGreetingSize>;
using Answer = std::array<std::byte, kGreetingAnswerSize>;

Greeting greeting() {
  Greeting bytes{};
  wire::ByteWriter writer(bytes);
  writer.put(kGreetingMagic);
  writer.put(kGreetingVersion);
  return bytes;
}

void put_answer(GreetingStatus status, std::uint64_t challenge, std::vector<std::byte>& out) {
  Answer bytes{};
  wire::ByteWriter writer(bytes);
  writer.put(kGreetingMagic);
  writer.put(kGreetingVersion);
  writer.put(static_cast<std::uint8_t>(status));
  writer.put(std::uint16_t{0});
  writer.put(challenge);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Whether these bytes may be the beginning of a greeting.
bool may_greet(std::span<const std::byte> bytes) {
  const Greeting own = greeting();
  const std::size_t size = std::min(bytes.size(), sizeof(kGreetingMagic));
  return std::ranges::equal(bytes.first(size), std::span(own).first(size));
}

Status send_all(int fd, std::span<const std::byte> bytes, const std::string& name, Time until) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for_socket(fd, POLLOUT, until)) {
        return Error(ErrorCode::kTimeout, name + " did not take our greeting in time");
      }
    } else if (errno != EINTR) {
      return system_error(fmt::format("cannot greet {}", name), errno);
    }
  }
  return ok_status();
}

Status receive_all(int fd, std::span<std::byte> bytes, const std::string& name, Time until) {
  while (!bytes.empty()) {
    if (!wait_for_socket(fd, POLLIN, until)) {
      return Error(ErrorCode::kTimeout, name + " did not answer our greeting in time");
    }
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return Error(ErrorCode::kPeerLost, name + " has closed the connection");
    } else if (errno != EAGAIN && errno != EINTR) {
      return system_error(fmt::format("cannot hear {}", name), errno);
    }
  }
  return ok_status();
}

Error mismatch(const std::string& name, const std::string& why) {
  return {ErrorCode::kMismatch, fmt::format("{}: {}", name, why)};
}

// The error of a status that refuses us.
Error refused(GreetingStatus status, const std::string& name, const std::string& hint) {
  switch (status) {
    case GreetingStatus::kKeyless:
      return mismatch(name, "wrong key: we hold a key, and it holds none. " + hint);
    case GreetingStatus::kVersion:
      return mismatch(name, "its Thalweg is of another version");
    case GreetingStatus::kWrongKey:
      return mismatch(name, "wrong key: the key that it holds is not ours");
    case GreetingStatus::kWelcome:
      break;
  }
  return mismatch(name, "its answer to our greeting makes no sense");
}

}  // namespace

KeyedStream::KeyedStream(const std::optional<wire::JobKey>& key, std::uint64_t challenge)
    : challenge_(challenge) {
  if (key) key_.emplace(*key, 0, challenge, true);
}

KeyedStream::State KeyedStream::on_received(std::span<const std::byte> bytes,
                                            std::vector<std::byte>& plain,
                                            std::vector<std::byte>& out) {
  if (over()) return state_;
  if (state_ == State::kPlain) {
    plain.insert(plain.end(), bytes.begin(), bytes.end());
    return state_;
  }
  in_.insert(in_.end(), bytes.begin(), bytes.end());
  if (state_ == State::kGreeting && !answered_) greet(out);
  if (state_ == State::kGreeting && answered_) check_key(out);
  if (state_ == State::kPlain) {
    plain.insert(plain.end(), in_.begin(), in_.end());
    in_ = {};
  }
  if (state_ != State::kSealed) return state_;
  std::span<const std::byte> left(in_);
  const wire::WireError error = seal_->in.open(left, plain);
  in_.erase(in_.begin(), in_.end() - static_cast<std::ptrdiff_t>(left.size()));
  // Who changed sealed bytes learns nothing.
  if (error != wire::WireError::kNone && error != wire::WireError::kShort) {
    state_ = State::kRefused;
  }
  return state_;
}

void KeyedStream::greet(std::vector<std::byte>& out) {
  if (in_.empty()) return;
  if (!may_greet(in_)) {
    state_ = key_ ? State::kKeyNeeded : State::kPlain;
    return;
  }
  if (in_.size() < kGreetingSize) return;
  const bool same_version = std::ranges::equal(std::span(in_).first(kGreetingSize), greeting());
  if (!same_version || !key_) {
    put_answer(same_version ? GreetingStatus::kKeyless : GreetingStatus::kVersion, 0, out);
    state_ = State::kRefused;
    return;
  }
  in_.erase(in_.begin(), in_.begin() + kGreetingSize);
  put_answer(GreetingStatus::kWelcome, challenge_, out);
  answered_ = true;
}

void KeyedStream::check_key(std::vector<std::byte>& out) {
  if (in_.size() < StreamKey::kOpeningSize) return;
  const std::optional<StreamKey::Admission> admission =
      key_->admit(std::span<const std::byte>(in_).first<StreamKey::kOpeningSize>());
  const bool admitted = admission && admission->secrets;
  const std::size_t at = out.size();
  out.resize(at + kVerdictSize);
  if (!admitted) {
    out[at] = static_cast<std::byte>(GreetingStatus::kWrongKey);
    state_ = State::kRefused;
    return;
  }
  in_.erase(in_.begin(), in_.begin() + StreamKey::kOpeningSize);
  std::ranges::copy(admission->answer,
                    out.end() - static_cast<std::ptrdiff_t>(wire::kSessionProofSize));
  seal_ = std::make_unique<wire::BytesSeal>(admission->secrets->out, admission->secrets->in);
  state_ = State::kSealed;
}

void KeyedStream::put(std::span<const std::byte> plain, std::vector<std::byte>& out) {
  if (seal_) {
    seal_->out.seal(plain, out);
  } else {
    out.insert(out.end(), plain.begin(), plain.end());
  }
}

Result<std::unique_ptr<wire::BytesSeal>> greet_server(int fd, const wire::JobKey& key,
                                                      const std::string& name,
                                                      const std::string& hint, Time until) {
  THALWEG_TRY_STATUS(send_all(fd, greeting(), name, until));
  Answer answer;
  THALWEG_TRY_STATUS(receive_all(fd, answer, name, until));
  wire::ByteReader reader(answer);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint8_t>();
  const auto answered = static_cast<GreetingStatus>(reader.get<std::uint8_t>());
  const auto reserved = reader.get<std::uint16_t>();
  const auto challenge = reader.get<std::uint64_t>();
  if (magic != kGreetingMagic) {
    return mismatch(name,
                    "it does not answer our greeting: something else listens there, or its Thalweg "
                    "is of another version");
  }
  if (version != kGreetingVersion) return refused(GreetingStatus::kVersion, name, hint);
  if (answered != GreetingStatus::kWelcome) return refused(answered, name, hint);
  if (reserved != 0) return mismatch(name, "its answer to our greeting makes no sense");
  const StreamKey stream_key(key, 0, 0, true);
  const StreamKey::Opening opening = stream_key.open(challenge, random_number());
  THALWEG_TRY_STATUS(send_all(fd, opening.bytes, name, until));
  std::array<std::byte, kVerdictSize> verdict;
  THALWEG_TRY_STATUS(receive_all(fd, verdict, name, until));
  const auto said = static_cast<GreetingStatus>(verdict[0]);
  if (said != GreetingStatus::kWelcome) return refused(said, name, hint);
  const auto zeros = std::span<const std::byte>(verdict).subspan<1, 7>();
  if (!std::ranges::all_of(zeros, [](std::byte b) { return b == std::byte{0}; })) {
    return mismatch(name, "its verdict makes no sense");
  }
  if (!wire::same_secret(std::span<const std::byte>(verdict).last<wire::kSessionProofSize>(),
                         opening.answer)) {
    return refused(GreetingStatus::kWrongKey, name, hint);
  }
  return std::make_unique<wire::BytesSeal>(opening.secrets->out, opening.secrets->in);
}

}  // namespace thalweg::net
