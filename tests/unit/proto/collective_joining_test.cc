#include "proto/collective/joining.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/collective/moving.h"

namespace thalweg::proto {
namespace {

using Purpose = HelloFrame::Purpose;
using wire::FrameCheck;

constexpr std::uint64_t kGroup = 77;

HelloFrame hello_of(int rank, Purpose purpose, std::uint32_t number = 1,
                    FrameCheck check = FrameCheck::kNone) {
  HelloFrame hello = Joining(Rank(rank), 4, kGroup).hello(purpose, number);
  hello.check = check;
  return hello;
}

TEST(Joining, frames__are_read_as_they_were_written) {
  for (const Purpose purpose :
       {Purpose::kFirst, Purpose::kMessages, Purpose::kLane, Purpose::kMoved}) {
    for (const FrameCheck check : {FrameCheck::kNone, FrameCheck::kChecksum, FrameCheck::kSealed}) {
      const HelloFrame hello = hello_of(3, purpose, 5, check);
      EXPECT_EQ(hello_frame(wire_frame(hello)), hello);
      EXPECT_FALSE(offer_frame(wire_frame(hello)));
    }
  }
  const OfferFrame offer{123, 4, 56};
  EXPECT_EQ(offer_frame(wire_frame(offer)), offer);
  const ResumeFrame resume{2, std::uint64_t{1} << 40};
  EXPECT_EQ(resume_frame(wire_frame(resume)), resume);
  EXPECT_FALSE(hello_frame(wire_frame(resume)));
}

TEST(Joining, hello_frame__nonsense_is_none) {
  const wire::Frame good = wire_frame(hello_of(3, Purpose::kFirst));
  std::vector<wire::Frame> wrong(5, good);
  wrong[0].length = 1;
  wrong[1].operation = 4;              // no such purpose
  wrong[2].rank = 4;                   // of 4 ranks
  wrong[3].index = ~std::uint32_t{0};  // more ranks than there can be
  wrong[4].kind = wire::FrameKind::kData;
  ASSERT_TRUE(hello_frame(good));
  for (const wire::Frame& frame : wrong) EXPECT_FALSE(hello_frame(frame));
}

// The higher rank of two makes their streams; anyone may send messages.
TEST(Joining, takes__streams_of_ranks_that_make_them) {
  const Joining rank_1(Rank(1), 4, kGroup);
  for (int rank = 0; rank < 4; ++rank) {
    const bool higher = rank > 1;
    EXPECT_EQ(rank_1.takes(hello_of(rank, Purpose::kFirst), false), higher) << rank;
    EXPECT_EQ(rank_1.takes(hello_of(rank, Purpose::kMoved, 0), false), higher) << rank;
    EXPECT_EQ(rank_1.takes(hello_of(rank, Purpose::kLane, 1), false), higher) << rank;
    EXPECT_FALSE(rank_1.takes(hello_of(rank, Purpose::kLane, 0), false)) << rank;
    EXPECT_FALSE(rank_1.takes(hello_of(rank, Purpose::kLane, wire::kMaxLane + 1), false)) << rank;
    EXPECT_TRUE(rank_1.takes(hello_of(rank, Purpose::kMessages, 0), false)) << rank;
  }
}

TEST(Joining, takes__no_strangers_and_no_seal_that_is_not_one) {
  const Joining rank_0(Rank(0), 4, kGroup);
  HelloFrame other = hello_of(2, Purpose::kFirst);
  EXPECT_TRUE(rank_0.takes(other, false));
  other.signature = kGroup + 1;
  EXPECT_FALSE(rank_0.takes(other, false));
  other = hello_of(2, Purpose::kFirst);
  other.ranks = 5;
  EXPECT_FALSE(rank_0.takes(other, false));
  for (const bool sealed : {true, false}) {
    for (const FrameCheck check : {FrameCheck::kNone, FrameCheck::kChecksum, FrameCheck::kSealed}) {
      EXPECT_EQ(rank_0.takes(hello_of(2, Purpose::kFirst, 1, check), sealed),
                (check == FrameCheck::kSealed) == sealed);
    }
  }
}

TEST(Joining, mismatch_of__both_settings_in_words) {
  const Joining rank_0(Rank(0), 4, kGroup);
  const auto mismatch = [&](FrameCheck theirs, FrameCheck own, bool by_place = false) {
    const auto error = rank_0.mismatch_of(hello_of(2, Purpose::kFirst, 1, theirs), own, by_place);
    return error ? error->message() : std::string();
  };
  for (const FrameCheck check : {FrameCheck::kNone, FrameCheck::kChecksum, FrameCheck::kSealed}) {
    EXPECT_EQ(mismatch(check, check), "");
  }
  EXPECT_EQ(mismatch(FrameCheck::kChecksum, FrameCheck::kNone),
            "rank 2 sends frames with checksums, and rank 0 sends frames without checksums: "
            "THALWEG_CHECKSUM must be the same on all ranks");
  EXPECT_EQ(
      mismatch(FrameCheck::kNone, FrameCheck::kSealed),
      "rank 0 encrypts its streams, and rank 2 does not encrypt them: THALWEG_ENCRYPT must be "
      "the same on all ranks");
  EXPECT_EQ(
      mismatch(FrameCheck::kSealed, FrameCheck::kChecksum),
      "rank 2 encrypts its streams, and rank 0 does not encrypt them: THALWEG_ENCRYPT must be "
      "the same on all ranks");
  // A rank that checks frames between hosts goes by the other, who may know that hosts differ.
  EXPECT_EQ(mismatch(FrameCheck::kChecksum, FrameCheck::kNone, true), "");
  EXPECT_NE(mismatch(FrameCheck::kChecksum, FrameCheck::kSealed, true), "");
  EXPECT_NE(mismatch(FrameCheck::kNone, FrameCheck::kChecksum, true), "");
}

Time look_ms(std::int64_t ms) { return Time() + Duration::milliseconds(ms); }

TEST(StreamPlaces, look__a_silent_way_is_left_and_others_are_tried_in_turn) {
  StreamPlaces places({0, 1, 2});
  EXPECT_FALSE(places.look(1, false, look_ms(0)));
  EXPECT_EQ(places.look(1, true, look_ms(250)), 2U);
  EXPECT_TRUE(places.silent_anew());
  EXPECT_EQ(places.look(1, true, look_ms(500)), 0U);
  EXPECT_FALSE(places.silent_anew());
  EXPECT_EQ(places.look(1, true, look_ms(750)), 1U);  // its own may be back by now
  EXPECT_EQ(places.way_of(1), 1U);
  EXPECT_FALSE(places.look(0, false, look_ms(750)));
}

TEST(StreamPlaces, look__goes_back_to_its_own_way_after_a_second) {
  StreamPlaces places({0, 1});
  ASSERT_EQ(places.look(0, true, look_ms(0)), 1U);
  places.moved(0, 1, look_ms(100));
  EXPECT_EQ(places.way_of(0), 1U);
  EXPECT_FALSE(places.look(0, false, look_ms(1000)));
  EXPECT_EQ(places.look(0, false, look_ms(1100)), 0U);
  EXPECT_FALSE(places.look(0, false, look_ms(1200)));
  EXPECT_EQ(places.look(0, false, look_ms(2100)), 0U);
  places.moved(0, 0, look_ms(2200));
  EXPECT_EQ(places.way_of(0), 0U);
  EXPECT_FALSE(places.look(0, false, look_ms(9000)));
}

// A cable that comes and goes would have its stream move all the time.
TEST(StreamPlaces, look__a_way_that_dies_again_soon_is_tried_less_and_less_often) {
  StreamPlaces places({0, 1});
  std::int64_t now = 0;
  std::vector<std::int64_t> waits;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(places.look(0, true, look_ms(now)), 1U);
    places.moved(0, 1, look_ms(now));
    const std::int64_t away = now;
    while (!places.look(0, false, look_ms(now))) now += 250;
    waits.push_back(now - away);
    places.moved(0, 0, look_ms(now));
    now += 1000;
  }
  EXPECT_EQ(waits, (std::vector<std::int64_t>{1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000}));
  now += 60'000;
  ASSERT_EQ(places.look(0, true, look_ms(now)), 1U);
  places.moved(0, 1, look_ms(now));
  EXPECT_EQ(places.look(0, false, look_ms(now + 1000)), 0U) << "it was steady for a while";
}

}  // namespace
}  // namespace thalweg::proto
