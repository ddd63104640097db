// A worker's connection to a parameter server (`thalweg ps`, docs/parameter-server.md). The server
// says how gradients and values travel: over TCP; over DLCP, with a bounded loss if it is set up
// so; or gradients over ATP, summed in a switch.
//
//   auto server = ParameterClient::connect({.server = "10.0.0.1:7900", .worker = 2});
//   auto status = server->init("layer1", weights);   // every worker; the first one's value counts
//   status = server->push("layer1", gradient);
//   auto steps = server->pull("layer1", weights);    // waits as the server's mode says
//
// For one thread at a time. After an error of the connection every call fails; what the server
// refuses leaves the connection as it was.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <thalweg/result.h>

namespace thalweg {

struct ParameterClientOptions {
  std::string server;        // "host:port"
  std::uint32_t worker = 0;  // below the number of workers that the server waits for
  // Of connect() and of every call.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  // For tests: EndpointOptions::lose, over DLCP.
  std::function<bool(std::uint64_t sequence)> lose = {};
};

class ParameterClient {
 public:
  [[nodiscard]] static Result<ParameterClient> connect(const ParameterClientOptions& options);
  ~ParameterClient();
  ParameterClient(ParameterClient&&) noexcept;
  ParameterClient& operator=(ParameterClient&&) noexcept;

  // Names a tensor. Its value is that of whoever comes first, and is in `values` afterwards.
  [[nodiscard]] Status init(const std::string& name, std::span<float> values);
  // Over ATP it waits for the others, who must push the same tensors in the same order.
  [[nodiscard]] Status push(const std::string& name, std::span<const float> gradient);
  // Returns how many steps are in the value. Over DLCP with a bound above 0 what does not arrive of
  // it is as before.
  [[nodiscard]] Result<std::uint64_t> pull(const std::string& name, std::span<float> values);

 private:
  class Core;
  explicit ParameterClient(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
