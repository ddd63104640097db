// Allreduces over DLCP, exact and with loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <thalweg/communicator.h>

#include "net/ranks.h"

namespace thalweg::net {
namespace {

TEST(CommunicatorDlcp, allreduce__exact_under_loss) {
  const ScopedLoss loss(lose_one_in(30));
  for (const int size : {2, 3, 5}) {
    for (const char* scheme : {"", "ring", "butterfly", "rat"}) {
      SCOPED_TRACE(fmt::format("{} ranks, scheme '{}'", size, scheme));
      run_ranks(size, over_dlcp(), [&](Communicator& all) {
        for (const std::size_t elements : {1U, 777U, 50'001U}) {
          std::vector<std::int32_t> values(elements);
          for (std::size_t i = 0; i < elements; ++i) {
            values[i] = static_cast<std::int32_t>(i) * (all.rank() + 1);
          }
          const Status status = all.allreduce(TensorSpan::of(values), {.scheme = scheme});
          ASSERT_TRUE(status.ok()) << status.error().message();
          const int factor = all.size() * (all.size() + 1) / 2;
          for (std::size_t i = 0; i < elements; ++i) {
            ASSERT_EQ(values[i], static_cast<std::int32_t>(i) * factor) << i;
          }
        }
      });
    }
  }
}

TEST(CommunicatorDlcp, allreduce__exact_8_bit_floats_under_loss) {
  const ScopedLoss loss(lose_one_in(30));
  run_ranks(3, over_dlcp(), [&](Communicator& all) {
    for (const auto& [type, one, three] : {std::tuple{DType::kFloat8E4m3fn, 0x38, 0x44},
                                           std::tuple{DType::kFloat8E5m2, 0x3c, 0x42}}) {
      std::vector<std::uint8_t> values(50'001, static_cast<std::uint8_t>(one));
      const Status status = all.allreduce({values.data(), std::ssize(values), type});
      ASSERT_TRUE(status.ok()) << status.error().message();
      EXPECT_EQ(std::ranges::count(values, three), std::ssize(values)) << name_of(type);
    }
  });
}

TEST(CommunicatorDlcp, allreduce__what_is_lost_is_left_out_of_the_average) {
  const ScopedLoss loss(lose_one_in(20));
  for (const ReduceOp op : {ReduceOp::kMean, ReduceOp::kSum}) {
    SCOPED_TRACE(name_of(op));
    // Sums use one way, means several.
    const bool sums = op == ReduceOp::kSum;
    const auto options_of = [sums](int rank) {
      CommunicatorOptions options = over_dlcp();
      if (!sums) options.interfaces = several_ways(1)(rank).interfaces;
      return options;
    };
    run_ranks_by(4, options_of, [&](Communicator& all) {
      constexpr std::size_t kElements = 40'000;
      for (int turn = 0; turn < 5; ++turn) {
        // Contributions are equal, so the average of any of them is that value.
        std::vector<float> equal(kElements);
        for (std::size_t i = 0; i < kElements; ++i) equal[i] = static_cast<float>(i % 1000);
        // These differ: their average lies between the least and the greatest.
        std::vector<float> different(kElements, static_cast<float>(all.rank()));
        const CallOptions options{.op = op, .loss_bound = 0.2};
        for (auto* tensor : {&equal, &different}) {
          const Status status = all.allreduce(TensorSpan::of(*tensor), options);
          ASSERT_TRUE(status.ok()) << status.error().message();
        }
        const float scale = op == ReduceOp::kSum ? 4.0F : 1.0F;
        for (std::size_t i = 0; i < kElements; ++i) {
          ASSERT_FLOAT_EQ(equal[i], scale * static_cast<float>(i % 1000)) << i;
          ASSERT_GE(different[i], 0.0F) << i;
          ASSERT_LE(different[i], scale * 3.0F) << i;
        }
        // Most elements are the average of all contributions. The bound promises this for a fifth:
        // three transfers that may lose 0.2 and two that may lose 0.1 lead to an element.
        const auto whole = std::ranges::count(different, scale * 1.5F);
        EXPECT_GT(whole, static_cast<std::ptrdiff_t>(sums ? kElements / 2 : kElements / 5));
        EXPECT_LT(whole, static_cast<std::ptrdiff_t>(kElements)) << "nothing was lost";
      }
    });
  }
}

// Rank r contributes 2^r to every element, so that a result says whose contributions are in it.
struct RandomCalls {
  std::uint64_t seed = 0;
  int ranks = 0;
  double bound = 0;
  double result_bound = 0;
  CommunicatorOptions common = over_dlcp();
  bool several_ways = false;
  bool own_payloads = false;  // ranks want packets of different sizes

  static RandomCalls of(std::uint64_t seed) {
    Prng prng(seed);
    RandomCalls calls{.seed = seed};
    calls.ranks = 2 + static_cast<int>(prng.below(4));
    calls.bound = prng.chance(0.3) ? 0 : prng.real() * 0.5;
    calls.result_bound = calls.bound * (prng.chance(0.3) ? 0 : prng.real());
    calls.common.dlcp_payload = static_cast<std::uint32_t>(64 + 8 * prng.below(168));
    calls.common.dlcp_paths = static_cast<std::uint32_t>(1 + prng.below(3));
    calls.several_ways = prng.chance(0.3);
    calls.own_payloads = calls.bound == 0 && prng.chance(0.5);
    return calls;
  }

  CommunicatorOptions options_of(int rank) const {
    CommunicatorOptions options = common;
    if (several_ways) options.interfaces = net::several_ways(1)(rank).interfaces;
    if (own_payloads) *options.dlcp_payload += static_cast<std::uint32_t>(rank % 2) * 64;
    return options;
  }

  // Rank r contributes 2^r, so the sum of an element has a bit for each rank in it, and a mean is
  // right if it divides by as many.
  void check(std::span<const float> values, bool mean, bool sure, int rank) const {
    const float whole = std::ldexp(1.0F, ranks) - 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float average = mean ? values[i] : values[i] / static_cast<float>(ranks);
      bool good = false;
      for (int count = sure ? ranks : 1; count <= ranks && !good; ++count) {
        const float sum = average * static_cast<float>(count);
        const float exact = std::round(sum);
        good = std::abs(sum - exact) < 1e-4F && exact > 0 && exact <= whole &&
               std::popcount(static_cast<unsigned>(exact)) == count;
      }
      ASSERT_TRUE(good) << "rank " << rank << " element " << i << " is " << values[i];
    }
  }

  void run(Communicator& all) const {
    Prng prng(seed + 1);  // the same on all ranks
    std::vector<std::vector<float>> tensors;
    std::vector<CallOptions> options;
    std::vector<Operation> flying;
    for (int i = 0; i < 4; ++i) {
      constexpr std::array kSizes{0U, 1U, 5U, 999U, 30'011U, 120'007U};
      tensors.emplace_back(kSizes.at(prng.below(kSizes.size())), std::ldexp(1.0F, all.rank()));
      constexpr std::array kSchemes{"", "ring", "butterfly", "rat", "halving-doubling"};
      options.push_back({.op = prng.chance(0.5) ? ReduceOp::kMean : ReduceOp::kSum,
                         .scheme = kSchemes.at(prng.below(kSchemes.size())),
                         .loss_bound = bound,
                         .result_loss_bound = result_bound});
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto operation = all.allreduce_async(TensorSpan::of(tensors[i]), options[i]);
      ASSERT_TRUE(operation.ok()) << operation.error().message();
      flying.push_back(*operation);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Status status = flying[i].wait();
      ASSERT_TRUE(status.ok()) << status.error().message();
      check(tensors[i], options[i].op == ReduceOp::kMean, bound == 0, all.rank());
    }
  }
};

// Segments are forwarded while others of their chunk are lost, and overtake each other on several
// paths and ways.
TEST(CommunicatorDlcp, random__every_average_is_of_the_contributions_in_its_sum) {
  const std::uint64_t first = test_seed();
  for (std::uint64_t seed = first; seed < first + 12 && !testing::Test::HasFailure(); ++seed) {
    const RandomCalls calls = RandomCalls::of(seed);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const ScopedLoss loss(seed % 4 == 0 ? LosePacket() : lose_one_in(3 + seed % 50));
    run_ranks_by(
        calls.ranks, [&](int rank) { return calls.options_of(rank); },
        [&](Communicator& all) { calls.run(all); });
  }
}

// All results arrive here. The applied averages and the residuals must then add up to the exact
// averages.
TEST(CommunicatorDlcp, residual__makes_up_for_what_averages_lack) {
  const ScopedLoss loss(lose_one_in(10));
  run_ranks(3, over_dlcp(), [&](Communicator& all) {
    constexpr std::size_t kElements = 20'000;
    constexpr int kTurns = 6;
    std::vector<float> residual(kElements, 0.0F);
    std::vector<double> applied(kElements, 0.0);
    bool missed = false;
    for (int turn = 0; turn < kTurns; ++turn) {
      std::vector<float> values(kElements, static_cast<float>(all.rank() * 3 + turn));
      const Status status = all.allreduce(TensorSpan::of(values), {.op = ReduceOp::kMean,
                                                                   .scheme = "ring",
                                                                   .loss_bound = 0.3,
                                                                   .result_loss_bound = 0,
                                                                   .residual = residual.data()});
      ASSERT_TRUE(status.ok()) << status.error().message();
      for (std::size_t i = 0; i < kElements; ++i) applied[i] += values[i];
      missed |= std::ranges::any_of(residual, [](float rest) { return rest != 0; });
    }
    EXPECT_TRUE(missed) << "nothing was lost";
    const Status status = all.allreduce(TensorSpan::of(residual), {.op = ReduceOp::kMean});
    ASSERT_TRUE(status.ok()) << status.error().message();
    // Ranks contribute 0, 3 and 6, plus the turn.
    constexpr double kWanted = kTurns * 3.0 + kTurns * (kTurns - 1) / 2.0;
    for (std::size_t i = 0; i < kElements; ++i)
      ASSERT_NEAR(applied[i] + residual[i], kWanted, 1e-3);
  });
}

// Every packet of data is lost, and the signals arrive.
TEST(CommunicatorDlcp, path_that_drops_large_packets__is_said_with_what_to_set) {
  const ScopedLoss loss([](std::uint64_t) { return true; });
  run_ranks(2, over_dlcp(), [&](Communicator& all) {
    std::vector<float> values(20'000, 1.0F);
    const Status status =
        all.allreduce(TensorSpan::of(values), {.deadline = std::chrono::milliseconds(2'500)});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kTimeout);
    EXPECT_EQ(status.error().rank(), std::nullopt);
    EXPECT_NE(status.error().message().find("do not arrive, though its signals do: if the path "
                                            "drops large packets, set THALWEG_DLCP_PAYLOAD=1152"),
              std::string::npos)
        << status.error().message();
  });
}

TEST(CommunicatorDlcp, residual__goes_into_exact_averages_whole) {
  run_ranks(2, over_dlcp(), [&](Communicator& all) {
    std::vector<float> values(100, 1.0F);
    std::vector<float> residual(100, static_cast<float>(all.rank() * 4));
    for (const Transport transport : {Transport::kTcp, Transport::kDlcp}) {
      const CallOptions options{
          .op = ReduceOp::kMean, .transport = transport, .residual = residual.data()};
      ASSERT_TRUE(all.allreduce(TensorSpan::of(values), options).ok());
      EXPECT_EQ(std::ranges::count(values, 3.0F), 100);
      EXPECT_EQ(std::ranges::count(residual, 0.0F), 100);
    }
    const Status refused =
        all.allreduce(TensorSpan::of(values), {.op = ReduceOp::kSum, .residual = residual.data()});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message().find("residual: only an allreduce by mean"),
              std::string::npos);
  });
}

// One thread waits for an address in the store that the other rank publishes only after an
// operation of another communicator. That communicator's own address must get there meanwhile.
TEST(CommunicatorDlcp, two_communicators__do_not_wait_for_each_others_addresses) {
  run_ranks(2, over_dlcp(), [](Communicator& first) {
    Result<std::optional<Communicator>> second = first.split(0, first.rank(), {});
    ASSERT_TRUE(second.ok()) << second.error().message();
    const auto sum_over = [](Communicator& ranks) {
      std::vector<float> values(100, 1.0F);
      CallOptions options;
      options.deadline = std::chrono::seconds(10);
      const Status status = ranks.allreduce(TensorSpan::of(values), options);
      EXPECT_TRUE(status.ok()) << status.error().message();
    };
    if (first.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      sum_over(**second);
      sum_over(first);
    } else {
      std::thread other([&] { sum_over(first); });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      sum_over(**second);
      other.join();
    }
  });
}

TEST(CommunicatorDlcp, dlcp_queue__one_of_seven) {
  run_ranks(2, over_dlcp(), [](Communicator& all) {
    for (int queue = 0; queue <= 8; ++queue) {
      std::vector<float> values(5000, static_cast<float>(all.rank() + 1));
      CallOptions options;
      options.dlcp_queue = static_cast<std::uint8_t>(queue);
      const Status status = all.allreduce(TensorSpan::of(values), options);
      if (queue >= 1 && queue <= 7) {
        ASSERT_TRUE(status.ok()) << status.error().message();
        ASSERT_EQ(std::ranges::count(values, 3.0F), 5000) << "queue " << queue;
        continue;
      }
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().message(),
                "dlcp_queue: " + std::to_string(queue) + "; from 1 to 7 are allowed");
    }
  });
}

TEST(CommunicatorDlcp, loss_bound__refused_if_a_packet_has_no_room_for_a_count) {
  CommunicatorOptions options = over_dlcp();
  options.dlcp_payload = 8;
  run_ranks(2, options, [](Communicator& all) {
    std::vector<double> wide(100, 1.0);
    const Status refused = all.allreduce(TensorSpan::of(wide), {.loss_bound = 0.1});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message().find("float64 needs at least 16"), std::string::npos)
        << refused.error().message();
    std::vector<float> narrow(100, 1.0F);
    const Status status = all.allreduce(TensorSpan::of(narrow), {.loss_bound = 0.1});
    EXPECT_TRUE(status.ok()) << status.error().message();
  });
}

TEST(CommunicatorDlcp, loss_bound__only_where_it_makes_sense) {
  run_ranks(1, over_dlcp(), [&](Communicator& alone) {
    std::vector<float> values(8);
    const auto refuses = [&](double bound, double result_bound, ReduceOp op, DType type,
                             Transport transport, const std::string& wanted) {
      CallOptions options;
      options.op = op;
      options.transport = transport;
      options.loss_bound = bound;
      options.result_loss_bound = result_bound;
      const Status status = alone.allreduce({values.data(), 8, type}, options);
      ASSERT_FALSE(status.ok()) << wanted;
      EXPECT_NE(status.error().message().find(wanted), std::string::npos)
          << status.error().message();
    };
    using enum ReduceOp;
    using enum DType;
    using enum Transport;
    refuses(1, 0, kSum, kFloat32, kDlcp, "loss_bound: 1; from 0 to below 1 is allowed");
    refuses(-0.1, 0, kSum, kFloat32, kDlcp, "loss_bound: -0.1; from 0");
    refuses(0.1, 0.2, kSum, kFloat32, kDlcp, "result_loss_bound: 0.2");
    refuses(0.1, 0, kSum, kInt32, kDlcp, "only allreduces of floats");
    refuses(0.1, 0, kMax, kFloat32, kDlcp, "only allreduces of floats");
    refuses(0.1, 0, kSum, kFloat8E4m3fn, kDlcp,
            "loss_bound: 0.1 on allreduce of float8_e4m3fn; elements must have at least 16 bits");
    refuses(0.1, 0, kSum, kFloat32, kTcp, "transport dlcp");
  });
}

}  // namespace
}  // namespace thalweg::net
