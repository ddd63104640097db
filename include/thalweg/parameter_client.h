// A worker's connection to a parameter server (`thalweg ps`, docs/parameter-server.md). The server
// decides how gradients and values travel: over TCP, over DLCP with or without a bounded loss, or
// with the gradients over ATP, summed in a switch.
//
//   auto server = ParameterClient::connect({.server = "10.0.0.1:7900", .worker = 2});
//   auto status = server->init("layer1", weights);   // every worker; the first one's value counts
//   status = server->push("layer1", gradient);
//   auto steps = server->pull("layer1", weights);    // waits as the server's mode says
//
// One thread at a time may use a client. After an error of the connection every call fails. A call
// that the server refuses leaves the connection usable.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <thalweg/result.h>

namespace thalweg {

struct ParameterClientOptions {
  std::string server;        // "host:port"
  std::uint32_t worker = 0;  // below the number of workers that the server waits for
  // The limit of connect() and of every call.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
};

class ParameterClient {
 public:
  [[nodiscard]] static Result<ParameterClient> connect(const ParameterClientOptions& options);
  ~ParameterClient();
  ParameterClient(ParameterClient&&) noexcept;
  ParameterClient& operator=(ParameterClient&&) noexcept;

  // Names a tensor. Its value is that of the first worker to name it, and is copied into `values`.
  [[nodiscard]] Status init(const std::string& name, std::span<float> values);
  // Over ATP it waits for the other workers, which must push the same tensors in the same order.
  [[nodiscard]] Status push(const std::string& name, std::span<const float> gradient);
  // Returns the number of steps in the value. Over DLCP with a loss bound above 0, elements of
  // `values` that do not arrive are not changed.
  [[nodiscard]] Result<std::uint64_t> pull(const std::string& name, std::span<float> values);

 private:
  class Core;
  explicit ParameterClient(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
