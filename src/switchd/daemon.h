// The software switch: shards that carry packets, a controller that lets jobs in, a socket by which
// both are asked. No root, no special hardware.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "switchd/config.h"

namespace thalweg {

class SwitchDaemon {
 public:
  // Listens; its threads run from here on.
  [[nodiscard]] static Result<std::unique_ptr<SwitchDaemon>> start(const SwitchConfig& config);
  ~SwitchDaemon();
  SwitchDaemon(const SwitchDaemon&) = delete;
  SwitchDaemon& operator=(const SwitchDaemon&) = delete;

  // "host:port"
  [[nodiscard]] std::string control_address() const;
  [[nodiscard]] std::vector<std::string> data_addresses() const;

 private:
  class Core;
  explicit SwitchDaemon(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
