// Pushes over ATP: all workers and this server are one job, whose gradients a switch sums on their
// way. Used by the server's thread only.
//
// Workers join; when all have joined, the server creates the job and tells each worker. For a push,
// every worker names the tensor and sends the exponents of its blocks. When all have done so, the
// server sends the largest exponents to each, and the workers send their gradients. When the sum is
// complete, the server makes the step and tells each worker.
//
// Invariants:
// 1. A group lives as long as all its workers: when one leaves, those that wait are told, and the
//    next group begins when all have joined again.
// 2. A push happens for all workers or for none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/atp/node.h"
#include "net/atp/switch_client.h"
#include "net/io/address.h"
#include "ps/atp_sums.h"
#include "ps/config.h"
#include "ps/parameter_table.h"
#include "wire/ps_message.h"

namespace thalweg::ps {

class AtpGroup {
 public:
  struct Reply {
    std::uint32_t worker = 0;
    wire::PsKind kind = wire::PsKind::kValue;
    std::string text = {};  // the text of an error, or the bytes of another answer
    ErrorCode code = ErrorCode::kBadArgument;  // of an error
    std::optional<int> rank = {};              // the worker that an error blames
  };
  using Replies = std::vector<Reply>;

  // `config` and `table` outlive this. `post` makes the server's thread run some work; it is called
  // from other threads. `deliver` sends replies; it is called in the server's thread.
  AtpGroup(const PsConfig& config, ParameterTable& table,
           std::function<void(std::function<void()>)> post,
           std::function<void(const Replies&)> deliver)
      : config_(config), table_(table), post_(std::move(post)), deliver_(std::move(deliver)) {}

  // All three return the replies that are due, to any worker. `address`: that of the worker's ATP
  // socket. `local`: this server's address on the worker's stream.
  [[nodiscard]] Replies join(std::uint32_t worker, const std::string& address,
                             const net::SocketAddress& local);
  [[nodiscard]] Replies push(std::uint32_t worker, const wire::PsHeader& request,
                             const std::string& name, std::span<const std::byte> exponents);
  [[nodiscard]] Replies leave(std::uint32_t worker);

  // Bytes of gradient packets that have reached this server.
  [[nodiscard]] std::uint64_t bytes();

 private:
  // A push that workers have announced; `running` once all have.
  struct Push {
    std::string name;
    std::uint64_t elements = 0;
    std::map<std::uint32_t, std::vector<tensor::BlockExponent>> exponents = {};  // by worker
    bool running = false;
  };
  [[nodiscard]] std::size_t workers() const {
    return static_cast<std::size_t>(config_.parameters.workers);
  }
  [[nodiscard]] Result<std::string> form(const net::SocketAddress& local);
  [[nodiscard]] Replies go();
  void end(std::uint64_t group, std::vector<float> sum, bool saturated);
  void dissolve();
  [[nodiscard]] Replies to_all(wire::PsKind kind, const std::string& text) const;
  [[nodiscard]] Replies refuse_all(const Error& why) const;

  const PsConfig& config_;
  ParameterTable& table_;
  std::function<void(std::function<void()>)> post_;
  std::function<void(const Replies&)> deliver_;

  std::map<std::uint32_t, std::string>
      joined_;                // addresses by worker; empty while there is a group
  std::uint64_t number_ = 0;  // of the current or the last group
  std::uint32_t block_ = 0;
  std::optional<Push> push_;
  std::uint64_t bytes_ = 0;                   // bytes() of groups that have ended
  std::unique_ptr<net::SwitchClient> lease_;  // the job ends with this connection
  std::shared_ptr<AtpSums> sums_;
  std::unique_ptr<net::AtpNode> node_;  // null if there is no group
};

}  // namespace thalweg::ps
