// What switches do with packets beyond queueing and passing them on.
#pragma once

#include <cstdint>

namespace thalweg {

class SwitchStage {
 public:
  SwitchStage() = default;
  SwitchStage(const SwitchStage&) = delete;
  SwitchStage& operator=(const SwitchStage&) = delete;
  virtual ~SwitchStage() = default;

  // A packet for the stage (for_stage() in sim/packet.h) has reached the switch and is the stage's:
  // it gives it back to the fabric (forward, send_by), or absorbs it.
  virtual void on_packet(std::uint32_t node, std::uint32_t place) = 0;
  // The switch was restarted: its state is lost.
  virtual void on_restart(std::uint32_t node) = 0;
};

}  // namespace thalweg
