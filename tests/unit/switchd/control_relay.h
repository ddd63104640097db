// A process between rank 0 and the control socket of a switch, which may answer in its place.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "net/atp/switch_client.h"
#include "net/io/control_connection.h"
#include "switchd/loopback_job.h"

namespace thalweg::switchd {

class ControlRelay {
 public:
  // Returns the switch's answer to a request.
  using Ask = std::function<nlohmann::json(const nlohmann::json& request)>;
  // Returns the bytes to send as the answer to a request. None: the relay closes the connection.
  using Answer =
      std::function<std::optional<std::string>(const nlohmann::json& request, const Ask& ask)>;

  static std::string line_of(const nlohmann::json& answer) { return answer.dump() + "\n"; }

  // `control`: of the switch. `answer` is called by several threads.
  ControlRelay(std::string control, Answer answer)
      : control_(std::move(control)),
        answer_(std::move(answer)),
        listener_(std::move(net::listen_tcp("127.0.0.1:0").value())),
        thread_([this] { accept_all(); }) {}
  ~ControlRelay() {
    ending_ = true;
    thread_.join();
    for (std::thread& client : clients_) client.join();
  }
  ControlRelay(const ControlRelay&) = delete;
  ControlRelay& operator=(const ControlRelay&) = delete;

  [[nodiscard]] std::string address() const {
    return net::SocketAddress::local_of(listener_.get()).to_string();
  }

 private:
  static Time next_look() { return net::monotonic_now() + Duration::milliseconds(20); }

  void accept_all() {
    while (!ending_) {
      if (!net::wait_for_socket(listener_.get(), POLLIN, next_look())) continue;
      net::Fd client(accept(listener_.get(), nullptr, nullptr));
      clients_.emplace_back([this, fd = std::move(client)] { serve(fd); });
    }
  }
  // The job's lease is that of the connection behind this one, which ends with it.
  void serve(const net::Fd& client) {
    std::optional<net::SwitchClient> behind;
    const Ask ask = [&](const nlohmann::json& request) {
      if (!behind) {
        Result<net::SwitchClient> there =
            net::SwitchClient::connect(control_, switch_secrets(), soon());
        if (!there.ok()) return net::refusal_of(there.error());
        behind.emplace(std::move(*there));
      }
      Result<nlohmann::json> answer = behind->ask(request, soon());
      if (!answer.ok()) return net::refusal_of(answer.error());
      (*answer)["ok"] = true;
      return std::move(*answer);
    };
    std::string line;
    while (!ending_) {
      if (!net::wait_for_socket(client.get(), POLLIN, next_look())) {
        if (behind && behind->ended()) return;
        continue;
      }
      char byte = 0;
      if (recv(client.get(), &byte, 1, 0) != 1) return;
      if (byte != '\n') {
        line += byte;
        continue;
      }
      const auto request = nlohmann::json::parse(std::exchange(line, {}));
      const std::optional<std::string> text = answer_(request, ask);
      if (!text) return;
      for (std::size_t sent = 0; sent < text->size();) {
        const ssize_t now =
            send(client.get(), text->data() + sent, text->size() - sent, MSG_NOSIGNAL);
        if (now <= 0) return;
        sent += static_cast<std::size_t>(now);
      }
    }
  }

  std::string control_;
  Answer answer_;
  net::Fd listener_;
  std::atomic<bool> ending_ = false;
  std::list<std::thread> clients_;
  std::thread thread_;
};

}  // namespace thalweg::switchd
