// How a parameter server is set up: the file of `thalweg ps --config` (docs/parameter-server.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <thalweg/communicator.h>
#include <thalweg/result.h>

#include "ps/parameter_table.h"

namespace thalweg {

struct PsConfig {
  std::string listen = "127.0.0.1:7900";  // "host:port" or "*:port"
  // Of gradients and values. What names them is always on TCP, and so are the first values.
  Transport transport = Transport::kTcp;
  // Of DLCP: the part of a gradient's packets, and of a value's, that may be lost; the second is at
  // most the first. 0: exact.
  double push_loss = 0;
  double pull_loss = 0;
  // Of ATP: "host:port" of the switch's control socket, and its token. No address: no switch.
  std::string switch_address = {};
  std::string switch_token = {};
  std::uint32_t elements = 256;  // of a packet; a switch may allow fewer
  ParameterOptions parameters;
  // For tests: EndpointOptions::lose, over DLCP.
  std::function<bool(std::uint64_t sequence)> lose = {};

  // From YAML; errors name the file and the line.
  static Result<PsConfig> parse(std::string_view text, std::string_view source);
  // What no field says alone; parse() has checked it.
  [[nodiscard]] Status validate() const;
};

}  // namespace thalweg
