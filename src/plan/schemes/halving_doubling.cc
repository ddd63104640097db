// Recursive halving and doubling: a reduce-scatter in which each step moves half as much as the one
// before, and the same steps backwards as an all-gather. Each rank moves 2(w−1)/w of the tensor in
// total, the least possible.
//
// Powers of two: in step k the positions i and i ⊕ 2^k swap, nearest partners first, and each keeps
// the blocks whose number agrees with its position in bit k; block i ends at position i. For an
// allreduce, block i is the part of the tensor with the bits of i reversed, so that blocks that
// travel together are contiguous.
//
// Other rank counts: the circulant graph of Träff ("Optimal, Non-pipelined Reduce-scatter and
// Allreduce Algorithms", 2024). With skips s_0 = w, s_{k+1} = ⌈s_k / 2⌉ down to 1, position i sends
// to position i + s_{k+1} in step k the blocks of the positions i + s_{k+1} … i + s_k − 1. After
// step k it is left with partial sums of the blocks i … i + s_{k+1} − 1, and in the end with its
// own.
//
// A step moves several blocks between two ranks, one transfer each, next to one another in the
// plan: on a network they are one message.
#include <bit>
#include <ranges>

#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

// One block's move from one position to another in the reduce-scatter; the all-gather moves it
// back.
struct Move {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t block = 0;
};
using Step = std::vector<Move>;

std::size_t reverse_bits(std::size_t value, int bits) {
  std::size_t reversed = 0;
  for (int bit = 0; bit < bits; ++bit) {
    reversed = (reversed << 1U) | ((value >> static_cast<unsigned>(bit)) & 1U);
  }
  return reversed;
}

// Requires n to be a power of two.
std::vector<Step> hypercube_steps(std::size_t n) {
  std::vector<Step> steps;
  int open_bits = std::countr_zero(n);  // bits of block numbers that are not yet settled
  for (std::size_t distance = 1; distance < n; distance *= 2) {
    --open_bits;
    const std::size_t settled = 2 * distance;
    Step& step = steps.emplace_back();
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t partner = i ^ distance;
      for (std::size_t j = 0; j < n / settled; ++j) {
        const std::size_t block = partner % settled + reverse_bits(j, open_bits) * settled;
        step.push_back({.from = i, .to = partner, .block = block});
      }
    }
  }
  return steps;
}

std::vector<Step> circulant_steps(std::size_t n) {
  std::vector<Step> steps;
  for (std::size_t span = n; span > 1;) {
    const std::size_t skip = (span + 1) / 2;
    Step& step = steps.emplace_back();
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t ahead = skip; ahead < span; ++ahead) {
        step.push_back({.from = i, .to = (i + skip) % n, .block = (i + ahead) % n});
      }
    }
    span = skip;
  }
  return steps;
}

std::vector<ChunkIndex> add_blocks(PlanBuilder& builder, const std::vector<Rank>& order) {
  const std::size_t n = order.size();
  if (builder.plan().collective != Collective::kAllreduce) return add_rank_shares(builder, order);
  std::vector<ChunkIndex> parts = add_parts(builder, n);
  if (!std::has_single_bit(n)) return parts;
  std::vector<ChunkIndex> blocks(n);
  for (std::size_t i = 0; i < n; ++i) blocks[i] = parts[reverse_bits(i, std::countr_zero(n))];
  return blocks;
}

Result<Plan> generate_halving_doubling(const PlanRequest& request,
                                       const Parameters& /*parameters*/) {
  PlanBuilder builder(plan_header(request));
  const std::vector<Rank> order = ranks_in_region_order(request.topology);
  const std::vector<ChunkIndex> blocks = add_blocks(builder, order);
  const std::vector<Step> steps = std::has_single_bit(order.size()) ? hypercube_steps(order.size())
                                                                    : circulant_steps(order.size());
  if (request.collective != Collective::kAllGather) {
    for (const Step& step : steps) {
      builder.begin_round();
      for (const Move& move : step) {
        builder.reduce(order[move.from], order[move.to], blocks[move.block]);
      }
    }
  }
  if (request.collective != Collective::kReduceScatter) {
    for (const Step& step : steps | std::views::reverse) {
      builder.begin_round();
      for (const Move& move : step) {
        builder.copy(order[move.to], order[move.from], blocks[move.block]);
      }
    }
  }
  return std::move(builder).finish();
}

// The steps of the reduce-scatter with the bytes that a rank sends in each. Other rank counts than
// powers of two do not swap with a partner, so the ranks drift apart.
Result<Outline> outline_halving_doubling(const PlanRequest& request,
                                         const Parameters& /*parameters*/) {
  const std::vector<Rank> order = ranks_in_region_order(request.topology);
  const std::size_t n = order.size();
  const bool swaps = std::has_single_bit(n);
  Outline outline{.chunk = share_bytes(request, n), .drift = swaps ? 0.5 : 1};
  const auto add_step = [&](std::size_t blocks, auto partner_of) {
    OutlineRound& round = outline.rounds.emplace_back();
    const double bytes = outline.chunk * static_cast<double>(blocks);
    for (std::size_t i = 0; i < n; ++i) {
      round.flows.push_back({.from = order[i], .to = order[partner_of(i)], .bytes = bytes});
    }
  };
  if (swaps) {
    for (std::size_t distance = 1; distance < n; distance *= 2) {
      add_step(n / (2 * distance), [&](std::size_t i) { return i ^ distance; });
    }
  } else {
    for (std::size_t span = n; span > 1; span = (span + 1) / 2) {
      const std::size_t skip = (span + 1) / 2;
      add_step(span - skip, [&](std::size_t i) { return (i + skip) % n; });
    }
  }
  outline.rounds = up_and_down(std::move(outline.rounds));
  return outline;
}

}  // namespace

const Scheme kHalvingDoubling{
    .name = "halving-doubling",
    .summary = "recursive halving, then doubling: least traffic a rank, logarithmic chain",
    .collectives = {Collective::kAllreduce, Collective::kReduceScatter, Collective::kAllGather},
    .parameters = {},
    .generate = generate_halving_doubling,
    .outline = outline_halving_doubling,
};

}  // namespace thalweg::plan
