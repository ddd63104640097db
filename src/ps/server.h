// The parameter server: ParameterTable behind TCP, DLCP and ATP, in one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <thalweg/result.h>

#include "ps/config.h"

namespace thalweg::ps {

class ParameterServer {
 public:
  static constexpr std::size_t kMaxClients = 4096;

  struct Counters {
    std::uint64_t pushes = 0;         // over ATP a push by all workers counts once
    std::uint64_t pulls = 0;          // pulls that were answered
    std::uint64_t push_bytes = 0;     // of gradients that arrived; over ATP, of packets
    std::uint64_t lost_elements = 0;  // of gradients, within the loss bound
    std::uint64_t refused = 0;        // requests that were answered with an error
    std::uint64_t changed = 0;        // of these, changed on their way or of another version
  };

  // Listens and starts the server's thread.
  [[nodiscard]] static Result<std::unique_ptr<ParameterServer>> start(const PsConfig& config);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // "host:port"
  [[nodiscard]] const std::string& address() const;
  [[nodiscard]] Counters counters();

 private:
  class Core;
  explicit ParameterServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg::ps
