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
// 3. A worker that comes back has pushed as often as before; in the stale mode, if that is less,
//    as often as the slowest of the others, so that nobody waits for what it missed.
// 4. What is missing of a gradient is nobody's zero: a mean is of those that are there. Where there
//    is none the gradient is 0.
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
  // Whether these would be refused, before the elements are there.
  [[nodiscard]] Status may_init(const std::string& name, std::uint64_t elements) const;
  [[nodiscard]] Status may_push(std::uint32_t worker, const std::string& name,
                                std::uint64_t elements) const;

  // Makes the tensor unless there is one, which must have as many elements.
  [[nodiscard]] Result<View> init(const std::string& name, std::span<const float> values);
  // `missing`: elements that did not arrive, in order; they are 0.
  [[nodiscard]] Status push(std::uint32_t worker, const std::string& name,
                            std::span<const float> gradient,
                            std::span<const ElementRange> missing = {});
  // None: not yet; ask again after a push or a leave.
  [[nodiscard]] Result<std::optional<View>> pull(std::uint32_t worker,
                                                 const std::string& name) const;

  // A push of all workers at once, in the synchronous mode: each may_push(). From begin_push() on
  // it counts as pushed; end_push() makes the step, cancel_push() undoes it.
  void begin_push(const std::string& name);
  void end_push(const std::string& name, std::span<float> sum);
  void cancel_push(const std::string& name);

  void leave(std::uint32_t worker) { left_.insert(worker); }
  // Requires worker < workers.
  void come(std::uint32_t worker);
  [[nodiscard]] const std::set<std::uint32_t>& left() const { return left_; }

 private:
  struct Tensor {
    std::vector<float> values;
    std::vector<float> first;  // moments of the optimizer
    std::vector<float> second;
    std::uint64_t steps = 0;
    std::vector<std::uint64_t> pushes;  // of each worker
    // Synchronous: of workers that are a step ahead, and what is missing in them.
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

}  // namespace thalweg
