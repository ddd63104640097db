// How a software switch is set up: the file of `thalweg switch --config` (docs/switch.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

struct SwitchConfig {
  // "host:port" of the first shard's data socket; shard i has the port after it by i. Port 0: any
  // for each.
  std::string data = "127.0.0.1:0";
  // "host:port" of the control socket, or "*:port". Whoever reaches it may create jobs, unless
  // there is a token.
  std::string control = "127.0.0.1:7700";
  // Where it is to be found: data addresses are told with this host. Empty: that of `data`.
  std::string advertise = {};
  // A secret that requests must carry; empty: none.
  std::string token = {};
  // Threads with a data socket and a part of the aggregators each.
  int shards = 1;
  // In all; divided among the shards.
  std::uint32_t aggregators = 16'384;
  // Of 32 bits, of the largest packet that can be aggregated.
  std::uint32_t elements = 256;
  std::uint32_t max_jobs = 64;
  // Of each data socket, in bytes.
  std::uint32_t receive_buffer = 8U << 20;
  // Devices at which packets of up to 64 elements are aggregated in the kernel (XDP, needs root).
  std::vector<std::string> xdp = {};
  // Behind the driver, also where the driver could do it: slower, and works with every device.
  bool xdp_generic = false;

  // From YAML; errors name the file and the line.
  static Result<SwitchConfig> parse(std::string_view text, std::string_view source);
};

}  // namespace thalweg
