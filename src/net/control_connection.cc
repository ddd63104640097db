#include "net/control_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "net/atp/job_message.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {

using nlohmann::json;

Result<json> ControlConnection::ask(const json& request, Time until) {
  answered_ = false;
  const std::string line = request.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t now =
        send(fd_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now >= 0) {
      sent += static_cast<std::size_t>(now);
    } else if (errno == EAGAIN) {
      if (!wait_for_socket(fd_.get(), POLLOUT, until)) {
        return Error(name_ + " did not take the request in time");
      }
    } else if (errno != EINTR) {
      return system_error(fmt::format("cannot ask {}", name_), errno);
    }
  }
  THALWEG_TRY(const std::string text, hear(until));
  Result<json> answer = parse_control_line(text);
  if (!answer.ok()) return answer.error().within(name_);
  answered_ = true;
  const json error = answer->value("error", json());
  if (error.is_string()) return Error(error.get<std::string>()).within(name_);
  answer->erase("ok");
  return answer;
}

Result<std::string> ControlConnection::hear(Time until) {
  std::size_t end = 0;
  while ((end = in_.find('\n')) == std::string::npos) {
    if (in_.size() > kMaxControlAnswer) {
      return Error(fmt::format("{}: its answer is longer than {} bytes", name_, kMaxControlAnswer));
    }
    if (!wait_for_socket(fd_.get(), POLLIN, until)) {
      return Error(name_ + " did not answer in time");
    }
    std::array<char, 4096> bytes;
    const ssize_t got = recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (got == 0) return Error(name_ + " has closed the connection");
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return system_error(fmt::format("cannot hear {}", name_), errno);
    in_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  std::string line = in_.substr(0, end);
  in_.erase(0, end + 1);
  return line;
}

}  // namespace thalweg
