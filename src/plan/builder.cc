#include "plan/builder.h"

#include "base/check.h"

namespace thalweg::plan {

ChunkIndex PlanBuilder::add_chunk(Share share, Rank source, Rank target) {
  if (share.length == 0) return {};
  plan_.chunks.push_back(
      {.offset = share.offset, .length = share.length, .source = source, .target = target});
  return ChunkIndex(static_cast<std::int32_t>(plan_.chunks.size()) - 1);
}

std::uint64_t PlanBuilder::key(Rank rank, ChunkIndex chunk) const {
  CHECK(rank.valid() && rank.value() < plan_.ranks, "rank {}", rank.value());
  return chunk.index() << 32 | rank.index();
}

void PlanBuilder::add(Rank from, Rank to, ChunkIndex chunk, TransferKind kind) {
  if (!chunk.valid()) return;
  std::int32_t after = 0;
  if (const auto found = buffers_.find(key(from, chunk)); found != buffers_.end()) {
    const Buffer& source = found->second;
    after = source.round == round_ ? source.version_at_round_start : source.version;
  }
  plan_.transfers.push_back(
      {.source = from, .target = to, .chunk = chunk, .after = after, .kind = kind});
  Buffer& target = buffers_[key(to, chunk)];
  if (target.round != round_) {
    target.round = round_;
    target.version_at_round_start = target.version;
  }
  ++target.version;
}

}  // namespace thalweg::plan
