// Keeps the clients of a TCP server in one event loop: accepts them, tells their owner what happens
// to them, and sends the owner's bytes as fast as the sockets take them.
//
// Invariants:
// 1. No client can make another wait: no socket blocks.
// 2. A client is closed only between calls of the owner's methods, so the owner never gets a client
//    that is already gone.
// 3. A client whose machine does not answer for kClientTimeoutMs is closed.
//
// Call it in the loop's thread, or before the loop runs.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "net/io/event_loop.h"
#include "net/io/fd.h"
#include "net/io/tcp.h"
#include "net/io/tcp_listener.h"

namespace thalweg::net {

// `State`: what the owner stores for each client.
template <class State>
class StreamServer final : public EventLoop::Handler {
 public:
  static constexpr int kClientTimeoutMs = 60'000;

  struct Client {
    Fd fd;
    std::uint64_t number = 0;  // never given to another client
    State state = {};
    std::vector<std::byte> out = {};  // bytes to send; those before `sent` have left
    std::size_t sent = 0;
    bool waits_to_send = false;  // the loop watches whether the socket can take more
    [[nodiscard]] std::size_t unsent() const { return out.size() - sent; }
  };
  class Owner {
   public:
    virtual ~Owner() = default;
    // There are bytes to read, or the end of the stream. Returning false closes the client.
    [[nodiscard]] virtual bool on_readable(Client& client) = 0;
    // The client was closed, by either side. Its socket closes after this call.
    virtual void on_closed(Client& client) = 0;
    // Whether this client may be closed to make room for a new one.
    [[nodiscard]] virtual bool gives_way(const Client& /*client*/) const { return false; }
  };

  // Requires a listening socket; `loop` and `owner` outlive this. A client beyond the first `most`
  // takes the place of the one that came first among those that give way; if none does, it is
  // closed at once.
  StreamServer(EventLoop& loop, Fd listener, std::size_t most, Owner& owner)
      : loop_(loop), listener_(std::move(listener), most), most_(most), owner_(owner) {}
  ~StreamServer() override {
    for (const auto& [number, client] : clients_) loop_.remove(client.fd.get());
    loop_.remove(listener_.fd());
  }
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

  [[nodiscard]] Status start() { return loop_.add(listener_.fd(), EPOLLIN, *this); }
  [[nodiscard]] int listener() const { return listener_.fd(); }

  // Clients by number, which is the order in which they connected.
  [[nodiscard]] std::map<std::uint64_t, Client>& clients() { return clients_; }
  // Sends `bytes` and then `more`, now or as soon as the socket takes them. Copies both.
  void send(Client& client, std::span<const std::byte> bytes,
            std::span<const std::byte> more = {}) {
    client.out.insert(client.out.end(), bytes.begin(), bytes.end());
    client.out.insert(client.out.end(), more.begin(), more.end());
    if (!flush(client)) close(client);
  }
  // The client is closed when the owner's current method has returned, or by close_all().
  void close(const Client& client) { over_.push_back(client.number); }
  // For what is closed outside of the owner's methods, which must not call it.
  // Runs until over_ is empty, because on_closed() may close further clients.
  void close_all() {
    while (!over_.empty()) {
      const std::uint64_t number = over_.back();
      over_.pop_back();
      auto gone = clients_.extract(number);
      if (gone.empty()) continue;
      Client& client = gone.mapped();
      loop_.remove(client.fd.get());
      numbers_.erase(client.fd.get());
      owner_.on_closed(client);
    }
  }

  void on_ready(int fd, std::uint32_t events) override {
    if (fd == listener_.fd()) {
      listener_.accept_all([this](Fd client) { add(std::move(client)); }, [](int /*fd*/) {});
    } else if (const auto found = numbers_.find(fd); found != numbers_.end()) {
      Client& client = clients_.at(found->second);
      bool alive = (events & (EPOLLERR | EPOLLHUP)) == 0;
      if (alive && (events & EPOLLOUT) != 0) alive = flush(client);
      if (alive && (events & EPOLLIN) != 0) alive = owner_.on_readable(client);
      if (!alive) close(client);
    }
    close_all();
  }

 private:
  void add(Fd fd) {
    const int descriptor = fd.get();
    if (clients_.size() >= most_) make_room();
    // Destroying `fd` closes the connection, so a client too many learns of it.
    if (clients_.size() >= most_ || !loop_.add(descriptor, EPOLLIN, *this).ok()) return;
    prepare_stream(descriptor);
    set_signal_options(descriptor, kClientTimeoutMs);
    numbers_[descriptor] = ++last_number_;
    clients_[last_number_] = {.fd = std::move(fd), .number = last_number_};
  }
  void make_room() {
    for (const auto& [number, client] : clients_) {
      if (!owner_.gives_way(client)) continue;
      close(client);
      close_all();
      return;
    }
  }
  // Returns false if the connection is over.
  bool flush(Client& client) {
    while (client.unsent() > 0) {
      const ssize_t sent =
          ::send(client.fd.get(), &client.out[client.sent], client.unsent(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent < 0) break;
      client.sent += static_cast<std::size_t>(sent);
    }
    if (client.unsent() == 0) {
      client.out.clear();
      client.sent = 0;
    }
    const bool waits = client.unsent() > 0;
    if (waits != client.waits_to_send) {
      loop_.change(client.fd.get(), waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
      client.waits_to_send = waits;
    }
    return true;
  }

  EventLoop& loop_;
  TcpListener listener_;
  std::size_t most_;
  Owner& owner_;
  std::map<std::uint64_t, Client> clients_;
  std::unordered_map<int, std::uint64_t> numbers_;  // by descriptor
  std::vector<std::uint64_t> over_;                 // numbers of clients to close
  std::uint64_t last_number_ = 0;
};

}  // namespace thalweg::net
