// A client of a switch's control socket. For one thread at a time.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/atp/job_message.h"
#include "net/control_connection.h"

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
  [[nodiscard]] bool answered() const { return connection_.answered(); }

 private:
  SwitchClient(ControlConnection connection, std::string token)
      : connection_(std::move(connection)), token_(std::move(token)) {}

  ControlConnection connection_;
  std::string token_;
};

}  // namespace thalweg
