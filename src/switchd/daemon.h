// SwitchDaemon: the software switch. It has shards that carry packets, a controller that admits
// jobs, and a control socket. It needs neither root nor special hardware (except with `xdp`).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "switchd/config.h"

namespace thalweg::switchd {

class SwitchDaemon {
 public:
  // Listens, and starts the threads, which run until the daemon is destroyed.
  [[nodiscard]] static Result<std::unique_ptr<SwitchDaemon>> start(const SwitchConfig& config);
  ~SwitchDaemon();
  SwitchDaemon(const SwitchDaemon&) = delete;
  SwitchDaemon& operator=(const SwitchDaemon&) = delete;

  // Both as "host:port"; one data address per shard.
  [[nodiscard]] std::string control_address() const;
  [[nodiscard]] std::vector<std::string> data_addresses() const;

 private:
  class Core;
  explicit SwitchDaemon(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg::switchd
