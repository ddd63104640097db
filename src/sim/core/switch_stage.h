// What switches do with packets besides queueing and forwarding them.
#pragma once

#include <cstdint>

namespace thalweg::sim {

class SwitchStage {
 public:
  SwitchStage() = default;
  SwitchStage(const SwitchStage&) = delete;
  SwitchStage& operator=(const SwitchStage&) = delete;
  virtual ~SwitchStage() = default;

  // A packet for the stage (for_stage() in sim/core/packet.h) has reached the switch, and the stage
  // owns it: it gives the packet back to the fabric (forward, send_by) or absorbs it.
  virtual void on_packet(std::uint32_t node, std::uint32_t place) = 0;
  // The switch was restarted: its state is lost.
  virtual void on_restart(std::uint32_t node) = 0;
};

}  // namespace thalweg::sim
