// A client of a switch's control socket. For one thread at a time.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/atp/job_message.h"
#include "net/fd.h"

namespace thalweg {

class SwitchClient {
 public:
  // `address`: "host:port". `token`: that of the switch's configuration; empty if it has none.
  [[nodiscard]] static Result<SwitchClient> connect(const std::string& address,
                                                    const std::string& token, Time until);

  // The job is the connection's if the request asks for a lease.
  [[nodiscard]] Result<JobGrant> create(const JobRequest& request, Time until);
  // What the switch answers to {"op": op, ...fields}, without "ok". Its refusal is an error.
  [[nodiscard]] Result<nlohmann::json> ask(nlohmann::json request, Time until);

  // Whether the switch has answered the last request, be it by a refusal.
  [[nodiscard]] bool answered() const { return answered_; }

 private:
  // The next line.
  [[nodiscard]] Result<std::string> hear(Time until);
  SwitchClient(Fd fd, std::string name, std::string token)
      : fd_(std::move(fd)), name_(std::move(name)), token_(std::move(token)) {}

  Fd fd_;
  std::string name_;
  std::string token_;
  std::string in_;
  bool answered_ = false;
};

}  // namespace thalweg
