#include "switchd/control_server.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "net/atp/job_message.h"

namespace thalweg {

using nlohmann::json;

bool ControlServer::on_readable(Server::Client& client) {
  std::array<char, 4096> bytes;
  const ssize_t got = recv(client.fd.get(), bytes.data(), bytes.size(), 0);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  std::string& in = client.state;
  in.append(bytes.data(), static_cast<std::size_t>(got));
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = in.find('\n', begin)) != std::string::npos; begin = end + 1) {
    answer(client, std::string_view(in).substr(begin, end - begin));
  }
  in.erase(0, begin);
  // Who asks without listening, or never ends a line, is not served further.
  return in.size() <= kMaxControlLine && client.unsent() <= kMaxControlAnswer;
}

void ControlServer::answer(Server::Client& client, std::string_view line) {
  const Result<json> request = parse_control_line(line);
  Result<json> answer =
      request.ok() ? requests_.on_request(client.number, *request) : request.error();
  json out = answer.ok() ? std::move(*answer) : json{{"error", answer.error().message()}};
  out["ok"] = answer.ok();
  const std::string text = out.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  server_.send(client, std::as_bytes(std::span(text)));
}

}  // namespace thalweg
