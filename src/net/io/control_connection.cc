#include "net/io/control_connection.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error_code.h"
#include "base/printable.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {

using nlohmann::json;

namespace {

// Bytes of an answer that an error shows.
constexpr std::size_t kMaxShownAnswer = 60;
// How many times ended() reads what nobody asked for, at most.
constexpr int kMostUnaskedReads = 16;

}  // namespace

json refusal_of(const Error& error) {
  return {{"error", error.message()}, {"code", name_of(error.code())}};
}

Error refusal_in(const json& fields) {
  const json code = fields.value("code", json());
  return {code.is_string() ? error_code_named(code.get<std::string>()) : ErrorCode::kBadArgument,
          printable(fields.value("error", ""))};
}

Result<json> ControlConnection::ask(const json& request, Time until) {
  THALWEG_TRY_STATUS(send_request(request, until));
  return answer(until);
}

Status ControlConnection::send_request(const json& request, Time until) {
  answered_ = false;
  const std::string line = request.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  std::vector<std::byte> sealed;
  std::span<const std::byte> bytes = std::as_bytes(std::span(line));
  if (seal_) {
    seal_->out.seal(bytes, sealed);
    bytes = sealed;
  }
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t now =
        send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now >= 0) {
      sent += static_cast<std::size_t>(now);
    } else if (errno == EAGAIN) {
      if (!wait_for_socket(fd_.get(), POLLOUT, until)) {
        return Error(ErrorCode::kTimeout, name_ + " did not take the request in time");
      }
    } else if (errno != EINTR) {
      return system_error(fmt::format("cannot ask {}", name_), errno);
    }
  }
  return ok_status();
}

Result<json> ControlConnection::answer(Time until) {
  THALWEG_TRY(const std::string text, hear(until));
  answered_ = true;
  Result<json> answer = parse_control_line(text);
  if (!answer.ok()) {
    return Error(fmt::format("answers '{}'; a JSON object is allowed",
                             printable(text.substr(0, kMaxShownAnswer))))
        .within(name_);
  }
  if (answer->value("error", json()).is_string()) return refusal_in(*answer).within(name_);
  if (answer->value("ok", json(true)) != true) {
    return Error("refuses without saying why").within(name_);
  }
  answer->erase("ok");
  return answer;
}

bool ControlConnection::ended() {
  std::array<char, 4096> unasked;
  for (int i = 0; i < kMostUnaskedReads; ++i) {
    const ssize_t got = recv(fd_.get(), unasked.data(), unasked.size(), MSG_DONTWAIT);
    // What is dropped from a sealed stream would be missed by the next record.
    if (got == 0 || (got > 0 && seal_)) return true;
    if (got < 0) return errno != EAGAIN && errno != EINTR;
  }
  return false;
}

Result<std::string> ControlConnection::hear(Time until) {
  std::size_t end = 0;
  while ((end = in_.find('\n')) == std::string::npos) {
    if (in_.size() > kMaxControlAnswer) {
      answered_ = true;
      return Error(ErrorCode::kInternal,
                   fmt::format("{}: its answer is longer than {} bytes", name_, kMaxControlAnswer));
    }
    if (!wait_for_socket(fd_.get(), POLLIN, until)) {
      return Error(ErrorCode::kTimeout, name_ + " did not answer in time");
    }
    std::array<char, 4096> bytes;
    const ssize_t got = recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (got == 0) return Error(ErrorCode::kPeerLost, name_ + " has closed the connection");
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return system_error(fmt::format("cannot hear {}", name_), errno);
    THALWEG_TRY_STATUS(take(std::as_bytes(std::span(bytes)).first(static_cast<std::size_t>(got))));
  }
  std::string line = in_.substr(0, end);
  in_.erase(0, end + 1);
  return line;
}

Status ControlConnection::take(std::span<const std::byte> bytes) {
  std::vector<std::byte> plain;
  if (seal_) {
    sealed_.insert(sealed_.end(), bytes.begin(), bytes.end());
    std::span<const std::byte> left(sealed_);
    const wire::WireError error = seal_->in.open(left, plain);
    sealed_.erase(sealed_.begin(), sealed_.end() - static_cast<std::ptrdiff_t>(left.size()));
    if (error != wire::WireError::kNone && error != wire::WireError::kShort) {
      fd_.reset();
      return Error(ErrorCode::kInternal,
                   name_ + ": bytes changed on the way from it: their AES-GCM tag is wrong");
    }
    bytes = plain;
  }
  in_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return ok_status();
}

Result<json> parse_control_line(std::string_view line) {
  json value = json::parse(line, nullptr, false);
  if (!value.is_object()) return Error("a line must be a JSON object");
  return value;
}

}  // namespace thalweg::net
