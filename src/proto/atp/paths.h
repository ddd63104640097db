// Decides which path the packets of one ATP job take: through the switch, or directly between
// workers and servers when the switch does not answer. No I/O. Both paths give exact sums; on the
// direct one the servers do all the adding.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "proto/atp/worker_set.h"

namespace thalweg::proto {

struct AtpPathOptions {
  // Retransmissions bypass a switch that has sent nothing for this long while an answer was due.
  Duration silence = Duration::milliseconds(100);
  // After this many answers from servers, and none from the silent switch, the switch is gone.
  std::uint32_t gone_after = 8;
  // While the switch is gone, a copy of one packet in so many of each server's goes to it, so that
  // a switch that is back is noticed: the switch sums those sequences if all workers send them, and
  // its sums tell the workers. Of all servers, since a worker sends nothing to its own
  // (AtpWorkerOptions::seats).
  std::uint32_t probe_every = 64;
};

// The path of one worker's gradients.
class AtpWorkerPath {
 public:
  AtpWorkerPath(const AtpPathOptions& options, bool has_switch, std::uint32_t servers)
      : options_(options), has_switch_(has_switch), servers_(servers), gone_(!has_switch) {}

  // The worker starts to wait for answers; it waited for none before.
  void on_start(Time now) { heard_ = now; }
  // An answer arrived, from the switch or directly from a server.
  void on_answer(bool by_switch, Time now) {
    if (by_switch) {
      heard_ = now;
      answers_ = 0;
      gone_ = false;
    } else if (now - heard_ >= options_.silence && ++answers_ >= options_.gone_after) {
      gone_ = true;
    }
  }
  // Whether a packet that is sent now goes directly to its server.
  [[nodiscard]] bool direct(bool resend, Time now) const {
    return gone_ || (resend && now - heard_ >= options_.silence);
  }
  // Whether a packet that goes directly to its server goes to the switch as well. A server takes
  // the one that arrives later for a duplicate. A retransmission has been to the switch before.
  [[nodiscard]] bool probes(bool resend, std::uint64_t sequence) const {
    return has_switch_ && gone_ && !resend && sequence / servers_ % options_.probe_every == 0;
  }
  [[nodiscard]] bool gone() const { return gone_; }

 private:
  AtpPathOptions options_;
  bool has_switch_;
  std::uint32_t servers_;
  Time heard_;                 // when the switch last answered, or when waiting began
  std::uint32_t answers_ = 0;  // from servers, since the switch fell silent
  bool gone_;
};

// The path of one server's sums: each worker gets them by the path that its own packets took.
class AtpServerPath {
 public:
  // `all`: the set of the job's workers.
  AtpServerPath(const AtpWorkerSet& all, bool has_switch)
      : all_(all), direct_(has_switch ? AtpWorkerSet() : all) {}

  void on_gradient(bool by_switch, const AtpWorkerSet& workers) {
    direct_ = by_switch ? direct_ - workers : direct_ | (workers & all_);
  }
  // The subset of `workers`, to whom a sum goes, that gets it directly.
  [[nodiscard]] AtpWorkerSet direct(const AtpWorkerSet& workers) const { return workers & direct_; }

 private:
  AtpWorkerSet all_;
  AtpWorkerSet direct_;
};

}  // namespace thalweg::proto
