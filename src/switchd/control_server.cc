#include "switchd/control_server.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "net/io/address.h"
#include "net/io/control_connection.h"
#include "net/io/system.h"

namespace thalweg::switchd {

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
  // Drops a client that does not read its answers or never ends a line.
  return in.size() <= net::kMaxControlLine && client.unsent() <= net::kMaxControlAnswer;
}

void ControlServer::answer(Server::Client& client, std::string_view line) {
  const Result<json> request = net::parse_control_line(line);
  Result<json> answer =
      request.ok() ? requests_.on_request(
                         {.client = client.number,
                          .host = net::SocketAddress::remote_of(client.fd.get()).unmapped().host(),
                          .now = net::monotonic_now()},
                         *request)
                   : request.error();
  json out = answer.ok() ? std::move(*answer) : net::refusal_of(answer.error());
  out["ok"] = answer.ok();
  const std::string text = out.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  server_.send(client, std::as_bytes(std::span(text)));
}

}  // namespace thalweg::switchd
