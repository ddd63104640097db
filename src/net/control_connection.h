// The asking side of a control socket that speaks JSON, one object a line, each request answered in
// turn (switchd/control_server.h is the other). For one thread at a time.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/fd.h"

namespace thalweg {

class ControlConnection {
 public:
  // `name`: how errors call the other end.
  ControlConnection(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  // The answer, without "ok". A refusal is an error.
  [[nodiscard]] Result<nlohmann::json> ask(const nlohmann::json& request, Time until);
  // Whether the last request was answered, be it by a refusal.
  [[nodiscard]] bool answered() const { return answered_; }

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  // The next line.
  [[nodiscard]] Result<std::string> hear(Time until);

  Fd fd_;
  std::string name_;
  std::string in_;
  bool answered_ = false;
};

}  // namespace thalweg
