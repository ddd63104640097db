// Pushes over ATP: all workers and this server as one job, whose gradients a switch sums on their
// way. For the server's thread.
//
// Workers join; when all have, the job is made and each is told. Then every worker says which
// tensor it pushes, with the exponents of its blocks; when all have, each is told the largest, and
// sends. The step is made when the sum is there, and each is told.
//
// 1. A group lives as long as all its workers: when one leaves, all who wait are told, and the next
//    group begins when all have joined again.
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

#include "net/address.h"
#include "net/atp/node.h"
#include "net/atp/switch_client.h"
#include "ps/atp_sums.h"
#include "ps/config.h"
#include "ps/parameter_table.h"
#include "wire/ps_message.h"

namespace thalweg {

class AtpGroup {
 public:
  struct Reply {
    std::uint32_t worker = 0;
    PsKind kind = PsKind::kValue;
    std::string text = {};  // an error's text, others' bytes
  };
  using Replies = std::vector<Reply>;

  // Both outlive it. `post` runs work in the server's thread, and is called from others.
  AtpGroup(const PsConfig& config, ParameterTable& table,
           std::function<void(std::function<void()>)> post,
           std::function<void(const Replies&)> deliver)
      : config_(config), table_(table), post_(std::move(post)), deliver_(std::move(deliver)) {}

  // A worker's ATP socket is at `address`; `local` is this server's address towards it.
  [[nodiscard]] Replies join(std::uint32_t worker, const std::string& address,
                             const SocketAddress& local);
  [[nodiscard]] Replies push(std::uint32_t worker, const PsHeader& request, const std::string& name,
                             std::span<const std::byte> exponents);
  [[nodiscard]] Replies leave(std::uint32_t worker);

  // Bytes of gradients that have reached this server.
  [[nodiscard]] std::uint64_t bytes();

 private:
  // A push that workers have announced, and of all once `running`.
  struct Push {
    std::string name;
    std::uint64_t elements = 0;
    std::map<std::uint32_t, std::vector<BlockExponent>> exponents = {};  // by worker
    bool running = false;
  };
  [[nodiscard]] std::size_t workers() const {
    return static_cast<std::size_t>(config_.parameters.workers);
  }
  [[nodiscard]] Result<std::string> form(const SocketAddress& local);
  [[nodiscard]] Replies go();
  void end(std::uint64_t group, std::vector<float> sum, bool saturated);
  void dissolve();
  [[nodiscard]] Replies to_all(PsKind kind, const std::string& text) const;

  const PsConfig& config_;
  ParameterTable& table_;
  std::function<void(std::function<void()>)> post_;
  std::function<void(const Replies&)> deliver_;

  std::map<std::uint32_t, std::string> joined_;  // address by worker; empty while there is a group
  std::uint64_t number_ = 0;                     // of the group; the last one's if there is none
  std::uint32_t block_ = 0;
  std::optional<Push> push_;
  std::uint64_t bytes_ = 0;              // of groups that are over
  std::unique_ptr<SwitchClient> lease_;  // the job lasts as long as this connection
  std::shared_ptr<AtpSums> sums_;
  std::unique_ptr<AtpNode> node_;  // none: there is no group
};

}  // namespace thalweg
