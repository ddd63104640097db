// The configuration of a software switch: the file of `thalweg switch --config` (docs/switch.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/greeting.h"
#include "wire/authenticate.h"

namespace thalweg::switchd {

struct SwitchConfig {
  // "host:port" of the first shard's data socket; shard i uses that port + i. With port 0 each
  // shard takes any free port.
  std::string data = "127.0.0.1:0";
  // "host:port" of the control socket, or "*:port".
  std::string control = "127.0.0.1:7700";
  // The host that the switch names when it tells jobs its data addresses. Empty: that of `data`.
  std::string advertise = {};
  // A secret that requests must carry. Empty: everyone who can reach the control socket may create
  // and remove jobs. None: as if empty, unless draw_token() draws one.
  std::optional<std::string> token = {};
  // The key that clients of the control socket must prove, as its file holds it; not in the
  // configuration file. None: they are served in the clear, and a client with a key is refused.
  std::optional<wire::JobKey> key = {};
  // How long such a client may take to prove it; not in the configuration file.
  Duration greeting_time = net::kGreetingTime;
  // Threads, each with a data socket and a part of the slots.
  int shards = 1;
  // The number of UDP ports from which the first shard sends to other switches of a job, so that
  // the network spreads these packets over its routes. The ports after the first follow those of
  // the shards; with port 0 in `data` each is any free one.
  int paths = 1;
  // Slots of all shards together; divided evenly among them.
  std::uint32_t aggregators = 16'384;
  // Elements (of 32 bits) of the largest packet that can be aggregated.
  std::uint32_t elements = 256;
  std::uint32_t max_jobs = 64;
  // Jobs at a time that clients of one address may have, so that no host takes all of max_jobs.
  std::uint32_t max_jobs_per_host = 32;
  // Requests a second that the control socket serves of clients of one address.
  std::uint32_t requests_per_second = 1000;
  // A job that was created without a lease ends when no packet of it has come for this long.
  std::uint32_t idle_seconds = 3600;
  // Buffer of each data socket, in bytes.
  std::uint32_t receive_buffer = 8U << 20;
  // Devices at which packets of up to 64 elements are aggregated in the kernel (XDP, needs root).
  std::vector<std::string> xdp = {};
  // Runs XDP behind the driver even if the driver supports it: slower, but works with every device.
  bool xdp_generic = false;

  // Reads YAML; errors name the file and the line.
  static Result<SwitchConfig> parse(std::string_view text, std::string_view source);

  // Draws a random token if none was given, not even an empty one, and other hosts can reach the
  // control socket and there is no key. Returns whether it did.
  bool draw_token();
};

}  // namespace thalweg::switchd
