// The configuration of a parameter server: the file of `thalweg ps --config`
// (docs/parameter-server.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <thalweg/communicator.h>
#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/greeting.h"
#include "ps/parameter_table.h"
#include "wire/authenticate.h"

namespace thalweg::ps {

struct PsConfig {
  std::string listen = "127.0.0.1:7900";  // "host:port" or "*:port"
  // How gradients and values travel. Names of tensors and initial values always go over TCP.
  Transport transport = Transport::kTcp;
  // For DLCP: the fraction of packets that may be lost, of a gradient and of a value. 0: exact.
  // pull_loss is at most push_loss.
  double push_loss = 0;
  double pull_loss = 0;
  // For ATP: "host:port" of the switch's control socket, and its token. An empty address: no
  // switch.
  std::string switch_address = {};
  std::string switch_token = {};
  std::optional<wire::JobKey> switch_key = {};  // of the switch; not in the file
  // The key that workers must prove, as its file holds it; not in the file. None: they are served
  // in the clear, and a worker with a key is refused.
  std::optional<wire::JobKey> key = {};
  // How long a worker may take to prove it; not in the file.
  Duration greeting_time = net::kGreetingTime;
  std::uint32_t elements = 256;  // in a packet; a switch may allow fewer
  ParameterOptions parameters;

  // Reads YAML and validates it. Errors name `source` and the line.
  static Result<PsConfig> parse(std::string_view text, std::string_view source);
  // Checks the rules that involve several fields.
  [[nodiscard]] Status validate() const;
};

}  // namespace thalweg::ps
