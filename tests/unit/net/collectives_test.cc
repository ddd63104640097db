// Every scheme, collective, type and operation on real sockets, against the plan run one transfer
// after the other.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "exec/serial.h"
#include "net/ranks.h"
#include "sanitized.h"
#include "tensor/reduce.h"

namespace thalweg::net {
namespace {

constexpr int kRankStep = kUnderSanitizer ? 4 : 1;

struct Case {
  plan::Collective collective = plan::Collective::kAllreduce;
  std::string scheme;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::int64_t elements = 0;  // elements of the whole tensor
  std::size_t shift = 0;      // offset of all memory, in bytes
  exec::Memory in;            // [rank]
  exec::Memory out;           // [rank]: the expected result

  [[nodiscard]] std::string text() const {
    return fmt::format("{} by {} of {} {}, {}, root {}, shifted by {}", plan::name_of(collective),
                       scheme, elements, name_of(type), name_of(op), root, shift);
  }
};

using Bytes8 = std::vector<std::byte>;

Bytes8 part(const Bytes8& whole, std::size_t index, std::size_t parts) {
  const std::size_t size = whole.size() / parts;
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(index * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

// The expected memory of each rank.
void expect(Case& c, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  if (c.collective == plan::Collective::kAllToAll) {
    for (std::size_t r = 0; r < n; ++r) {
      Bytes8& out = c.out.emplace_back();
      for (std::size_t s = 0; s < n; ++s) {
        const Bytes8 piece = part(c.in[s], r, n);
        out.insert(out.end(), piece.begin(), piece.end());
      }
    }
    return;
  }
  const ReduceOp op = c.op == ReduceOp::kMean ? ReduceOp::kSum : c.op;
  c.out = c.in;
  if (c.elements > 0 && ranks > 1) {
    const plan::Plan plan = exec::plan_of(c.scheme, c.collective, ranks, c.elements,
                                          static_cast<int>(size_of(c.type)), c.root);
    c.out = exec::serial(plan, c.type, op, c.in);
  }
  for (std::size_t r = 0; r < n; ++r) {
    if (c.collective == plan::Collective::kReduceScatter ||
        c.collective == plan::Collective::kScatter) {
      c.out[r] = part(c.out[r], r, n);
    }
    if (c.collective == plan::Collective::kReduce && static_cast<int>(r) != c.root) {
      c.out[r] = c.in[r];
    } else if (c.op == ReduceOp::kMean && !c.out[r].empty()) {
      tensor::finish_mean(c.type, c.out[r].data(), c.out[r].size() / size_of(c.type), ranks);
    }
  }
}

bool reduces(plan::Collective collective) {
  return collective == plan::Collective::kAllreduce || collective == plan::Collective::kReduce ||
         collective == plan::Collective::kReduceScatter;
}

bool in_parts(plan::Collective collective) {
  return collective == plan::Collective::kReduceScatter ||
         collective == plan::Collective::kAllGather || collective == plan::Collective::kAllToAll ||
         collective == plan::Collective::kGather || collective == plan::Collective::kScatter;
}

bool gathers(plan::Collective collective) {
  return collective == plan::Collective::kAllGather || collective == plan::Collective::kGather;
}

std::vector<Case> cases_for(int ranks, Prng& prng) {
  std::vector<Case> cases;
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    for (const plan::Collective collective : scheme->collectives) {
      if (collective == plan::Collective::kMix) continue;
      Case& c = cases.emplace_back();
      c.collective = collective;
      c.scheme = scheme->name;
      c.type = static_cast<DType>(prng.below(kDTypeCount));
      if (reduces(collective)) c.op = static_cast<ReduceOp>(prng.below(kReduceOpCount));
      c.root = static_cast<int>(prng.below(static_cast<std::uint64_t>(ranks)));
      c.shift = prng.below(8);
      constexpr std::array kSizes{0, 1, 7, 1000, 100'003};
      // Large tensors on all 17 ranks would be most of the test.
      c.elements = kSizes.at(prng.below(ranks <= 5 ? kSizes.size() : kSizes.size() - 1));
      if (in_parts(collective)) c.elements *= ranks;
      c.in = exec::random_memory(ranks, static_cast<std::size_t>(c.elements) * size_of(c.type),
                                 c.type, prng);
      if (gathers(collective)) {
        // Each rank has its own part, and room for the parts of the others.
        for (std::size_t r = 0; r < c.in.size(); ++r) {
          const std::size_t size = c.in[r].size() / c.in.size();
          for (std::size_t i = 0; i < c.in[r].size(); ++i) {
            if (size > 0 && i / size != r) c.in[r][i] = std::byte{0};
          }
        }
      }
      expect(c, ranks);
    }
  }
  return cases;
}

// Memory that begins at any address.
struct Shifted {
  Shifted(const Bytes8& content, std::size_t by) : bytes(by + content.size()), shift(by) {
    std::ranges::copy(content, bytes.begin() + static_cast<std::ptrdiff_t>(by));
  }
  [[nodiscard]] std::byte* data() { return bytes.data() + shift; }
  [[nodiscard]] Bytes8 content() const {
    return {bytes.begin() + static_cast<std::ptrdiff_t>(shift), bytes.end()};
  }
  Bytes8 bytes;
  std::size_t shift;
};

// Runs the case and returns the memory of the result. If it fails, so does the test, and it returns
// none.
std::optional<Bytes8> run(const Case& c, const Communicator& all) {
  const auto self = static_cast<std::size_t>(all.rank());
  Shifted in(c.in[self], c.shift);
  Shifted out(Bytes8(c.out[self].size()), c.shift);
  CallOptions options{.op = c.op, .scheme = c.scheme};
  const TensorSpan whole{in.data(), c.elements, c.type};
  const TensorView source{in.data(), c.elements, c.type};
  const auto result_size = static_cast<std::int64_t>(c.out[self].size() / size_of(c.type));
  const TensorSpan result{out.data(), result_size, c.type};
  bool in_place = true;
  const auto start = [&]() -> Result<Operation> {
    switch (c.collective) {
      case plan::Collective::kReduce:
        return all.reduce_async(whole, c.root, options);
      case plan::Collective::kBroadcast:
        return all.broadcast_async(whole, c.root, options);
      case plan::Collective::kAllGather: {
        const std::int64_t own = c.elements / all.size();
        const std::size_t offset = self * static_cast<std::size_t>(own) * size_of(c.type);
        return all.all_gather_async({in.data() + offset, own, c.type}, whole, options);
      }
      case plan::Collective::kReduceScatter:
        in_place = false;
        return all.reduce_scatter_async(source, result, options);
      case plan::Collective::kAllToAll:
        in_place = false;
        return all.all_to_all_async(source, result, options);
      case plan::Collective::kGather: {
        const std::int64_t own = c.elements / all.size();
        const std::size_t offset = self * static_cast<std::size_t>(own) * size_of(c.type);
        return all.gather_async({in.data() + offset, own, c.type}, whole, c.root, options);
      }
      case plan::Collective::kScatter:
        in_place = false;
        return all.scatter_async(source, result, c.root, options);
      case plan::Collective::kAllreduce:
      case plan::Collective::kMix:
        break;
    }
    return all.allreduce_async(whole, options);
  };
  const Result<Operation> operation = start();
  const Status status = operation.ok() ? operation->wait() : Status(operation.error());
  EXPECT_TRUE(status.ok()) << status.error().message();
  if (!status.ok()) return std::nullopt;
  return in_place ? in.content() : out.content();
}

// Every scheme and collective, each with some type, operation, root and size.
void expect_plans(int ranks, const OptionsOfRank& options, std::uint64_t seed) {
  Prng prng(seed + static_cast<std::uint64_t>(ranks));
  const std::vector<Case> cases = cases_for(ranks, prng);
  SCOPED_TRACE(fmt::format("{} ranks", ranks));
  run_ranks_by(ranks, options, [&](const Communicator& all) {
    for (const Case& c : cases) {
      const std::optional<Bytes8> got = run(c, all);
      ASSERT_TRUE(got) << c.text();
      ASSERT_TRUE(*got == c.out[static_cast<std::size_t>(all.rank())])
          << c.text() << ", rank " << all.rank();
    }
  });
}

TEST(Collectives, every_scheme__equals_the_plan_run_serially) {
  const std::uint64_t seed = test_seed();
  for (int ranks = 1; ranks <= 17 && !HasFailure(); ranks += kRankStep) {
    expect_plans(ranks, [](int) { return CommunicatorOptions(); }, seed);
  }
}

// Over up to nine streams between two ranks, which have different numbers of interfaces.
TEST(Collectives, every_scheme_over_several_ways__equals_the_plan_run_serially) {
  const std::uint64_t seed = test_seed();
  for (const int ranks : {2, 3, 4}) {
    for (const int streams : {1, 3}) expect_plans(ranks, several_ways(streams), seed);
  }
}

// Operations are divided among three engines per rank, wherever a chunk has 64 bytes for each:
// through shared memory, over TCP, and over several streams between two ranks.
TEST(Collectives, every_scheme_by_several_channels__equals_the_plan_run_serially) {
  const std::uint64_t seed = test_seed();
  const auto divided = [](CommunicatorOptions options) {
    options.channels = 3;
    options.channel_bytes = 64;
    return options;
  };
  const std::vector<int> sizes =
      kUnderSanitizer ? std::vector{2, 3, 5} : std::vector{2, 3, 4, 5, 8};
  for (const int ranks : sizes) {
    for (const bool shared_memory : {false, true}) {
      CommunicatorOptions options;
      options.shared_memory = shared_memory;
      expect_plans(ranks, [&](int) { return divided(options); }, seed);
    }
  }
  expect_plans(3, [&](int rank) { return divided(several_ways(2)(rank)); }, seed);
}

// Uses some numbers of ranks; `make collectives` uses all of them, many times.
TEST(Collectives, every_scheme_over_dlcp__equals_the_plan_under_loss) {
  const ScopedLoss loss(lose_one_in(30));
  const bool is_long = std::getenv("THALWEG_COLLECTIVES") != nullptr;
  const std::uint64_t seed = test_seed();
  for (std::uint64_t turn = 0; turn < (is_long ? 10 : 1); ++turn) {
    for (int ranks = 1; ranks <= 17 && !HasFailure(); ++ranks) {
      const bool among_few = ranks == 2 || ranks == 3 || ranks == 6;
      if (!is_long && !among_few) continue;
      expect_plans(ranks, [](int) { return over_dlcp(); }, seed + turn * 100);
      const auto divided = [](int /*rank*/) {
        CommunicatorOptions options = over_dlcp();
        options.channel_bytes = 64;
        return options;
      };
      expect_plans(ranks, divided, seed + turn * 100);
      if (ranks != 3) continue;
      const auto by_several_ways = [](int rank) {
        CommunicatorOptions options = over_dlcp();
        options.interfaces = several_ways(1)(rank).interfaces;
        return options;
      };
      expect_plans(ranks, by_several_ways, seed + turn * 100);
    }
  }
}

}  // namespace
}  // namespace thalweg::net
