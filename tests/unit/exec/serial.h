// Runs a plan on the ranks' memory, one transfer after the other. Tests compare executors and
// communicators with it.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/types.h>

#include "base/prng.h"
#include "plan/scheme.h"
#include "plan/verify.h"
#include "tensor/reduce.h"
#include "topology/format/load.h"

namespace thalweg::exec {

inline plan::Plan plan_of(const std::string& scheme, plan::Collective collective, int ranks,
                          std::int64_t elements, int element_bytes, int root = 0) {
  const topology::Topology topology =
      *topology::topology_from_shorthand(fmt::format("single-switch:hosts={},host=10G", ranks));
  plan::Plan plan = *plan::make_plan(scheme, {.collective = collective,
                                              .topology = topology,
                                              .elements = elements,
                                              .element_bytes = element_bytes,
                                              .root = Rank(root)});
  EXPECT_TRUE(plan::verify(plan).ok()) << scheme;
  return plan;
}

using Memory = std::vector<std::vector<std::byte>>;  // [rank]

// Stores a random number of any type. Magnitudes differ, so that sums of floats depend on their
// order. None is infinite.
inline void put_random(DType type, std::byte* to, Prng& prng) {
  const auto put = [&](auto value) { std::memcpy(to, &value, sizeof(value)); };
  const auto bits = static_cast<std::uint64_t>(prng.below(~std::uint64_t{0}));
  const double real =
      static_cast<double>(1 + prng.below(1 << 20)) * (prng.below(2) == 0 ? 1e-4 : -1e3);
  switch (type) {
    case DType::kFloat32:
      return put(static_cast<float>(real));
    case DType::kFloat64:
      return put(real);
    case DType::kFloat16:  // exponents 8 to 15 of 31
      return put(static_cast<std::uint16_t>((bits & 0x83FF) | (8 + (bits >> 16) % 8) << 10));
    case DType::kBFloat16:  // exponents 120 to 135 of 255
      return put(static_cast<std::uint16_t>((bits & 0x807F) | (120 + (bits >> 16) % 16) << 7));
    case DType::kFloat8E4m3fn:  // exponents 4 to 7 of 15
      return put(static_cast<std::uint8_t>((bits & 0x87) | (4 + (bits >> 16) % 4) << 3));
    case DType::kFloat8E5m2:  // exponents 11 to 14 of 31
      return put(static_cast<std::uint8_t>((bits & 0x83) | (11 + (bits >> 16) % 4) << 2));
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      std::memcpy(to, &bits, size_of(type));
  }
}

inline Memory random_memory(int ranks, std::size_t bytes, DType type, Prng& prng) {
  Memory memory;
  for (int r = 0; r < ranks; ++r) {
    std::vector<std::byte>& own = memory.emplace_back(bytes);
    for (std::size_t i = 0; i < bytes; i += size_of(type)) put_random(type, &own[i], prng);
  }
  return memory;
}

// Runs the plan's transfers one after the other, each with the version it names.
inline Memory serial(const plan::Plan& plan, DType type, ReduceOp op, const Memory& memory) {
  const std::size_t element = size_of(type);
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::vector<std::byte>>> versions;
  const auto of = [&](Rank rank, ChunkIndex chunk) -> auto& {
    auto& all = versions[{rank.index(), chunk.index()}];
    if (all.empty()) {
      const plan::Chunk& c = plan.chunks[chunk.index()];
      const auto begin = memory[rank.index()].begin() +
                         static_cast<std::ptrdiff_t>(static_cast<std::size_t>(c.offset) * element);
      all.emplace_back(
          begin, begin + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(c.length) * element));
    }
    return all;
  };
  for (const plan::PlanTransfer& t : plan.transfers) {
    const std::vector<std::byte> carried = of(t.source, t.chunk)[static_cast<std::size_t>(t.after)];
    auto& target = of(t.target, t.chunk);
    std::vector<std::byte> next = carried;
    if (t.kind == plan::TransferKind::kReduce) {
      tensor::reduce(type, op, next.data(), target.back().data(), carried.data(),
                     next.size() / element);
    }
    target.push_back(std::move(next));
  }
  Memory result = memory;
  for (const auto& [key, all] : versions) {
    const auto offset = static_cast<std::size_t>(plan.chunks[key.second].offset) * element;
    std::ranges::copy(all.back(), result[key.first].begin() + static_cast<std::ptrdiff_t>(offset));
  }
  return result;
}

}  // namespace thalweg::exec
