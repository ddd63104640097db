// Sums by CollNet: a switch in this process, ranks in threads, the plugin's library called as NCCL
// calls it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "nccl/fake_collnet.h"

namespace thalweg::nccl {
namespace {

TEST(nccl_collnet, without_a_switch__there_is_no_device) {
  take_log();
  const CollInitialized initialized("");
  EXPECT_EQ(initialized.result(), NcclResult::kSuccess);
  EXPECT_EQ(initialized.devices(), 0);
  const std::string log = take_log();
  EXPECT_NE(log.find("INFO NET/Thalweg : CollNet: THALWEG_SWITCH is not set"), std::string::npos)
      << log;
}

TEST(nccl_collnet, a_wrong_list_of_switches__is_an_error) {
  take_log();
  const CollInitialized initialized("nowhere");
  EXPECT_EQ(initialized.result(), NcclResult::kInvalidUsage);
  const std::string log = take_log();
  EXPECT_NE(log.find("WARN NET/Thalweg : THALWEG_SWITCH"), std::string::npos) << log;
}

TEST(nccl_collnet, properties__are_those_of_the_net_plugin) {
  const CollInitialized initialized("127.0.0.1:1");
  ASSERT_EQ(initialized.devices(), 1);
  PropertiesV11 net = {};
  PropertiesV11 sums = {};
  ASSERT_EQ(newest().properties(0, &net), NcclResult::kSuccess);
  ASSERT_EQ(coll().properties(0, &sums), NcclResult::kSuccess);
  EXPECT_STREQ(sums.common.name, net.common.name);
  EXPECT_EQ(sums.common.guid, net.common.guid);
  EXPECT_EQ(sums.common.pointers, kNcclPointerHost);
  EXPECT_GT(sums.common.max_collective_bytes, 0U);
  PropertiesV8 old = {};
  const auto& v8 = *static_cast<const CollNetV8*>(coll_table(8));
  ASSERT_EQ(v8.properties(0, &old), NcclResult::kSuccess);
  EXPECT_STREQ(old.name, net.common.name);
  EXPECT_EQ(old.speed_mbps, net.common.speed_mbps);
  // NCCL asks whether they are null.
  EXPECT_EQ(coll().iallgather, nullptr);
  EXPECT_EQ(coll().ireducescatter, nullptr);
}

TEST(nccl_collnet, reduce_support__is_sums_of_four_types) {
  constexpr int kTypes = 12;
  constexpr int kOps = 5;
  for (int type = 0; type < kTypes; ++type) {
    for (int op = 0; op < kOps; ++op) {
      int supported = -1;
      ASSERT_EQ(coll().reduce_support(type, op, &supported), NcclResult::kSuccess);
      const bool wanted = op == kNcclSum && std::ranges::count(kSummedTypes, type) == 1;
      EXPECT_EQ(supported, wanted ? 1 : 0) << type << " " << op;
    }
  }
}

class CollSums : public testing::TestWithParam<int> {};

TEST_P(CollSums, every_type_and_size__is_right_in_place_and_out_of_place) {
  const int ranks = GetParam();
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  constexpr std::size_t kMost = std::size_t{4} << 20;
  std::uint64_t completed = 0;
  run_coll_ranks(ranks, [&](CollRank& rank, int number) {
    rank.make_memory(kMost, 1);
    for (const int type : kSummedTypes) {
      const std::size_t most = kMost / element_bytes(type);
      for (const std::size_t count :
           {std::size_t{1}, std::size_t{2}, std::size_t{255}, std::size_t{256}, std::size_t{257},
            std::size_t{5000}, most}) {
        for (const bool in_place : {false, true}) {
          std::byte* const send = rank.send_slot(0);
          std::byte* const receive = in_place ? send : rank.receive_slot(0);
          fill_values(send, type, count, number);
          ASSERT_EQ(finish_sum(rank.post(send, receive, count, type)), NcclResult::kSuccess)
              << take_log();
          ASSERT_TRUE(holds_sums(receive, type, count, ranks)) << "in place: " << in_place;
        }
      }
    }
    if (number == 0) completed = switch_counter(*daemon, "completed");
  });
  // With two ranks one is the server of a sequence, and the switch passes on what the other sends.
  EXPECT_EQ(completed > 0, ranks > 2);
}

INSTANTIATE_TEST_SUITE_P(ranks, CollSums, testing::Values(2, 4));

TEST(nccl_collnet, an_empty_sum__is_done) {
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  run_coll_ranks(2, [&](CollRank& rank, int) {
    rank.make_memory(64, 1);
    EXPECT_EQ(finish_sum(rank.post(rank.send_slot(0), rank.receive_slot(0), 0, kNcclFloat32)),
              NcclResult::kSuccess);
  });
}

// As many slots as NCCL has for each of 4 groups of channels, more slices than slots, and requests
// that are asked about in another order than they were posted.
TEST(nccl_collnet, many_slices_in_flight__are_right) {
  constexpr std::size_t kSlots = 32;
  constexpr std::size_t kSlices = 600;
  constexpr std::size_t kCount = 8192;
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  run_coll_ranks(4, [&](CollRank& rank, int number) {
    rank.make_memory(kCount * sizeof(float), kSlots);
    std::vector<void*> requests(kSlots, nullptr);
    for (std::size_t slice = 0; slice < kSlices + kSlots; ++slice) {
      const std::size_t slot = slice % kSlots;
      if (requests[slot] != nullptr) {
        ASSERT_EQ(finish_sum(requests[slot]), NcclResult::kSuccess) << take_log();
        ASSERT_TRUE(holds_sums(rank.receive_slot(slot), kNcclFloat32, kCount, 4)) << slice;
        requests[slot] = nullptr;
      }
      if (slice >= kSlices) continue;
      fill_values(rank.send_slot(slot), kNcclFloat32, kCount, number);
      requests[slot] =
          rank.post(rank.send_slot(slot), rank.receive_slot(slot), kCount, kNcclFloat32);
      ASSERT_NE(requests[slot], nullptr);
      // The newest first: it is not done before the older ones, and asking does no harm.
      int done = 0;
      ASSERT_EQ(coll().test(requests[slot], &done, nullptr), NcclResult::kSuccess);
      if (done == 1) {
        ASSERT_TRUE(holds_sums(rank.receive_slot(slot), kNcclFloat32, kCount, 4));
        requests[slot] = nullptr;
      }
    }
  });
}

TEST(nccl_collnet, more_than_fit__are_refused_until_one_is_done) {
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  std::atomic<bool> full = false;
  run_coll_ranks(2, [&](CollRank& rank, int number) {
    rank.make_memory(4, 256);
    std::deque<void*> requests;
    const auto try_post = [&](std::size_t slot) {
      void* request = nullptr;
      EXPECT_EQ(coll().iallreduce(rank.collective(), rank.send_slot(slot), rank.receive_slot(slot),
                                  1, kNcclInt32, kNcclSum, nullptr, nullptr, &request),
                NcclResult::kSuccess);
      return request;
    };
    // Rank 1 is late: rank 0 posts until the plugin takes no more.
    const Patience patience;
    while (number == 1 && !full && !patience.over()) std::this_thread::yield();
    std::size_t posted = 0;
    for (; posted < 256; ++posted) {
      put_element(rank.send_slot(posted), kNcclInt32, 1 + number);
      void* const request = try_post(posted);
      if (request == nullptr) break;
      requests.push_back(request);
    }
    EXPECT_LT(posted, 256U);
    EXPECT_GE(posted, kNcclMaxRequests);
    full = true;
    for (void* const request : requests) {
      ASSERT_EQ(finish_sum(request), NcclResult::kSuccess) << take_log();
    }
    for (std::size_t slot = 0; slot < posted; ++slot) {
      EXPECT_EQ(element_at(rank.receive_slot(slot), kNcclInt32), 3);
    }
    EXPECT_EQ(finish_sum(try_post(0)), NcclResult::kSuccess);
  });
}

// NCCL sums whole slots, of which a tensor fills a part. What another tensor, perhaps of another
// type, has left behind it must not change the tensor's elements.
TEST(nccl_collnet, what_a_slot_held_before__changes_nothing) {
  constexpr std::size_t kSlotBytes = std::size_t{32} << 10;
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  run_coll_ranks(2, [&](CollRank& rank, int number) {
    rank.make_memory(kSlotBytes, 1);
    std::byte* const send = rank.send_slot(0);
    std::byte* const receive = rank.receive_slot(0);
    for (const double before : {1e30, std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()}) {
      for (std::size_t i = 0; i < kSlotBytes / sizeof(float); ++i) {
        put_element(send + i * sizeof(float), kNcclFloat32, before);
      }
      ASSERT_EQ(finish_sum(rank.post(send, receive, kSlotBytes / sizeof(float), kNcclFloat32)),
                NcclResult::kSuccess);
      for (const int type : kSummedTypes) {
        constexpr std::size_t kCount = 1000;
        fill_values(send, type, kCount, number);
        ASSERT_EQ(finish_sum(rank.post(send, receive, kSlotBytes / element_bytes(type), type)),
                  NcclResult::kSuccess)
            << take_log();
        ASSERT_TRUE(holds_sums(receive, type, kCount, 2)) << "after " << before;
      }
    }
  });
}

TEST(nccl_collnet, older_versions_of_the_tables__sum_too) {
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  const auto& v8 = *static_cast<const CollNetV8*>(coll_table(8));
  for (const int version : {9, 10}) {
    const auto& table = *static_cast<const CollNetV9*>(coll_table(version));
    int devices = 0;
    ASSERT_EQ(table.init(fake_logger), NcclResult::kSuccess);
    ASSERT_EQ(table.devices(&devices), NcclResult::kSuccess);
    EXPECT_EQ(devices, 1);
    EXPECT_EQ(table.iallgather, nullptr);
  }
  ASSERT_EQ(v8.init(fake_logger), NcclResult::kSuccess);
  run_coll_ranks(2, [&](CollRank& rank, int number) {
    rank.make_memory(4000, 1);
    fill_values(rank.send_slot(0), kNcclFloat32, 1000, number);
    void* request = nullptr;
    ASSERT_EQ(v8.iallreduce(rank.collective(), rank.send_slot(0), rank.receive_slot(0), 1000,
                            kNcclFloat32, kNcclSum, nullptr, nullptr, &request),
              NcclResult::kSuccess);
    ASSERT_EQ(finish_sum(request), NcclResult::kSuccess);
    EXPECT_TRUE(holds_sums(rank.receive_slot(0), kNcclFloat32, 1000, 2));
    void* flushed = &flushed;
    EXPECT_EQ(v8.iflush(rank.collective(), rank.receive_slot(0), 4000, nullptr, &flushed),
              NcclResult::kSuccess);
    EXPECT_EQ(flushed, nullptr);
  });
}

TEST(nccl_collnet, with_a_job_key__sums_are_right) {
  const std::string path = testing::TempDir() + "/collnet-key-" + std::to_string(getpid());
  std::ofstream(path) << "00112233445566778899aabbccddeeff\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const auto key = wire::JobKey::from_hex("00112233445566778899aabbccddeeff").value();
  const auto daemon = start_switch(key);
  std::uint64_t completed = 0;
  {
    const CollInitialized initialized(daemon->control_address(), {{"THALWEG_KEY_FILE", path}});
    run_coll_ranks(3, [&](CollRank& rank, int number) {
      rank.make_memory(40'000, 1);
      fill_values(rank.send_slot(0), kNcclFloat32, 10'000, number);
      ASSERT_EQ(
          finish_sum(rank.post(rank.send_slot(0), rank.receive_slot(0), 10'000, kNcclFloat32)),
          NcclResult::kSuccess)
          << take_log();
      EXPECT_TRUE(holds_sums(rank.receive_slot(0), kNcclFloat32, 10'000, 3));
      if (number == 0) completed = switch_counter(*daemon, "completed", key);
    });
  }
  EXPECT_GT(completed, 0U);
  std::filesystem::remove(path);
}

TEST(nccl_collnet, the_switch_dies__sums_go_on) {
  auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  std::atomic<int> ready = 0;
  run_coll_ranks(4, [&](CollRank& rank, int number) {
    constexpr std::size_t kCount = 50'000;
    constexpr std::size_t kSlots = 8;
    rank.make_memory(kCount * sizeof(float), kSlots);
    for (std::size_t round = 0; round < 6; ++round) {
      std::vector<void*> requests;
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        fill_values(rank.send_slot(slot), kNcclFloat32, kCount, number);
        requests.push_back(
            rank.post(rank.send_slot(slot), rank.receive_slot(slot), kCount, kNcclFloat32));
      }
      // Sums are in flight, of this rank at least.
      if (round == 2 && number == 0) daemon.reset();
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        ASSERT_EQ(finish_sum(requests[slot]), NcclResult::kSuccess) << take_log();
        ASSERT_TRUE(holds_sums(rank.receive_slot(slot), kNcclFloat32, kCount, 4)) << round;
      }
    }
    ++ready;
  });
  EXPECT_EQ(ready, 4);
}

}  // namespace
}  // namespace thalweg::nccl
