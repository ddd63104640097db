// The client side of a control socket (switchd/control_server.h is the server side). Requests and
// answers are JSON objects, one per line; each request is answered in turn. Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/io/fd.h"
#include "wire/sealed_bytes.h"

namespace thalweg::net {

// A longer request ends the connection, and so does a longer answer. Statistics are the longest
// answers.
inline constexpr std::size_t kMaxControlLine = std::size_t{1} << 16;
inline constexpr std::size_t kMaxControlAnswer = std::size_t{4} << 20;

// A refusal as a JSON object with the fields "error" and "code", and the error in such an object.
[[nodiscard]] nlohmann::json refusal_of(const Error& error);
[[nodiscard]] Error refusal_in(const nlohmann::json& fields);

// Parses one line as a JSON object. The error is meant to be sent to the other end.
[[nodiscard]] Result<nlohmann::json> parse_control_line(std::string_view line);

class ControlConnection {
 public:
  // `name`: what error messages call the other end. `seal`: of a stream whose ends have proved a
  // key to each other (net/auth/greeting.h); null: the lines are sent as they are.
  ControlConnection(Fd fd, std::string name, std::unique_ptr<wire::BytesSeal> seal = nullptr)
      : fd_(std::move(fd)), name_(std::move(name)), seal_(std::move(seal)) {}

  // Sends the request and returns the answer without its "ok" field. A refusal is an error.
  [[nodiscard]] Result<nlohmann::json> ask(const nlohmann::json& request, Time until);
  // The two halves of ask(). If answer() fails because it was too early (kTimeout, and not
  // answered()), it may be called again.
  [[nodiscard]] Status send_request(const nlohmann::json& request, Time until);
  [[nodiscard]] Result<nlohmann::json> answer(Time until);
  // Whether the last request got any answer. A refusal is one too, and so is a line that is none.
  [[nodiscard]] bool answered() const { return answered_; }
  // Whether the other end has closed the connection. Does not wait. Call it while no request is
  // without its answer: what the other end sends unasked is dropped.
  [[nodiscard]] bool ended();

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  // Adds bytes that were read to in_.
  [[nodiscard]] Status take(std::span<const std::byte> bytes);
  // Reads the next line, without its newline.
  [[nodiscard]] Result<std::string> hear(Time until);

  Fd fd_;
  std::string name_;
  std::string in_;
  std::unique_ptr<wire::BytesSeal> seal_;
  std::vector<std::byte> sealed_;  // bytes that were read, and not opened yet
  bool answered_ = false;
};

}  // namespace thalweg::net
