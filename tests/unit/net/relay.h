// Somebody between two ranks: listens, and passes the streams that are made to it on to another
// address, each direction through a filter.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/io/address.h"
#include "net/io/fd.h"
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {

class Relay {
 public:
  // Changes the next bytes of a direction. False: both directions of the stream are cut.
  using Filter = std::function<bool(std::vector<std::byte>& bytes)>;
  // Makes the filter of one direction of stream `number`, which counts from 0. `forth`: the
  // direction of the end that connected.
  using MakeFilter = std::function<Filter(std::size_t number, bool forth)>;

  Relay(std::string target, MakeFilter make_filter)
      : target_(std::move(target)),
        make_filter_(std::move(make_filter)),
        listener_(std::move(listen_tcp("127.0.0.1:0").value())),
        thread_([this] { accept_all(); }) {}
  ~Relay() {
    over_ = true;
    thread_.join();
    for (Way& way : ways_) cut(way);
    for (Way& way : ways_) way.thread.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] std::string address() const {
    return SocketAddress::local_of(listener_.get()).to_string();
  }

 private:
  static constexpr std::size_t kRead = std::size_t{16} << 10;

  struct Way {
    std::shared_ptr<Fd> from;
    std::shared_ptr<Fd> to;
    std::thread thread = {};
  };

  static void cut(const Way& way) {
    shutdown(way.from->get(), SHUT_RDWR);
    shutdown(way.to->get(), SHUT_RDWR);
  }
  void accept_all() {
    for (std::size_t number = 0; !over_;) {
      pollfd ready{listener_.get(), POLLIN, 0};
      if (poll(&ready, 1, 10) <= 0) continue;
      const auto near = std::make_shared<Fd>(accept(listener_.get(), nullptr, nullptr));
      Result<Fd> far = connect_tcp(*SocketAddress::resolve(target_), target_,
                                   monotonic_now() + Duration::seconds(10));
      if (!near->valid() || !far.ok()) continue;
      const auto out = std::make_shared<Fd>(std::move(*far));
      pass({near, out}, make_filter_(number, true));
      pass({out, near}, make_filter_(number, false));
      ++number;
    }
  }
  void pass(Way way, Filter filter) {
    Way& kept = ways_.emplace_back(std::move(way));
    kept.thread = std::thread([way = Way{kept.from, kept.to}, filter = std::move(filter)] {
      if (copy(way, filter)) {
        shutdown(way.to->get(), SHUT_WR);
      } else {
        cut(way);
      }
    });
  }
  // False: the filter cut the stream.
  static bool copy(const Way& way, const Filter& filter) {
    std::vector<std::byte> bytes;
    while (true) {
      pollfd ready{way.from->get(), POLLIN, 0};
      poll(&ready, 1, -1);
      bytes.resize(kRead);
      const ssize_t got = recv(way.from->get(), bytes.data(), bytes.size(), 0);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return true;
      bytes.resize(static_cast<std::size_t>(got));
      const bool goes_on = filter(bytes);
      if (!send_all(way.to->get(), bytes)) return true;
      if (!goes_on) return false;
    }
  }
  static bool send_all(int to, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      pollfd room{to, POLLOUT, 0};
      poll(&room, 1, -1);
      const ssize_t sent = send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }

  std::string target_;
  MakeFilter make_filter_;
  Fd listener_;
  std::atomic<bool> over_ = false;
  std::list<Way> ways_;  // used by thread_, and after its end
  std::thread thread_;
};

}  // namespace thalweg::net
