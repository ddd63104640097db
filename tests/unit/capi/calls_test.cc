// Every call of the C API on three ranks: results, operations in flight, failures.
#include <thalweg/thalweg.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "capi/codes.h"
#include "capi/on_ranks.h"

namespace thalweg::capi {
namespace {

constexpr int kType = THALWEG_INT32;
using Values = std::vector<std::int32_t>;

// The operation ends well, and is freed.
void expect_done(int code, thalweg_operation* operation) {
  expect_ok(code);
  expect_ok(thalweg_wait(operation));
  int done = 0;
  expect_ok(thalweg_test(operation, &done));
  EXPECT_EQ(done, 1);
  thalweg_free(operation);
}

TEST(CApiCalls, collectives__give_what_the_header_says) {
  on_ranks([](thalweg_communicator* all, int rank) {
    int known = -1;
    expect_ok(thalweg_rank(all, &known));
    EXPECT_EQ(known, rank);
    expect_ok(thalweg_size(all, &known));
    EXPECT_EQ(known, kRanks);

    const Values own = {rank, 10 * rank};
    Values out(2);
    expect_ok(thalweg_allreduce(all, own.data(), out.data(), 2, kType, THALWEG_SUM, nullptr));
    EXPECT_EQ(out, Values({3, 30}));
    Values place = own;
    expect_ok(thalweg_allreduce(all, place.data(), place.data(), 2, kType, THALWEG_MAX, nullptr));
    EXPECT_EQ(place, Values({2, 20}));
    place = own;
    expect_ok(thalweg_reduce(all, place.data(), 2, kType, THALWEG_SUM, 1, nullptr));
    EXPECT_EQ(place, rank == 1 ? Values({3, 30}) : own);
    place = own;
    expect_ok(thalweg_broadcast(all, place.data(), 2, kType, 2, nullptr));
    EXPECT_EQ(place, Values({2, 20}));

    Values whole(6);
    expect_ok(thalweg_all_gather(all, own.data(), whole.data(), 2, kType, nullptr));
    EXPECT_EQ(whole, Values({0, 0, 1, 10, 2, 20}));
    expect_ok(
        thalweg_reduce_scatter(all, whole.data(), out.data(), 2, kType, THALWEG_SUM, nullptr));
    EXPECT_EQ(out, Values({3 * rank, 30 * rank}));
    const Values parts = {10 * rank, 10 * rank + 1, 10 * rank + 2};
    Values turned(3);
    expect_ok(thalweg_all_to_all(all, parts.data(), turned.data(), 1, kType, nullptr));
    EXPECT_EQ(turned, Values({rank, 10 + rank, 20 + rank}));

    Values gathered(6);
    void* at_root = rank == 0 ? gathered.data() : nullptr;
    expect_ok(thalweg_gather(all, own.data(), at_root, 2, kType, 0, nullptr));
    EXPECT_EQ(gathered, rank == 0 ? Values({0, 0, 1, 10, 2, 20}) : Values(6));
    expect_ok(thalweg_scatter(all, at_root, out.data(), 2, kType, 0, nullptr));
    EXPECT_EQ(out, own);
    expect_ok(thalweg_barrier(all, nullptr));
  });
}

TEST(CApiCalls, collectives__of_8_bit_floats) {
  on_ranks([](thalweg_communicator* all, int rank) {
    // One, two and three, as 0, 1 and 2 are the ranks.
    for (const auto& [type, numbers, six] :
         {std::tuple{THALWEG_FLOAT8_E4M3FN, std::vector<std::uint8_t>{0x38, 0x40, 0x44}, 0x4c},
          std::tuple{THALWEG_FLOAT8_E5M2, std::vector<std::uint8_t>{0x3c, 0x40, 0x42}, 0x46}}) {
      const std::uint8_t own = numbers[static_cast<std::size_t>(rank)];
      std::uint8_t out = 0;
      expect_ok(thalweg_allreduce(all, &own, &out, 1, type, THALWEG_SUM, nullptr));
      EXPECT_EQ(out, six);
      expect_ok(thalweg_allreduce(all, &own, &out, 1, type, THALWEG_MEAN, nullptr));
      EXPECT_EQ(out, numbers[1]);
      expect_ok(thalweg_allreduce(all, &own, &out, 1, type, THALWEG_PRODUCT, nullptr));
      EXPECT_EQ(out, six);
      expect_ok(thalweg_allreduce(all, &own, &out, 1, type, THALWEG_MIN, nullptr));
      EXPECT_EQ(out, numbers[0]);
      std::vector<std::uint8_t> whole(3);
      expect_ok(thalweg_all_gather(all, &own, whole.data(), 1, type, nullptr));
      EXPECT_EQ(whole, numbers);
      expect_ok(thalweg_reduce_scatter(all, whole.data(), &out, 1, type, THALWEG_MAX, nullptr));
      EXPECT_EQ(out, own);
      expect_ok(thalweg_broadcast(all, whole.data(), 3, type, 1, nullptr));
      std::vector<std::uint8_t> turned(3);
      expect_ok(thalweg_all_to_all(all, whole.data(), turned.data(), 1, type, nullptr));
      EXPECT_EQ(turned, std::vector<std::uint8_t>(3, own));
    }
  });
}

TEST(CApiCalls, operations_in_flight__give_the_same) {
  on_ranks([](thalweg_communicator* all, int rank) {
    const Values own = {rank, 10 * rank};
    Values sum(2);
    Values root = own;
    Values cast = own;
    Values whole(6);
    Values part(2);
    Values turned(6);
    Values gathered(6);
    Values scattered(2);
    const Values in = {0, 0, 1, 10, 2, 20};
    std::vector<thalweg_operation*> started(9);
    const std::vector<int> codes = {
        thalweg_allreduce_async(all, own.data(), sum.data(), 2, kType, THALWEG_SUM, nullptr,
                                &started[0]),
        thalweg_reduce_async(all, root.data(), 2, kType, THALWEG_SUM, 1, nullptr, &started[1]),
        thalweg_broadcast_async(all, cast.data(), 2, kType, 2, nullptr, &started[2]),
        thalweg_all_gather_async(all, own.data(), whole.data(), 2, kType, nullptr, &started[3]),
        thalweg_reduce_scatter_async(all, in.data(), part.data(), 2, kType, THALWEG_SUM, nullptr,
                                     &started[4]),
        thalweg_all_to_all_async(all, in.data(), turned.data(), 2, kType, nullptr, &started[5]),
        thalweg_gather_async(all, own.data(), gathered.data(), 2, kType, 0, nullptr, &started[6]),
        thalweg_scatter_async(all, in.data(), scattered.data(), 2, kType, 0, nullptr, &started[7]),
        thalweg_barrier_async(all, nullptr, &started[8])};
    for (std::size_t i = 0; i < codes.size(); ++i) expect_done(codes[i], started[i]);
    EXPECT_EQ(sum, Values({3, 30}));
    EXPECT_EQ(root, rank == 1 ? Values({3, 30}) : own);
    EXPECT_EQ(cast, Values({2, 20}));
    EXPECT_EQ(whole, in);
    EXPECT_EQ(part, Values({3 * rank, 30 * rank}));
    EXPECT_EQ(turned, Values({rank, 10 * rank, rank, 10 * rank, rank, 10 * rank}));
    EXPECT_EQ(gathered, rank == 0 ? in : Values(6));
    EXPECT_EQ(scattered, own);
  });
}

TEST(CApiCalls, messages__arrive_and_name_their_sender) {
  on_ranks([](thalweg_communicator* all, int rank) {
    Values value = {rank};
    if (rank == 0) {
      int sender = -1;
      expect_ok(thalweg_recv(all, value.data(), 1, kType, 2, 5, &sender, nullptr));
      EXPECT_EQ(sender, 2);
      EXPECT_EQ(value, Values({2}));
      thalweg_operation* started = nullptr;
      expect_ok(thalweg_recv_async(all, value.data(), 1, kType, THALWEG_ANY_SOURCE, 6, nullptr,
                                   &started));
      expect_ok(thalweg_wait(started));
      expect_ok(thalweg_sender(started, &sender));
      EXPECT_EQ(sender, 1);
      thalweg_free(started);
    } else if (rank == 1) {
      thalweg_operation* started = nullptr;
      const int code = thalweg_send_async(all, value.data(), 1, kType, 0, 6, nullptr, &started);
      expect_done(code, started);
    } else {
      expect_ok(thalweg_send(all, value.data(), 1, kType, 0, 5, nullptr));
    }
    expect_ok(thalweg_barrier(all, nullptr));
  });
}

TEST(CApiCalls, split__divides_the_ranks) {
  on_ranks([](thalweg_communicator* all, int rank) {
    thalweg_communicator* half = nullptr;
    expect_ok(thalweg_split(all, rank == 1 ? THALWEG_NO_COLOR : 0, -rank, nullptr, &half));
    ASSERT_EQ(half == nullptr, rank == 1);
    if (half != nullptr) {
      int number = -1;
      expect_ok(thalweg_size(half, &number));
      EXPECT_EQ(number, 2);
      expect_ok(thalweg_rank(half, &number));
      EXPECT_EQ(number, rank == 2 ? 0 : 1);
      expect_ok(thalweg_barrier(half, nullptr));
    }
    expect_ok(thalweg_barrier(all, nullptr));
    thalweg_destroy(half);
  });
}

TEST(CApiCalls, a_rank_that_left__is_blamed_and_the_others_go_on) {
  on_ranks([](thalweg_communicator* all, int rank) {
    expect_ok(thalweg_barrier(all, nullptr));
    if (rank == 1) return;
    EXPECT_EQ(thalweg_barrier(all, nullptr), THALWEG_PEER_LOST) << thalweg_last_error();
    EXPECT_EQ(thalweg_last_error_rank(), 1) << thalweg_last_error();
    thalweg_communicator* survivors = nullptr;
    expect_ok(thalweg_shrink(all, 1, &survivors));
    ASSERT_NE(survivors, nullptr);
    int size = 0;
    expect_ok(thalweg_size(survivors, &size));
    EXPECT_EQ(size, 2);
    expect_ok(thalweg_barrier(survivors, nullptr));
    thalweg_destroy(survivors);
  });
}

TEST(CApiCalls, calls_that_differ__are_a_mismatch) {
  on_ranks([](thalweg_communicator* all, int rank) {
    Values values(4);
    const int code = rank == 1 ? thalweg_broadcast(all, values.data(), 4, kType, 0, nullptr)
                               : thalweg_allreduce(all, values.data(), values.data(), 4, kType,
                                                   THALWEG_SUM, nullptr);
    EXPECT_EQ(code, THALWEG_MISMATCH) << thalweg_last_error();
  });
}

}  // namespace
}  // namespace thalweg::capi
