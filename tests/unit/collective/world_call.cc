// The calls of a world: plans that many worlds use, and one rank's part in a call.
#include <fmt/core.h>

#include <map>
#include <tuple>
#include <utility>

#include "collective/world.h"
#include "plan/scheme.h"
#include "plan/verify.h"
#include "topology/format/load.h"

namespace thalweg::proto::collective_test {
namespace {

std::int64_t contribution(std::size_t call, int rank, std::size_t element) {
  return static_cast<std::int64_t>(
             mix_bits(call * 1'000'003 + static_cast<std::size_t>(rank) * 8191 + element * 17)) >>
         8;
}

}  // namespace

std::shared_ptr<const SharedPlan> shared_plan(const std::string& scheme, int ranks,
                                              std::int64_t elements) {
  static std::map<std::tuple<std::string, int, std::int64_t>, std::shared_ptr<const SharedPlan>>
      kept;
  auto& place = kept[{scheme, ranks, elements}];
  if (place) return place;
  const topology::Topology topology =
      *topology::topology_from_shorthand(fmt::format("single-switch:hosts={},host=10G", ranks));
  const Result<plan::Plan> plan = plan::make_plan(
      scheme, {.topology = topology, .elements = elements, .element_bytes = sizeof(std::int64_t)});
  if (!plan.ok() || !plan::verify(*plan).ok()) return nullptr;
  auto shared = std::make_shared<SharedPlan>();
  shared->text = fmt::format("allreduce of {} int64 by {}", elements, scheme);
  shared->elements = elements;
  for (int r = 0; r < ranks; ++r) {
    shared->of_rank.emplace_back(*plan, Rank(r));
    std::vector<std::size_t>& offsets = shared->offsets.emplace_back();
    for (const exec::RankPlan::Buffer& buffer : shared->of_rank.back().buffers()) {
      offsets.push_back(static_cast<std::size_t>(plan->chunks[buffer.chunk.index()].offset) *
                        sizeof(std::int64_t));
    }
  }
  place = std::move(shared);
  return place;
}

WorldCall::WorldCall(const WorldCallSpec& spec, int rank, std::size_t index)
    : shared_(spec.plan),
      plan_(&shared_->of_rank[static_cast<std::size_t>(rank)]),
      rank_(rank),
      index_(index) {
  text = shared_->text;
  signature = std::hash<std::string>()(text) | 1;
  priority = spec.priority;
}

void WorldCall::begin() {
  tensor_.resize(static_cast<std::size_t>(shared_->elements));
  for (std::size_t i = 0; i < tensor_.size(); ++i) tensor_[i] = contribution(index_, rank_, i);
  std::vector<std::byte*> memory;
  for (const std::size_t offset : shared_->offsets[static_cast<std::size_t>(rank_)]) {
    memory.push_back(reinterpret_cast<std::byte*>(tensor_.data()) + offset);
  }
  executor.start(*plan_, DType::kInt64, ReduceOp::kSum, memory);
}

bool WorldCall::is_exact(int ranks) const {
  for (std::size_t i = 0; i < tensor_.size(); ++i) {
    std::int64_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += contribution(index_, r, i);
    if (tensor_[i] != sum) return false;
  }
  return true;
}

}  // namespace thalweg::proto::collective_test
