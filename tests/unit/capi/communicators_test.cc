// What a communicator of the C API says of itself: its switch, what trials chose, why it is broken.
#include <thalweg/thalweg.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <latch>
#include <string>
#include <vector>

#include "capi/codes.h"
#include "capi/on_ranks.h"
#include "switchd/loopback_job.h"

namespace thalweg::capi {
namespace {

TEST(CApiCommunicators, has_switch__if_one_admitted_the_job) {
  on_ranks([](thalweg_communicator* all, int) {
    int has = 2;
    expect_ok(thalweg_has_switch(all, &has));
    EXPECT_EQ(has, 0);
    expect_ok(thalweg_barrier(all, nullptr));  // the store stays until all have come
    expect_refused(thalweg_has_switch(nullptr, &has), "communicator: a null pointer");
    expect_refused(thalweg_has_switch(all, nullptr), "has: a null pointer");
  });
  const auto daemon = switchd::start_switch(256);
  const std::string control = daemon->control_address();
  on_ranks(
      [](thalweg_communicator* all, int rank) {
        int has = 2;
        expect_ok(thalweg_has_switch(all, &has));
        EXPECT_EQ(has, 1);
        std::vector<std::int32_t> values(1'000, rank);
        expect_ok(thalweg_allreduce(all, values.data(), values.data(), 1'000, THALWEG_INT32,
                                    THALWEG_SUM, nullptr));
        EXPECT_EQ(values, std::vector<std::int32_t>(1'000, 3));
      },
      [&](thalweg_options& options) {
        options.transport = THALWEG_ATP;
        options.atp_switch = control.c_str();
        options.atp_elements = 64;
      });
}

TEST(CApiCommunicators, auto_choices__are_lines_of_text_that_fit_or_are_cut) {
  on_ranks(
      [](thalweg_communicator* all, int) {
        std::string text(1'000, 'x');
        std::size_t length = 1;
        expect_ok(thalweg_auto_choices(all, text.data(), text.size(), &length));
        EXPECT_EQ(length, 0U);
        EXPECT_STREQ(text.c_str(), "");

        std::vector<std::int32_t> values(20'000);
        for (int call = 0; call < 20; ++call) {
          expect_ok(thalweg_allreduce(all, values.data(), values.data(), 20'000, THALWEG_INT32,
                                      THALWEG_SUM, nullptr));
        }
        expect_ok(thalweg_auto_choices(all, nullptr, 0, &length));
        ASSERT_GT(length, 0U);
        text.assign(length + 1, 'x');
        expect_ok(thalweg_auto_choices(all, text.data(), text.size(), &length));
        EXPECT_EQ(std::strlen(text.c_str()), length);
        EXPECT_EQ(text.rfind("allreduce of int32, sum, 64KiB to 128KiB: ", 0), 0U) << text;
        EXPECT_NE(text.find("; 20 calls, "), std::string::npos) << text;
        EXPECT_EQ(text[length - 1], '\n');

        std::string part(11, 'x');
        expect_ok(thalweg_auto_choices(all, part.data(), 10, &length));
        EXPECT_EQ(part, std::string("allreduce\0x", 11));
        expect_refused(thalweg_auto_choices(all, nullptr, 10, &length), "text: a null pointer");
        expect_refused(thalweg_auto_choices(all, part.data(), 10, nullptr), "length: a null");
        expect_refused(thalweg_auto_choices(nullptr, part.data(), 10, &length), "communicator");
      },
      [](thalweg_options& options) { options.transport = THALWEG_AUTO; });
}

TEST(CApiCommunicators, leave__breaks_it_for_all_and_says_why) {
  std::latch met(kRanks);
  on_ranks([&](thalweg_communicator* all, int rank) {
    expect_ok(thalweg_barrier(all, nullptr));
    expect_ok(thalweg_broken(all));
    met.arrive_and_wait();
    if (rank == 1) {
      expect_ok(thalweg_leave(all));
      EXPECT_NE(thalweg_broken(all), THALWEG_OK);
      EXPECT_NE(thalweg_barrier(all, nullptr), THALWEG_OK);
      return;
    }
    EXPECT_EQ(thalweg_barrier(all, nullptr), THALWEG_PEER_LOST) << thalweg_last_error();
    EXPECT_EQ(thalweg_broken(all), THALWEG_PEER_LOST) << thalweg_last_error();
    EXPECT_EQ(thalweg_last_error_rank(), 1);
  });
  expect_refused(thalweg_leave(nullptr), "communicator: a null pointer");
  expect_refused(thalweg_broken(nullptr), "communicator: a null pointer");
}

}  // namespace
}  // namespace thalweg::capi
