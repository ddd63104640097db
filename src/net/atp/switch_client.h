// A client of a switch's control socket. Not thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/atp/job_message.h"
#include "net/atp/switch_secrets.h"
#include "net/io/control_connection.h"

namespace thalweg::net {

class SwitchClient {
 public:
  // `address`: "host:port". If the keys do not fit, the error has the code kMismatch.
  // `listens`: where nobody listens, it fails at once; otherwise it tries until the time is over,
  // because the switch may just be starting.
  [[nodiscard]] static Result<SwitchClient> connect(const std::string& address,
                                                    const SwitchSecrets& secrets, Time until,
                                                    bool listens = false);

  // Creates a job. If the request asks for a lease, the job ends with this connection. An answer
  // that cannot be that of a switch to this request is an error that says so.
  [[nodiscard]] Result<JobGrant> create(const JobRequest& request, Time until);
  // The two halves of create(). If created() fails because it was too early (kTimeout, and not
  // answered()), it may be called again.
  [[nodiscard]] Status send_create(const JobRequest& request, Time until);
  [[nodiscard]] Result<JobGrant> created(const JobRequest& request, Time until);
  // Sends a request {"op": ..., other fields} and returns the switch's answer without its "ok"
  // field. A refusal is an error.
  [[nodiscard]] Result<nlohmann::json> ask(nlohmann::json request, Time until);

  // Whether the last request got any answer; a refusal is one too.
  [[nodiscard]] bool answered() const { return connection_.answered(); }
  // Whether the switch has closed the connection.
  [[nodiscard]] bool ended() { return connection_.ended(); }

 private:
  SwitchClient(ControlConnection connection, std::string token)
      : connection_(std::move(connection)), token_(std::move(token)) {}

  ControlConnection connection_;
  std::string token_;
};

}  // namespace thalweg::net
