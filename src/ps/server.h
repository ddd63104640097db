// The parameter server: ParameterTable behind TCP, in one thread.
#pragma once

#include <memory>
#include <string>

#include <thalweg/result.h>

#include "ps/config.h"

namespace thalweg {

class ParameterServer {
 public:
  static constexpr std::size_t kMaxClients = 4096;

  // Listens; its thread runs from here on.
  [[nodiscard]] static Result<std::unique_ptr<ParameterServer>> start(const PsConfig& config);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // "host:port"
  [[nodiscard]] const std::string& address() const;

 private:
  class Core;
  explicit ParameterServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
