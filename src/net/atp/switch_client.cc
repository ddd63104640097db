#include "net/atp/switch_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "net/address.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {

using nlohmann::json;

Result<SwitchClient> SwitchClient::connect(const std::string& address, const std::string& token,
                                           Time until) {
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(address));
  std::string name = fmt::format("the switch at {}", address);
  THALWEG_TRY(Fd fd, connect_tcp(remote, name, until));
  prepare_stream(fd.get());
  return SwitchClient(std::move(fd), std::move(name), token);
}

Result<JobGrant> SwitchClient::create(const JobRequest& request, Time until) {
  json fields = to_json(request);
  fields["op"] = "create";
  THALWEG_TRY(const json answer, ask(std::move(fields), until));
  Result<JobGrant> grant = job_grant_from(answer);
  if (!grant.ok()) return grant.error().within(name_);
  return grant;
}

Result<json> SwitchClient::ask(json request, Time until) {
  answered_ = false;
  if (!token_.empty()) request["token"] = token_;
  const std::string line = request.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t now = send(fd_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
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

Result<std::string> SwitchClient::hear(Time until) {
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
