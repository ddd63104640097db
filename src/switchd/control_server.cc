#include "switchd/control_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "net/atp/job_message.h"
#include "net/tcp.h"

namespace thalweg {

using nlohmann::json;

ControlServer::~ControlServer() {
  for (const auto& [fd, client] : clients_) loop_.remove(fd);
  loop_.remove(listener_.get());
}

Status ControlServer::start() { return loop_.add(listener_.get(), EPOLLIN, *this); }

void ControlServer::on_ready(int fd, std::uint32_t events) {
  if (fd == listener_.get()) {
    accept_all();
    return;
  }
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client& client = found->second;
  bool alive = (events & (EPOLLERR | EPOLLHUP)) == 0;
  if (alive && (events & EPOLLOUT) != 0) alive = flush(client);
  if (alive && (events & EPOLLIN) != 0) alive = receive(client);
  if (!alive) drop(fd);
}

void ControlServer::accept_all() {
  while (true) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;
    const int number = fd.get();
    // One too many is closed, which its client hears.
    if (clients_.size() >= kMaxClients || !loop_.add(number, EPOLLIN, *this).ok()) continue;
    prepare_stream(number);
    Client& client = clients_[number];
    client.fd = std::move(fd);
    client.number = ++next_number_;
  }
}

bool ControlServer::receive(Client& client) {
  std::array<char, 4096> bytes;
  const ssize_t got = recv(client.fd.get(), bytes.data(), bytes.size(), 0);
  if (got <= 0) return got < 0 && errno == EAGAIN;
  client.in.append(bytes.data(), static_cast<std::size_t>(got));
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = client.in.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    answer(client, std::string_view(client.in).substr(begin, end - begin));
  }
  client.in.erase(0, begin);
  // Who asks without listening, or never ends a line, is not served further.
  if (client.in.size() > kMaxControlLine || client.out.size() > kMaxControlAnswer) return false;
  return flush(client);
}

void ControlServer::answer(Client& client, std::string_view line) {
  const Result<json> request = parse_control_line(line);
  Result<json> answer =
      request.ok() ? requests_.on_request(client.number, *request) : request.error();
  json out = answer.ok() ? std::move(*answer) : json{{"error", answer.error().message()}};
  out["ok"] = answer.ok();
  client.out += out.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

bool ControlServer::flush(Client& client) {
  while (!client.out.empty()) {
    const ssize_t sent = send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent < 0) break;
    client.out.erase(0, static_cast<std::size_t>(sent));
  }
  loop_.change(client.fd.get(), client.out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
  return true;
}

void ControlServer::drop(int fd) {
  const auto found = clients_.find(fd);
  const std::uint64_t number = found->second.number;
  loop_.remove(fd);
  clients_.erase(found);
  requests_.on_closed(number);
}

}  // namespace thalweg
