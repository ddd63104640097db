// A shard of the switch: one thread, one UDP socket, one DataPlane. Sequences are divided among
// shards by their senders (net/atp/job_message.h, shard_of), so that a slot is one thread's alone.
//
// All methods are for other threads than the shard's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <thalweg/result.h>

#include "net/address.h"
#include "switchd/config.h"
#include "switchd/controller.h"

namespace thalweg {

class Shard {
 public:
  // Of `config.shards`, the one numbered `index`.
  [[nodiscard]] static Result<std::unique_ptr<Shard>> start(const SwitchConfig& config, int index);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  // When these return, it is so.
  [[nodiscard]] Status install(const AdmittedJob& job);
  void remove(std::uint32_t id);
  [[nodiscard]] SwitchPlane::JobStatistics statistics(const AdmittedJob& job);
  [[nodiscard]] SwitchPlane::Counters counters();

 private:
  class Core;
  explicit Shard(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

// The slots of each shard: `config.aggregators` divided, and so many that a shard's sequences,
// runs of kShardRun far apart, come upon all of them.
[[nodiscard]] std::uint32_t slots_per_shard(const SwitchConfig& config);

}  // namespace thalweg
