// The tensors of a parameter server, without I/O: who has pushed what, the optimizer's step, and
// when a worker may see a value.
//
//   synchronous   a step when all workers have pushed, with the mean of their gradients; a worker
//                 sees the value with as many steps as it has pushed
//   asynchronous  a step with every push; a worker sees what there is
//   stale         a step with every push; a worker that has pushed c times waits until every other
//                 has pushed at least c − staleness times
//
// 1. In the synchronous mode values do not depend on the order in which workers come: gradients are
//    added in the order of workers.
// 2. A worker that has left holds nobody up: in the stale mode it no longer counts, in the
//    synchronous one waiting for it is an error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

enum class PsMode : std::uint8_t { kSynchronous, kAsynchronous, kStale };
enum class PsOptimizer : std::uint8_t { kSgd, kMomentum, kAdam };

struct ParameterOptions {
  int workers = 1;  // above 0
  PsMode mode = PsMode::kSynchronous;
  std::uint64_t staleness = 1;  // of the stale mode: pushes that a worker may be ahead
  PsOptimizer optimizer = PsOptimizer::kSgd;
  float rate = 0.01F;     // step size
  float momentum = 0.9F;  // of momentum: what is kept of the last step
  float beta1 = 0.9F;     // of Adam
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  std::uint64_t max_elements = std::uint64_t{1} << 30;  // of all tensors
};

class ParameterTable {
 public:
  explicit ParameterTable(const ParameterOptions& options) : options_(options) {}

  struct View {
    std::span<const float> values;
    std::uint64_t clock = 0;  // steps that are in it
  };
  // Makes the tensor unless there is one, which must have as many elements.
  [[nodiscard]] Result<View> init(const std::string& name, std::span<const float> values);
  [[nodiscard]] Status push(std::uint32_t worker, const std::string& name,
                            std::span<const float> gradient);
  // None: not yet; ask again after a push or a leave.
  [[nodiscard]] Result<std::optional<View>> pull(std::uint32_t worker, const std::string& name);
  void leave(std::uint32_t worker) { left_.insert(worker); }

 private:
  struct Tensor {
    std::vector<float> values;
    std::vector<float> first;  // moments of the optimizer
    std::vector<float> second;
    std::uint64_t steps = 0;
    std::vector<std::uint64_t> pushes;          // of each worker
    std::vector<std::vector<float>> gradients;  // synchronous: of workers that are a step ahead
  };
  Result<Tensor*> find(std::uint32_t worker, const std::string& name);
  void step(Tensor& tensor, std::span<const float> gradient) const;
  void step_together(Tensor& tensor) const;

  ParameterOptions options_;
  std::map<std::string, Tensor> tensors_;
  std::set<std::uint32_t> left_;
  std::uint64_t elements_ = 0;
};

}  // namespace thalweg
