// The public API: checks the caller's arguments, and lays the plan over the caller's memory.
#include <thalweg/communicator.h>

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "net/group/api/communicator_core.h"
#include "net/group/api/layout.h"
#include "tensor/reduce.h"

namespace thalweg {
namespace {

using Planned = net::PlannedOperation;

std::size_t bytes_of(const TensorSpan& tensor) {
  return static_cast<std::size_t>(tensor.elements) * size_of(tensor.type);
}

// Error feedback: adds what was missing last time to the contribution, and keeps the contribution
// in `residual`.
void contribute(const TensorSpan& tensor, void* residual) {
  tensor::reduce(tensor.type, ReduceOp::kSum, tensor.data, tensor.data, residual,
                 static_cast<std::size_t>(tensor.elements));
  std::memcpy(residual, tensor.data, bytes_of(tensor));
}

}  // namespace

Status Operation::wait() const {
  THALWEG_TRY_STATUS(state_->home.check("the operation"));
  return state_->host->wait(*state_);
}
int Operation::source() const { return state_->source(); }
bool Operation::done() const { return !state_->home.here() || state_->host->over(*state_); }

Communicator::Communicator(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Communicator::~Communicator() { net::abandon_unless_home(core_); }
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  net::abandon_unless_home(core_);
  core_ = std::move(other.core_);
  return *this;
}

Result<Communicator> Communicator::create(const CommunicatorOptions& options) {
  THALWEG_TRY(std::unique_ptr<Core> core, Core::make(options));
  return Communicator(std::move(core));
}

int Communicator::rank() const { return core_->rank(); }
int Communicator::size() const { return core_->size(); }
bool Communicator::has_switch() const { return core_->has_switch(); }
std::vector<AutoDecision> Communicator::auto_choices() const { return core_->auto_choices(); }
std::optional<Error> Communicator::broken() const { return core_->broken(); }
void Communicator::leave() const { core_->say_goodbye(); }

Result<Operation> Communicator::allreduce_async(TensorSpan tensor,
                                                const CallOptions& options) const {
  THALWEG_TRY(std::shared_ptr<Operation::State> op, start_allreduce(tensor, options, false));
  return Operation(std::move(op));
}

Status Communicator::allreduce(TensorSpan tensor, const CallOptions& options) const {
  THALWEG_TRY(std::shared_ptr<Operation::State> op, start_allreduce(tensor, options, true));
  return core_->end(std::move(op));
}

Communicator::StartedOperation Communicator::start_allreduce(TensorSpan tensor,
                                                             const CallOptions& options,
                                                             bool awaited) const {
  THALWEG_TRY_STATUS(net::check("allreduce", tensor.data, tensor.elements));
  if (!core_->chooses(tensor, options))
    return start_allreduce_by(tensor, options, awaited, nullptr);
  const std::unique_lock order = core_->auto_order();
  THALWEG_TRY(const net::AutoTurn turn, core_->choose(tensor, options));
  return start_allreduce_by(tensor, turn.options, awaited, &turn);
}

Communicator::StartedOperation Communicator::start_allreduce_by(TensorSpan tensor,
                                                                const CallOptions& options,
                                                                bool awaited,
                                                                const net::AutoTurn* turn) const {
  THALWEG_TRY(const bool by_atp, core_->goes_by_atp(tensor, options));
  if (options.residual != nullptr && (by_atp || options.op != ReduceOp::kMean)) {
    return Error("residual: only an allreduce by mean over tcp or dlcp has one");
  }
  if (by_atp && turn != nullptr) {
    CallOptions watched = options;
    watched.on_over = turn->watch(std::move(watched.on_over));
    return core_->start_atp(tensor, watched);
  }
  if (by_atp) return core_->start_atp(tensor, options);
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(std::shared_ptr<Planned> op,
              core_->prepare({.collective = plan::Collective::kAllreduce,
                              .name = "allreduce",
                              .elements = tensor.elements,
                              .type = tensor.type,
                              .reduces = true},
                             options, plan, awaited));
  net::lay_over(*op, plan.get(), static_cast<std::byte*>(tensor.data));
  if (options.residual != nullptr) contribute(tensor, options.residual);
  const bool mean = options.op == ReduceOp::kMean;
  if (mean || options.loss_bound > 0) {
    op->part_step = [tensor, mean, ranks = size(), residual = options.residual](Planned& part) {
      part.average(mean, ranks);
      if (residual == nullptr) return;
      part.keep_residual(ranks, static_cast<const std::byte*>(tensor.data), bytes_of(tensor),
                         static_cast<std::byte*>(residual));
    };
  }
  if (turn != nullptr) op->on_over = turn->watch(std::move(op->on_over));
  core_->start(op);
  return std::shared_ptr<Operation::State>(std::move(op));
}

Result<Operation> Communicator::reduce_async(TensorSpan tensor, int root,
                                             const CallOptions& options) const {
  THALWEG_TRY_STATUS(net::check("reduce", tensor.data, tensor.elements));
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<Planned> op,
              core_->prepare({.collective = plan::Collective::kReduce,
                              .name = "reduce",
                              .elements = tensor.elements,
                              .type = tensor.type,
                              .root = root,
                              .reduces = true},
                             options, plan));
  auto* memory = static_cast<std::byte*>(tensor.data);
  if (rank() != root && plan && !plan->rank_plan.arrivals().empty()) {
    // Partial sums pass through this rank, and the caller's tensor must not change.
    op->scratch.assign(memory, memory + net::bytes_of(*op, tensor.elements));
    memory = op->scratch.data();
  }
  net::lay_over(*op, plan.get(), memory);
  if (options.op == ReduceOp::kMean && rank() == root) {
    op->last_step = [tensor, ranks = size()] {
      tensor::finish_mean(tensor.type, tensor.data, static_cast<std::size_t>(tensor.elements),
                          ranks);
    };
  }
  core_->start(op);
  return Operation(op);
}

