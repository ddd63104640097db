// Gather and scatter: parts of all ranks at the root, and the root's parts at all ranks.
#include <fmt/core.h>

#include <cstring>
#include <utility>

#include <thalweg/communicator.h>

#include "net/group/api/communicator_core.h"
#include "net/group/api/layout.h"

namespace thalweg {
namespace {

// Lays the plan over the whole tensor at the root, and over the rank's own part elsewhere.
void lay_over_parts(net::PlannedOperation& op, const net::PreparedPlan* plan, bool is_root,
                    std::byte* whole, std::byte* own, std::int64_t own_offset) {
  if (plan == nullptr) return;
  const auto element = static_cast<std::int64_t>(size_of(op.type));
  for (const exec::RankPlan::Buffer& buffer : plan->rank_plan.buffers()) {
    const std::int64_t offset = plan->plan.chunks[buffer.chunk.index()].offset;
    op.memory.push_back(is_root ? whole + offset * element : own + (offset - own_offset) * element);
  }
}

Status check_root_size(const char* name, const char* which, std::int64_t whole, std::int64_t part,
                       int ranks) {
  if (whole == part * ranks) return ok_status();
  return Error(fmt::format("{}: the {} has {} elements; {} ranks with {} each give {}", name, which,
                           whole, ranks, part, part * ranks));
}

}  // namespace

Result<Operation> Communicator::gather_async(TensorView in, TensorSpan out, int root,
                                             const CallOptions& options) const {
  const bool is_root = rank() == root;
  THALWEG_TRY_STATUS(net::check("gather", in.data, in.elements));
  if (is_root) {
    THALWEG_TRY_STATUS(net::check("gather", out.data, out.elements));
    THALWEG_TRY_STATUS(net::check_same_type("gather", in.type, out.type));
    THALWEG_TRY_STATUS(check_root_size("gather", "output", out.elements, in.elements, size()));
  }
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<net::PlannedOperation> op,
              core_->prepare({.collective = plan::Collective::kGather,
                              .name = "gather",
                              .elements = in.elements * size(),
                              .type = in.type,
                              .root = root},
                             options, plan));
  // The plan only reads the input.
  auto* own = static_cast<std::byte*>(const_cast<void*>(in.data));  // NOLINT
  auto* whole = static_cast<std::byte*>(out.data);
  const std::size_t part = net::bytes_of(*op, in.elements);
  if (is_root && part > 0) {
    std::memmove(whole + part * static_cast<std::size_t>(rank()), own, part);
  }
  lay_over_parts(*op, plan.get(), is_root, whole, own, in.elements * rank());
  core_->start(op);
  return Operation(op);
}

Result<Operation> Communicator::scatter_async(TensorView in, TensorSpan out, int root,
                                              const CallOptions& options) const {
  const bool is_root = rank() == root;
  THALWEG_TRY_STATUS(net::check("scatter", out.data, out.elements));
  if (is_root) {
    THALWEG_TRY_STATUS(net::check("scatter", in.data, in.elements));
    THALWEG_TRY_STATUS(net::check_same_type("scatter", in.type, out.type));
    THALWEG_TRY_STATUS(check_root_size("scatter", "input", in.elements, out.elements, size()));
  }
  std::shared_ptr<const net::PreparedPlan> plan;
  THALWEG_TRY(const std::shared_ptr<net::PlannedOperation> op,
              core_->prepare({.collective = plan::Collective::kScatter,
                              .name = "scatter",
                              .elements = out.elements * size(),
                              .type = out.type,
                              .root = root},
                             options, plan));
  auto* whole = static_cast<std::byte*>(const_cast<void*>(in.data));  // NOLINT
  auto* own = static_cast<std::byte*>(out.data);
  const std::size_t part = net::bytes_of(*op, out.elements);
  if (is_root && part > 0) {
    std::memmove(own, whole + part * static_cast<std::size_t>(rank()), part);
  }
  lay_over_parts(*op, plan.get(), is_root, whole, own, out.elements * rank());
  core_->start(op);
  return Operation(op);
}

}  // namespace thalweg
