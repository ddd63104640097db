// Shard: a part of the software switch with one thread, one UDP socket and one DataPlane. Senders
// divide the sequences among the shards (net/atp/job_message.h, shard_of), so that only one thread
// uses a slot.
//
// All methods must be called from other threads than the shard's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/io/address.h"
#include "switchd/config.h"
#include "switchd/controller.h"
#include "switchd/own_addresses.h"

namespace thalweg::switchd {

class Shard {
 public:
  // Starts the shard numbered `index`, below config.shards.
  [[nodiscard]] static Result<std::unique_ptr<Shard>> start(const SwitchConfig& config, int index);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  // Further ports from which it sends to other switches; only the first shard has any.
  [[nodiscard]] std::vector<std::uint16_t> source_ports() const;
  // These run in the shard's thread; they return once it is done.
  // Packets that seem to come from these addresses are dropped from now on.
  void know_own(const OwnAddresses& own);
  [[nodiscard]] Status install(const AdmittedJob& job);
  void remove(std::uint32_t id);
  [[nodiscard]] SwitchPlane::JobStatistics statistics(const AdmittedJob& job);
  [[nodiscard]] SwitchPlane::Counters counters();

 private:
  class Core;
  explicit Shard(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

// The number of slots of each shard: config.aggregators divided by the shards, reduced so that a
// shard's sequences, which come in runs of kShardRun with gaps between them, reach all slots.
[[nodiscard]] std::uint32_t slots_per_shard(const SwitchConfig& config);

}  // namespace thalweg::switchd
