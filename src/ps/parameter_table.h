// The tensors of a parameter server, without I/O: counts the pushes of each worker, makes the
// optimizer's steps, and decides when a worker may see a value.
//
//   synchronous   one step when all workers have pushed, with the mean of their gradients; a
//                 worker that has pushed c times sees the value after c steps
//   asynchronous  one step per push; a worker sees the current value
//   stale         one step per push; a worker that has pushed c times waits until every other has
//                 pushed at least c − staleness times
//
// Invariants:
// 1. In the synchronous mode values do not depend on the order in which workers push: gradients are
//    added in the order of workers.
// 2. A worker that has left delays no other: the stale mode ignores it, and in the synchronous mode
//    waiting for it is an error.
// 3. A worker that comes back keeps its number of pushes. In the stale mode a lower number is
//    raised to that of the slowest other worker, so that no other waits for pushes that this one
//    missed.
// 4. Missing elements of a gradient do not count as zeros: the mean of an element is over the
//    workers whose gradient has it. An element that no worker has is 0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

namespace thalweg::ps {

enum class PsMode : std::uint8_t { kSynchronous, kAsynchronous, kStale };
enum class PsOptimizer : std::uint8_t { kSgd, kMomentum, kAdam };

struct ParameterOptions {
  int workers = 1;  // above 0
  PsMode mode = PsMode::kSynchronous;
  std::uint64_t staleness = 1;  // stale mode: pushes that a worker may be ahead of the slowest
  PsOptimizer optimizer = PsOptimizer::kSgd;
  float rate = 0.01F;     // step size
  float momentum = 0.9F;  // momentum: fraction of the last step that is kept
  float beta1 = 0.9F;     // Adam
  float beta2 = 0.999F;   // Adam
  float epsilon = 1e-8F;  // Adam
  std::uint64_t max_elements = std::uint64_t{1} << 30;  // of all tensors together
};

class ParameterTable {
 public:
  explicit ParameterTable(const ParameterOptions& options) : options_(options) {}

  struct View {
    std::span<const float> values;
    std::uint64_t clock = 0;  // steps that the values include
  };
  // Whether init() and push() would accept such a request; for use before its elements arrive.
  [[nodiscard]] Status may_init(const std::string& name, std::uint64_t elements) const;
  [[nodiscard]] Status may_push(std::uint32_t worker, const std::string& name,
                                std::uint64_t elements) const;

  // Makes the tensor. If it exists, it must have the same number of elements and keeps its values.
  [[nodiscard]] Result<View> init(const std::string& name, std::span<const float> values);
  // `missing`: ranges of elements that did not arrive, in order; those elements must be 0.
  [[nodiscard]] Status push(std::uint32_t worker, const std::string& name,
                            std::span<const float> gradient,
                            std::span<const ElementRange> missing = {});
  // Returns none if the worker must wait; ask again after a push or a leave.
  [[nodiscard]] Result<std::optional<View>> pull(std::uint32_t worker,
                                                 const std::string& name) const;

  // A push by all workers at once, in the synchronous mode. begin_push() counts it for every worker
  // and requires may_push() for each. Then end_push() makes the step with the sum of the gradients,
  // or cancel_push() undoes begin_push().
  void begin_push(const std::string& name);
  void end_push(const std::string& name, std::span<float> sum);
  void cancel_push(const std::string& name);

  void leave(std::uint32_t worker) { left_.insert(worker); }
  // The worker has connected, perhaps after it had left. Requires worker < options.workers.
  void come(std::uint32_t worker);
  [[nodiscard]] const std::set<std::uint32_t>& left() const { return left_; }

 private:
  struct Tensor {
    std::vector<float> values;
    std::vector<float> first;  // moments of the optimizer
    std::vector<float> second;
    std::uint64_t steps = 0;
    std::vector<std::uint64_t> pushes;  // of each worker
    // Synchronous mode: the gradient of each worker that has pushed for the next step, and the
    // ranges that are missing in it.
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<ElementRange>> missing;
  };
  [[nodiscard]] Result<const Tensor*> find(std::uint32_t worker, const std::string& name) const;
  void step(Tensor& tensor, std::span<const float> gradient) const;
  void step_together(Tensor& tensor) const;

  ParameterOptions options_;
  std::map<std::string, Tensor> tensors_;
  std::set<std::uint32_t> left_;
  std::uint64_t elements_ = 0;
};

}  // namespace thalweg::ps