Result<Operation> Communicator::broadcast_async(TensorSpan tensor, int root,
                                                const CallOptions& options) const {
  THALWEG_TRY_STATUS(net::check("broadcast", tensor.data, tensor.elements));
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<Planned> op,
              core_->prepare({.collective = plan::Collective::kBroadcast,
                              .name = "broadcast",
                              .elements = tensor.elements,
                              .type = tensor.type,
                              .root = root},
                             options, plan));
  net::lay_over(*op, plan.get(), static_cast<std::byte*>(tensor.data));
  core_->start(op);
  return Operation(op);
}

Result<Operation> Communicator::all_gather_async(TensorView in, TensorSpan out,
                                                 const CallOptions& options) const {
  THALWEG_TRY_STATUS(net::check("all_gather", in.data, in.elements));
  THALWEG_TRY_STATUS(net::check("all_gather", out.data, out.elements));
  THALWEG_TRY_STATUS(net::check_same_type("all_gather", in.type, out.type));
  if (out.elements != in.elements * size()) {
    return Error(
        fmt::format("all_gather: the output has {} elements; {} ranks with {} each give {}",
                    out.elements, size(), in.elements, in.elements * size()));
  }
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<Planned> op,
              core_->prepare({.collective = plan::Collective::kAllGather,
                              .name = "all_gather",
                              .elements = out.elements,
                              .type = out.type},
                             options, plan));
  auto* memory = static_cast<std::byte*>(out.data);
  const std::size_t part = net::bytes_of(*op, in.elements);
  if (part > 0) std::memmove(memory + part * static_cast<std::size_t>(rank()), in.data, part);
  net::lay_over(*op, plan.get(), memory);
  core_->start(op);
  return Operation(op);
}

