#include "plan/outline.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

namespace thalweg::plan {

int Outline::steps() const {
  int steps = 0;
  for (const OutlineRound& round : rounds) steps += round.repeat;
  return steps;
}

std::vector<OutlineRound> reversed(const std::vector<OutlineRound>& rounds) {
  std::vector<OutlineRound> result(rounds.rbegin(), rounds.rend());
  for (OutlineRound& round : result) {
    for (OutlineFlow& flow : round.flows) std::swap(flow.from, flow.to);
    for (OutlineExchange& exchange : round.exchanges) std::swap(exchange.from, exchange.to);
  }
  return result;
}

Outline outline_of(const Plan& plan, const PlanProof& proof) {
  struct Piece {
    std::uint64_t key;  // step, source and target
    double bytes;
  };
  static_assert(kMaxPlanRanks <= 1 << 14);
  std::vector<Piece> pieces;
  pieces.reserve(plan.transfers.size());
  Outline outline;
  for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
    const PlanTransfer& t = plan.transfers[i];
    const auto bytes = static_cast<double>(plan.size_of(t.chunk).count());
    outline.chunk = std::max(outline.chunk, bytes);
    pieces.push_back({.key = static_cast<std::uint64_t>(proof.step_of[i]) << 28U |
                             t.source.index() << 14U | t.target.index(),
                      .bytes = bytes});
  }
  std::ranges::sort(pieces, {}, &Piece::key);
  constexpr std::uint64_t kRankMask = (1U << 14U) - 1;
  std::uint64_t step = 0;
  for (std::size_t i = 0; i < pieces.size();) {
    const std::uint64_t key = pieces[i].key;
    double bytes = 0;
    for (; i < pieces.size() && pieces[i].key == key; ++i) bytes += pieces[i].bytes;
    if (outline.rounds.empty() || key >> 28U != step) outline.rounds.emplace_back();
    step = key >> 28U;
    outline.rounds.back().flows.push_back(
        {.from = Rank(static_cast<std::int32_t>(key >> 14U & kRankMask)),
         .to = Rank(static_cast<std::int32_t>(key & kRankMask)),
         .bytes = bytes});
  }
  return outline;
}

}  // namespace thalweg::plan
