#include "plan/pipeline.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::plan {

Plan pipelined(const Plan& plan, int parts) {
  CHECK(parts >= 1);
  if (parts == 1) return plan;
  Plan result = plan;
  result.chunks.clear();
  result.transfers.clear();
  std::vector<std::int32_t> first_part;  // [old chunk]
  for (const Chunk& chunk : plan.chunks) {
    first_part.push_back(static_cast<std::int32_t>(result.chunks.size()));
    const std::int64_t count = std::min<std::int64_t>(parts, chunk.length);
    for (std::int64_t i = 0; i < count; ++i) {
      const Share share = share_of(chunk.length, count, i);
      Chunk part = chunk;
      part.offset += share.offset;
      part.length = share.length;
      result.chunks.push_back(part);
    }
  }
  first_part.push_back(static_cast<std::int32_t>(result.chunks.size()));
  for (const PlanTransfer& transfer : plan.transfers) {
    const std::size_t old = transfer.chunk.index();
    for (std::int32_t part = first_part[old]; part < first_part[old + 1]; ++part) {
      PlanTransfer copy = transfer;
      copy.chunk = ChunkIndex(part);
      result.transfers.push_back(copy);
    }
  }
  return result;
}

}  // namespace thalweg::plan