Result<Operation> Communicator::reduce_scatter_async(TensorView in, TensorSpan out,
                                                     const CallOptions& options) const {
  THALWEG_TRY_STATUS(net::check("reduce_scatter", in.data, in.elements));
  THALWEG_TRY_STATUS(net::check("reduce_scatter", out.data, out.elements));
  THALWEG_TRY_STATUS(net::check_same_type("reduce_scatter", in.type, out.type));
  if (in.elements != out.elements * size()) {
    return Error(
        fmt::format("reduce_scatter: the input has {} elements; {} ranks with {} each give {}",
                    in.elements, size(), out.elements, out.elements * size()));
  }
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<Planned> op,
              core_->prepare({.collective = plan::Collective::kReduceScatter,
                              .name = "reduce_scatter",
                              .elements = in.elements,
                              .type = in.type,
                              .reduces = true},
                             options, plan));
  const auto* input = static_cast<const std::byte*>(in.data);
  const std::size_t part = net::bytes_of(*op, out.elements);
  const std::size_t own = part * static_cast<std::size_t>(rank());
  // Sums are made in the operation's own memory. In the end this rank's part is copied to the
  // result.
  op->scratch.assign(input, input + net::bytes_of(*op, in.elements));
  net::lay_over(*op, plan.get(), op->scratch.data());
  op->last_step = [raw = op.get(), out, own, part, mean = options.op == ReduceOp::kMean,
                   ranks = size()] {
    if (part == 0) return;
    std::memcpy(out.data, raw->scratch.data() + own, part);
    if (mean)
      tensor::finish_mean(out.type, out.data, static_cast<std::size_t>(out.elements), ranks);
  };
  core_->start(op);
  return Operation(op);
}

Result<Operation> Communicator::all_to_all_async(TensorView in, TensorSpan out,
                                                 const CallOptions& options) const {
  THALWEG_TRY_STATUS(net::check("all_to_all", in.data, in.elements));
  THALWEG_TRY_STATUS(net::check("all_to_all", out.data, out.elements));
  THALWEG_TRY_STATUS(net::check_same_type("all_to_all", in.type, out.type));
  if (in.elements != out.elements || in.elements % size() != 0) {
    return Error(
        fmt::format("all_to_all: the input has {} elements, the output {}; both need the "
                    "same multiple of {}",
                    in.elements, out.elements, size()));
  }
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<Planned> op,
              core_->prepare({.collective = plan::Collective::kAllToAll,
                              .name = "all_to_all",
                              .elements = in.elements,
                              .type = in.type},
                             options, plan));
  const std::size_t part = net::bytes_of(*op, in.elements / size());
  const auto place = [&](Rank rank) { return part * rank.index(); };
  // The plan only reads the input.
  auto* input = static_cast<std::byte*>(const_cast<void*>(in.data));  // NOLINT
  auto* output = static_cast<std::byte*>(out.data);
  const std::size_t whole = net::bytes_of(*op, in.elements);
  if (input < output + whole && output < input + whole) {
    op->scratch.assign(input, input + whole);
    input = op->scratch.data();
  }
  const Rank self(rank());
  if (plan) {
    for (const exec::RankPlan::Buffer& buffer : plan->rank_plan.buffers()) {
      const plan::Chunk& chunk = plan->plan.chunks[buffer.chunk.index()];
      op->memory.push_back(chunk.source == self ? input + place(chunk.target)
                                                : output + place(chunk.source));
    }
  }
  if (part > 0) std::memmove(output + place(self), input + place(self), part);
  core_->start(op);
  return Operation(op);
}

Status Communicator::barrier(const CallOptions& options) const {
  THALWEG_TRY(std::shared_ptr<Operation::State> op, start_barrier(options, true));
  return core_->end(std::move(op));
}

Result<Operation> Communicator::barrier_async(const CallOptions& options) const {
  THALWEG_TRY(std::shared_ptr<Operation::State> op, start_barrier(options, false));
  return Operation(std::move(op));
}

Communicator::StartedOperation Communicator::start_barrier(const CallOptions& options,
                                                           bool awaited) const {
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(std::shared_ptr<Planned> op,
              core_->prepare({.collective = plan::Collective::kAllreduce,
                              .name = "barrier",
                              .elements = 1,
                              .type = DType::kInt8},
                             options, plan, awaited));
  op->scratch.resize(1);
  net::lay_over(*op, plan.get(), op->scratch.data());
  core_->start(op);
  return std::shared_ptr<Operation::State>(std::move(op));
}

Result<Communicator> Communicator::shrink(std::chrono::nanoseconds window) const {
  THALWEG_TRY(std::unique_ptr<Core> core, core_->shrink(window));
  return Communicator(std::move(core));
}

}  // namespace thalweg
