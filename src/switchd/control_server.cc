#include "switchd/control_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "net/io/address.h"
#include "net/io/control_connection.h"
#include "net/io/system.h"

namespace thalweg::switchd {

using nlohmann::json;

namespace {

std::string line_of(const Result<json>& answer) {
  json out = answer.ok() ? *answer : net::refusal_of(answer.error());
  out["ok"] = answer.ok();
  return out.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

Error key_needed() {
  return {ErrorCode::kMismatch,
          "wrong key: the switch holds a key, and this client holds none; give it the key's file "
          "(for jobs: THALWEG_SWITCH_KEY_FILE or THALWEG_KEY_FILE; for `thalweg job`: --key-file)"};
}

}  // namespace

ControlServer::ControlServer(net::EventLoop& loop, net::Fd listener, const Options& options,
                             Requests& requests)
    : greeting_time_(options.greeting_time),
      requests_(requests),
      server_(loop, std::move(listener), kMaxClients, *this) {
  if (options.key) key_ = net::derived_key(*options.key, net::KeyPurpose::kSwitchControl);
}

bool ControlServer::on_readable(Server::Client& client) {
  std::array<std::byte, 4096> bytes;
  const ssize_t got = recv(client.fd.get(), bytes.data(), bytes.size(), 0);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  State& state = client.state;
  if (!state.stream) {
    state.stream = std::make_unique<net::KeyedStream>(key_, net::random_number());
  }
  const bool was_over = state.stream->over();
  std::vector<std::byte> plain;
  std::vector<std::byte> out;
  state.stream->on_received(std::span(bytes).first(static_cast<std::size_t>(got)), plain, out);
  if (!out.empty()) server_.send(client, out);
  if (state.stream->over()) {
    if (!was_over) end_refused(client);
    return true;
  }
  std::string& in = state.in;
  in.append(reinterpret_cast<const char*>(plain.data()), plain.size());
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
  const Result<json> answer =
      request.ok() ? requests_.on_request(
                         {.client = client.number,
                          .host = net::SocketAddress::remote_of(client.fd.get()).unmapped().host(),
                          .now = net::monotonic_now()},
                         *request)
                   : request.error();
  const std::string text = line_of(answer);
  std::vector<std::byte> out;
  client.state.stream->put(std::as_bytes(std::span(text)), out);
  server_.send(client, out);
}

// Closing a socket with bytes that were not read would take the refusal back, so what the client
// still sends is read, until on_timeout() closes it.
void ControlServer::end_refused(Server::Client& client) {
  if (client.state.stream->state() == net::KeyedStream::State::kKeyNeeded) {
    const std::string text = line_of(key_needed());
    server_.send(client, std::as_bytes(std::span(text)));
  }
  shutdown(client.fd.get(), SHUT_WR);
}

std::optional<Time> ControlServer::on_timeout(Time now) {
  // Without a key, a client may be silent for as long as it likes.
  if (!key_) return std::nullopt;
  return net::close_late(server_, now, greeting_time_);
}

}  // namespace thalweg::switchd
