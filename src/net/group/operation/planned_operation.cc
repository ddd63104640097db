#include "net/group/operation/planned_operation.h"

#include <cstring>

#include "tensor/reduce.h"

namespace thalweg::net {

void PlannedOperation::average(bool mean, int ranks) {
  for (std::size_t b = 0; mean && b < memory.size(); ++b) {
    tensor::finish_mean(type, memory[b], plan->buffers()[b].bytes / size_of(type), ranks);
  }
}

// Without loss, or with one rank, nothing is missing.
void PlannedOperation::keep_residual(int /*ranks*/, const std::byte* tensor, std::size_t bytes,
                                     std::byte* residual) const {
  if (memory.empty()) std::memset(residual, 0, bytes);
  for (std::size_t b = 0; b < memory.size(); ++b) {
    std::memset(residual + (memory[b] - tensor), 0, plan->buffers()[b].bytes);
  }
}

Operation::State::Notes PlannedOperation::all_notes() const {
  Notes all = Operation::State::all_notes();
  if (!division) return all;
  for (const auto& part : division->parts) {
    if (part->notes) all.push_back(part->notes);
  }
  return all;
}

}  // namespace thalweg::net
