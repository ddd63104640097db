// Random tensors, bounds, tags and losses over real sockets, some of them offered in pieces. The
// bound is kept, what arrived is right and was told once, what did not arrive is unchanged, and
// nothing outside the tensor is touched.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>

#include "net/net_pair.h"

namespace thalweg::net {
namespace {

constexpr std::size_t kGuard = 64;
constexpr float kUntouched = -7.0F;

struct PropertyCase {
  std::vector<float> source;
  std::vector<float> target;  // kGuard values before and after
  double bound = 0;
  std::vector<int> told;  // how often on_arrival() named each element
};

void check(const PropertyCase& one, const TransferReport& report) {
  const auto allowed = static_cast<double>(report.packets) * one.bound;
  const double lost = static_cast<double>(report.packets) * (1 - report.fraction);
  EXPECT_LE(lost, allowed + 1e-6);
  std::size_t next = 0;
  std::vector<bool> missing(one.source.size());
  for (const ElementRange& range : report.missing) {
    EXPECT_LE(next, static_cast<std::size_t>(range.begin));
    for (auto i = range.begin; i < range.end; ++i) missing[static_cast<std::size_t>(i)] = true;
    next = static_cast<std::size_t>(range.end);
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < one.source.size(); ++i) {
    const float expected = missing[i] ? kUntouched : one.source[i];
    if (one.target[kGuard + i] != expected || one.told[i] != (missing[i] ? 0 : 1)) ++wrong;
  }
  EXPECT_EQ(wrong, 0U);
  for (std::size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(one.target[i], kUntouched);
    EXPECT_EQ(one.target[one.target.size() - 1 - i], kUntouched);
  }
}

// Offers all of a gradual send in pieces, in random order. Some pieces overlap.
void offer_all(const Transfer& transfer, std::int64_t elements, std::int64_t packet, Prng& prng) {
  std::vector<ElementRange> pieces;
  for (std::int64_t begin = 0; begin < elements;) {
    const std::int64_t end = std::min<std::int64_t>(
        elements, begin + packet * (1 + static_cast<std::int64_t>(prng.below(20))));
    pieces.push_back({begin - std::min(begin, packet), end});
    begin = end;
  }
  while (!pieces.empty()) {
    std::swap(pieces[prng.below(pieces.size())], pieces.back());
    ASSERT_TRUE(transfer.offer(pieces.back()).ok());
    pieces.pop_back();
  }
}

void run_case(std::uint64_t seed) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Prng prng(seed);
  const double loss = prng.chance(0.2) ? 0 : prng.real() * prng.real() * 0.5;
  EndpointOptions client = test_options("client");
  client.packet_payload = static_cast<std::uint32_t>(8 + prng.below(3000));
  client.offload = prng.chance(0.7);
  EndpointOptions server = test_options("server");
  server.packet_payload = 0;
  server.offload = prng.chance(0.7);
  if (prng.chance(0.4)) client.job_key = server.job_key = "00112233445566778899aabbccddeeff";
  const auto lose = [drops = Prng(seed + 1), loss](std::uint64_t) mutable {
    return drops.chance(loss);
  };
  NetPair pair = NetPair::make(server, client, {.client = lose});

  std::vector<PropertyCase> cases(1 + prng.below(6));
  std::vector<Result<Transfer>> receiving;
  std::vector<Result<Transfer>> sending;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    PropertyCase& one = cases[i];
    const std::size_t most = prng.chance(0.3) ? 10 : 100 * client.packet_payload;
    one.source = random_floats(prng.below(most), prng);
    one.target.assign(one.source.size() + 2 * kGuard, kUntouched);
    one.bound = prng.chance(0.4) ? 0 : prng.real() * 0.6;
    one.told.assign(one.source.size(), 0);
    RecvOptions recv{.key = i, .loss_bound = one.bound};
    recv.on_arrival = [&one](std::span<const ElementRange> ranges) {
      for (const ElementRange& range : ranges) {
        for (auto e = range.begin; e < range.end; ++e) ++one.told[static_cast<std::size_t>(e)];
      }
    };
    if (prng.chance(0.5)) recv.loss_target = one.bound * prng.real();
    receiving.push_back(pair.at_server.recv(
        TensorSpan::of(std::span(one.target).subspan(kGuard, one.source.size())), recv));
    SendOptions send{.key = i, .loss_bound = one.bound};
    if (prng.chance(0.5)) {
      send.tag_of = [salt = prng.next()](std::int64_t first, std::int64_t) {
        Prng of(salt + static_cast<std::uint64_t>(first));
        return PacketTag{static_cast<std::uint8_t>(of.below(3)), of.chance(0.5)};
      };
    }
    send.gradual = prng.chance(0.5);
    sending.push_back(pair.at_client.send(TensorView::of(one.source), send));
    if (send.gradual) {
      offer_all(*sending.back(), std::ssize(one.source), client.packet_payload / 4, prng);
    }
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    ASSERT_EQ(error_of(sending[i]), "");
    ASSERT_EQ(error_of(receiving[i]), "");
    check(cases[i], *receiving[i]->wait());
  }
}

TEST(EndpointProperty, random_transfers) {
  const char* first = std::getenv("THALWEG_FIRST_SEED");
  const std::uint64_t start = first == nullptr ? 1 : std::strtoull(first, nullptr, 10);
  for (std::uint64_t seed = start; seed < start + 60 && !testing::Test::HasFailure(); ++seed) {
    run_case(seed);
  }
}

}  // namespace
}  // namespace thalweg::net
