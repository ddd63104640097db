// By which way the packets of one ATP job go: through the switch, or straight between workers and
// servers when the switch does not answer. No I/O. Either way is exact; by the direct one the
// servers do all the adding.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace thalweg {

struct AtpPathOptions {
  // A switch from which nothing has come for so long, while something was awaited, is passed by.
  Duration silence = Duration::milliseconds(100);
  // So many answers from servers and none from the switch: it is gone.
  std::uint32_t gone_after = 8;
};

// Of a worker's gradients.
class AtpWorkerPath {
 public:
  AtpWorkerPath(const AtpPathOptions& options, bool has_switch)
      : options_(options), gone_(!has_switch) {}

  // Nothing was awaited until now.
  void on_start(Time now) { heard_ = now; }
  void on_answer(bool by_switch, Time now) {
    if (by_switch) {
      heard_ = now;
      answers_ = 0;
      gone_ = false;
    } else if (now - heard_ >= options_.silence && ++answers_ >= options_.gone_after) {
      gone_ = true;
    }
  }
  // Whether a packet goes straight to its server now.
  [[nodiscard]] bool direct(bool resend, Time now) const {
    return gone_ || (resend && now - heard_ >= options_.silence);
  }
  [[nodiscard]] bool gone() const { return gone_; }

 private:
  AtpPathOptions options_;
  Time heard_;  // from the switch, or when waiting began
  std::uint32_t answers_ = 0;
  bool gone_;
};

// Of a server's sums: each worker gets them the way that its own packets came.
class AtpServerPath {
 public:
  // `all`: the set of the job's workers.
  AtpServerPath(std::uint32_t all, bool has_switch) : all_(all), direct_(has_switch ? 0 : all) {}

  void on_gradient(bool by_switch, std::uint32_t workers) {
    direct_ = by_switch ? direct_ & ~workers : direct_ | (workers & all_);
  }
  // Of those that a sum is for: who gets it straight.
  [[nodiscard]] std::uint32_t direct(std::uint32_t workers) const { return workers & direct_; }

 private:
  std::uint32_t all_;
  std::uint32_t direct_;
};

}  // namespace thalweg
