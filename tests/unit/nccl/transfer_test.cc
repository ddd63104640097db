// Messages through the built plugin, as NCCL sends them.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "nccl/fake_nccl.h"

namespace thalweg::nccl {
namespace {

// All ways to move bytes: NCCL's thread alone, with one stream and several; workers; a threshold
// that splits sizes.
class NcclTransfer : public testing::TestWithParam<Variables> {};

TEST_P(NcclTransfer, every_size) {
  const Initialized initialized(GetParam());
  ASSERT_EQ(initialized.result(), NcclResult::kSuccess) << take_log();
  Pair pair;
  ASSERT_EQ(pair.open(), NcclResult::kSuccess) << take_log();
  for (std::size_t size :
       {0UL, 1UL, 31UL, 32UL, 33UL, 1000UL, 4096UL, 16383UL, 16384UL, 32768UL, 32769UL, 65536UL,
        65537UL, 262143UL, 524288UL, 1048576UL, 1048577UL, 16777216UL}) {
    std::vector<std::byte> sent = pattern(size, size + 1);
    std::vector<std::byte> got(size + 8, std::byte{0x5a});
    void* const receive = post_receive(pair.receiver, got.data(), size + 8);
    void* const send = post_send(pair.sender, sent.data(), size);
    bool sent_all = false;
    bool done = false;
    int told = -1;
    for (const Patience patience; !(sent_all && done) && !patience.over();) {
      if (!sent_all) {
        ASSERT_EQ(test_once(send, sent_all), NcclResult::kSuccess) << take_log();
      }
      if (!done) {
        ASSERT_EQ(test_once(receive, done, &told), NcclResult::kSuccess) << take_log();
      }
    }
    ASSERT_TRUE(done) << size;
    EXPECT_EQ(told, static_cast<int>(size));
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin())) << size;
    // Nothing beyond the message was touched.
    EXPECT_TRUE(std::all_of(got.begin() + static_cast<std::ptrdiff_t>(size), got.end(),
                            [](std::byte b) { return b == std::byte{0x5a}; }));
  }
}

TEST_P(NcclTransfer, many_in_flight__tested_out_of_order) {
  const Initialized initialized(GetParam());
  Pair pair;
  ASSERT_EQ(pair.open(), NcclResult::kSuccess) << take_log();
  constexpr std::size_t kMessages = 32;
  std::mt19937 random(1);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> got;
    std::vector<void*> requests;
    for (std::size_t i = 0; i < kMessages; ++i) {
      // Short and long ones, which travel on different streams.
      const std::size_t size = i % 3 == 0 ? random() % 600'000 : random() % 2'000;
      sent.push_back(pattern(size, i));
      got.emplace_back(size);
    }
    // The sender is ahead of the receiver in one round, and behind in the next.
    const auto send_all = [&] {
      for (auto& bytes : sent) {
        requests.push_back(post_send(pair.sender, bytes.data(), bytes.size()));
        ASSERT_NE(requests.back(), nullptr);
      }
    };
    if (round % 2 == 0) send_all();
    for (auto& bytes : got) {
      requests.push_back(post_receive(pair.receiver, bytes.data(), bytes.size()));
      ASSERT_NE(requests.back(), nullptr);
    }
    if (round % 2 == 1) send_all();
    std::ranges::shuffle(requests, random);
    ASSERT_EQ(finish(requests), NcclResult::kSuccess) << take_log();
    EXPECT_EQ(sent, got);
  }
}

TEST_P(NcclTransfer, requests_in_flight_are_limited__and_the_next_is_refused_softly) {
  const Initialized initialized(GetParam());
  Pair pair;
  ASSERT_EQ(pair.open(), NcclResult::kSuccess) << take_log();
  std::byte byte{};
  std::vector<void*> receives;
  for (void* request = nullptr;
       receives.size() < 1000 && (request = post_receive(pair.receiver, &byte, 1)) != nullptr;) {
    receives.push_back(request);
  }
  EXPECT_GE(receives.size(), kNcclMaxRequests);
  EXPECT_LT(receives.size(), 1000U);
  const std::size_t count = receives.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::byte one{1};
    ASSERT_EQ(finish({post_send(pair.sender, &one, 1)}), NcclResult::kSuccess);
  }
  EXPECT_EQ(finish(receives), NcclResult::kSuccess);
  EXPECT_NE(post_receive(pair.receiver, &byte, 1), nullptr);
}

INSTANTIATE_TEST_SUITE_P(
    nccl, NcclTransfer,
    testing::Values(Variables{}, Variables{{"THALWEG_STREAMS", "1"}},
                    Variables{{"THALWEG_STREAMS", "3"}, {"THALWEG_NCCL_THREADS", "0"}},
                    Variables{{"THALWEG_STREAMS", "8"},
                              {"THALWEG_NCCL_THREADS", "3"},
                              {"THALWEG_NCCL_INLINE", "0"}},
                    Variables{{"THALWEG_NCCL_INLINE", "1048576"}, {"THALWEG_NCCL_PIECE", "4096"}},
                    Variables{{"LOCAL_WORLD_SIZE", "1000"}}),
    [](const auto& instance) { return "case" + std::to_string(instance.index); });

TEST(nccl_transfer, many_connections_at_once) {
  const Initialized initialized(Variables{{"THALWEG_STREAMS", "2"}});
  constexpr std::size_t kPairs = 24;
  std::vector<Pair> pairs(kPairs);
  for (Pair& pair : pairs) ASSERT_EQ(pair.open(), NcclResult::kSuccess) << take_log();
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got;
  for (std::size_t i = 0; i < kPairs; ++i) {
    sent.push_back(pattern(i * 20'000, i));
    got.emplace_back(i * 20'000);
  }
  std::vector<void*> requests;
  for (std::size_t i = 0; i < kPairs; ++i) {
    requests.push_back(post_receive(pairs[i].receiver, got[i].data(), got[i].size()));
    requests.push_back(post_send(pairs[i].sender, sent[i].data(), sent[i].size()));
  }
  ASSERT_EQ(finish(requests), NcclResult::kSuccess) << take_log();
  EXPECT_EQ(sent, got);
}

TEST(nccl_transfer, one_listener_accepts_again) {
  const Initialized initialized;
  Pair first;
  ASSERT_EQ(first.open(), NcclResult::kSuccess) << take_log();
  Pair second;
  std::ranges::copy(first.handle, second.handle);
  void* offload = nullptr;
  for (const Patience patience; !second.complete() && !patience.over();) {
    if (second.sender == nullptr) {
      ASSERT_EQ(newest().connect(nullptr, 0, second.handle, &second.sender, &offload),
                NcclResult::kSuccess);
    }
    if (second.receiver == nullptr) {
      ASSERT_EQ(newest().accept(first.listener, &second.receiver, &offload), NcclResult::kSuccess);
    }
  }
  ASSERT_TRUE(second.complete());
  std::byte sent{3};
  std::byte got{};
  EXPECT_EQ(finish({post_receive(second.receiver, &got, 1), post_send(second.sender, &sent, 1)}),
            NcclResult::kSuccess);
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace thalweg::nccl
