// The scoreboard: tables of acknowledgements in and segments to send out, and random histories
// beside a model that counts everything anew.
#include "sim/tcp/scoreboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/prng.h"
#include "sanitized.h"

namespace thalweg::sim {
namespace {

constexpr std::uint32_t kSize = 100;

SackBlocks blocks_of(const std::vector<SackBlock>& segments) {
  SackBlocks sack;
  for (const SackBlock& s : segments) {
    sack.blocks.at(sack.count++) = {s.begin * kSize, s.end * kSize};
  }
  return sack;
}

Scoreboard with_segments(std::uint64_t count, std::uint32_t dup_acks = 3) {
  Scoreboard board(dup_acks);
  for (std::uint64_t i = 0; i < count; ++i) board.sent(Time(), i * kSize, kSize);
  return board;
}

// Sends everything again that is lost; returns the numbers of the segments.
std::vector<std::uint64_t> repair(Scoreboard& board, Time now = Time()) {
  std::vector<std::uint64_t> numbers;
  while (const Scoreboard::Segment* const segment = board.next_lost()) {
    numbers.push_back(segment->begin / kSize);
    board.sent_again(now);
  }
  return numbers;
}

TEST(Scoreboard, table__acknowledgements_in_losses_and_flight_out) {
  struct Row {
    const char* what;
    std::uint64_t next;
    std::vector<SackBlock> blocks;
    std::uint64_t delivered;  // segments, as the others
    std::vector<std::uint64_t> again;
    std::uint64_t in_flight;  // after the repair
    std::uint64_t lost;
  };
  Scoreboard board = with_segments(20);
  const std::vector<Row> rows{
      {"in order", 2, {}, 2, {}, 18, 0},
      {"2 is missing", 2, {{3, 4}}, 1, {}, 17, 0},
      {"the same again", 2, {{3, 4}}, 0, {}, 17, 0},
      {"two behind 2", 2, {{3, 5}}, 1, {}, 16, 0},
      {"5 is missing, three behind 2", 2, {{6, 7}, {3, 5}}, 1, {2}, 15, 1},
      {"an old block alone", 2, {{3, 4}}, 0, {}, 15, 1},
      {"three behind 5", 2, {{6, 9}, {3, 5}}, 2, {5}, 13, 2},
      {"9 and 10 are missing", 2, {{11, 14}, {6, 9}, {3, 5}}, 3, {9, 10}, 10, 4},
      {"2 was repaired", 5, {{11, 14}, {6, 9}}, 1, {}, 9, 3},
      {"10 before 9", 5, {{10, 14}, {6, 9}}, 1, {}, 8, 2},
      {"5 and 9 were repaired", 14, {}, 2, {}, 6, 0},
      {"the rest", 20, {}, 6, {}, 0, 0},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    std::uint64_t delivered = board.acknowledge(row.next * kSize);
    delivered += board.acknowledge(blocks_of(row.blocks));
    board.mark_lost();
    EXPECT_EQ(delivered, row.delivered * kSize);
    EXPECT_EQ(repair(board), row.again);
    EXPECT_EQ(board.in_flight(), row.in_flight * kSize);
    EXPECT_EQ(board.lost(), row.lost * kSize);
  }
  EXPECT_EQ(board.segments(), 0U);
}

TEST(Scoreboard, dup_acks__how_many_behind_make_a_loss) {
  for (const std::uint32_t dup_acks : {1U, 2U, 5U}) {
    SCOPED_TRACE(dup_acks);
    Scoreboard board = with_segments(10, dup_acks);
    for (std::uint64_t end = 2; end <= 10; ++end) {
      board.acknowledge(blocks_of({{1, end}}));
      EXPECT_EQ(board.mark_lost(), end == dup_acks + 1 ? kSize : 0U) << end;
    }
  }
  Scoreboard deaf = with_segments(10, 0);
  deaf.acknowledge(blocks_of({{1, 10}}));
  EXPECT_EQ(deaf.mark_lost(), 0U);
}

TEST(Scoreboard, lose_all__what_arrived_stays_and_the_rest_is_sent_again) {
  Scoreboard board = with_segments(10);
  board.acknowledge(blocks_of({{6, 7}, {1, 4}}));
  board.mark_lost();
  EXPECT_EQ(repair(board), std::vector<std::uint64_t>{0});
  board.lose_all();
  EXPECT_EQ(board.in_flight(), 0U);
  EXPECT_EQ(board.lost(), 6 * kSize);
  EXPECT_EQ(repair(board), (std::vector<std::uint64_t>{0, 4, 5, 7, 8, 9}));
  // New segments behind are judged as before.
  for (std::uint64_t i = 10; i < 15; ++i) board.sent(Time(), i * kSize, kSize);
  board.acknowledge(blocks_of({{11, 14}}));
  EXPECT_EQ(board.mark_lost(), kSize);
  EXPECT_EQ(repair(board), std::vector<std::uint64_t>{10});
}

TEST(Scoreboard, mark_lost_before__originals_in_the_order_of_their_times) {
  const auto at_ms = [](std::int64_t ms) { return Time::at(Duration::milliseconds(ms)); };
  Scoreboard board(3);
  for (std::int64_t i = 0; i < 10; ++i) {
    board.sent(at_ms(i), static_cast<std::uint64_t>(i) * kSize, kSize);
  }
  board.acknowledge(blocks_of({{1, 2}, {8, 9}}));
  EXPECT_EQ(board.mark_lost(), 0U);
  EXPECT_EQ(board.mark_lost_before(at_ms(3)), 2 * kSize);
  EXPECT_EQ(repair(board, at_ms(20)), (std::vector<std::uint64_t>{0, 2}));
  // The last one is sent again as a probe, so it is younger than the others.
  EXPECT_EQ(board.probe(at_ms(30)).begin, 9U * kSize);
  EXPECT_EQ(board.mark_lost_before(at_ms(15)), 5 * kSize);
  EXPECT_EQ(repair(board, at_ms(31)), (std::vector<std::uint64_t>{3, 4, 5, 6, 7}));
  EXPECT_EQ(board.mark_lost_before(at_ms(31)), 3 * kSize);  // 0, 2 and 9
}

TEST(Scoreboard, mark_lost_before__what_was_sent_again_before_then) {
  const auto at_ms = [](std::int64_t ms) { return Time::at(Duration::milliseconds(ms)); };
  Scoreboard board(3);
  // The segments themselves are too young.
  for (std::uint64_t i = 0; i < 20; ++i) board.sent(at_ms(20), i * kSize, kSize);
  board.acknowledge(blocks_of({{1, 4}}));
  board.mark_lost();
  EXPECT_EQ(repair(board, at_ms(11)), std::vector<std::uint64_t>{0});
  board.acknowledge(blocks_of({{5, 7}, {8, 12}}));
  board.mark_lost();
  EXPECT_EQ(repair(board, at_ms(12)), (std::vector<std::uint64_t>{4, 7}));
  EXPECT_EQ(board.mark_lost_before(at_ms(11)), 0U);
  EXPECT_EQ(board.mark_lost_before(at_ms(12)), kSize);
  EXPECT_EQ(board.in_flight(), 10 * kSize);  // 4, 7, and 12 to 19
  EXPECT_EQ(repair(board, at_ms(13)), std::vector<std::uint64_t>{0});
  // 4 has arrived in the meantime, and 0 was sent again at that time.
  board.acknowledge(blocks_of({{1, 7}}));
  EXPECT_EQ(board.mark_lost_before(at_ms(13)), kSize);
  EXPECT_EQ(repair(board, at_ms(14)), std::vector<std::uint64_t>{7});
  board.lose_all();
  EXPECT_EQ(board.mark_lost_before(at_ms(19)), 0U);
  EXPECT_EQ(repair(board, at_ms(19)).size(), 10U);
  EXPECT_EQ(board.acknowledge(20 * kSize), 10 * kSize);
  EXPECT_EQ(board.mark_lost_before(at_ms(99)), 0U);
}

TEST(Scoreboard, segments__may_differ_in_size) {
  Scoreboard board(3);
  std::uint64_t begin = 0;
  for (const std::uint32_t payload : {10U, 5U, 80U, 1U, 1U}) {
    board.sent(Time(), begin, payload);
    begin += payload;
  }
  SackBlocks sack;
  sack.count = 1;
  sack.blocks[0] = {15, 97};
  EXPECT_EQ(board.acknowledge(sack), 82U);
  EXPECT_EQ(board.mark_lost(), 15U);
  EXPECT_EQ(board.in_flight(), 0U);
  EXPECT_EQ(board.acknowledge(10), 10U);
  EXPECT_EQ(board.lost(), 5U);
}

// The model: one record a segment, and every number counted from all of them.
struct CountingModel {
  std::vector<Scoreboard::Segment> all;
  std::map<std::uint64_t, Time> resent;  // when a segment was last sent again
  std::uint64_t acked = 0;               // segments

  std::uint64_t acknowledge(std::uint64_t number) {
    const bool fresh = !all[number].acknowledged;
    all[number].acknowledged = true;
    return fresh ? all[number].payload : 0;
  }
  void mark_lost(std::uint32_t dup_acks) {
    std::uint32_t behind = 0;
    for (std::uint64_t i = all.size(); i-- > acked;) {
      if (all[i].acknowledged) {
        ++behind;
      } else if (dup_acks > 0 && behind >= dup_acks) {
        all[i].lost = true;
      }
    }
  }
  [[nodiscard]] std::uint64_t sum(bool (*counts)(const Scoreboard::Segment&)) const {
    std::uint64_t bytes = 0;
    for (std::uint64_t i = acked; i < all.size(); ++i) bytes += counts(all[i]) ? all[i].payload : 0;
    return bytes;
  }
};

void random_history(std::uint64_t seed) {
  Prng prng(seed);
  const auto dup_acks = static_cast<std::uint32_t>(prng.below(6));
  Scoreboard board(dup_acks);
  CountingModel model;
  Time now = Time::at(Duration::milliseconds(1000));
  for (int step = 0; step < 400; ++step) {
    now += Duration::milliseconds(1);
    const std::uint64_t choice = prng.below(20);
    const std::uint64_t begin = model.all.empty() ? 0 : model.all.back().end();
    if (choice < 8 || model.acked == model.all.size()) {
      const auto payload = static_cast<std::uint32_t>(1 + prng.below(50));
      model.all.push_back({.begin = begin, .sent = now, .payload = payload});
      board.sent(now, begin, payload);
    } else if (choice < 15) {
      // Up to three stretches that have arrived, in any order, some of them beyond what is sent in
      // order; a stretch may overlap others and what was known.
      SackBlocks sack;
      std::uint64_t fresh = 0;
      for (std::uint64_t i = prng.below(4); i > 0; --i) {
        const std::uint64_t from = model.acked + prng.below(model.all.size() - model.acked);
        const std::uint64_t to =
            std::min<std::uint64_t>(model.all.size(), from + 1 + prng.below(6));
        sack.blocks.at(sack.count++) = {model.all[from].begin, model.all[to - 1].end()};
        for (std::uint64_t k = from; k < to; ++k) fresh += model.acknowledge(k);
      }
      EXPECT_EQ(board.acknowledge(sack), fresh);
    } else if (choice < 17) {
      const std::uint64_t to = model.acked + prng.below(model.all.size() - model.acked + 1);
      std::uint64_t fresh = 0;
      for (; model.acked < to; ++model.acked) fresh += model.acknowledge(model.acked);
      const std::uint64_t next = to > 0 ? model.all[to - 1].end() : 0;
      EXPECT_EQ(board.acknowledge(next), fresh);
    } else if (choice < 19) {
      const Scoreboard::Segment* const found = board.next_lost();
      const auto expected = std::find_if(
          model.all.begin() + static_cast<std::ptrdiff_t>(model.acked), model.all.end(),
          [](const Scoreboard::Segment& s) { return s.lost && !s.acknowledged && !s.again; });
      ASSERT_EQ(found != nullptr, expected != model.all.end());
      if (found != nullptr) {
        EXPECT_EQ(found->begin, expected->begin);
        board.sent_again(now);
        expected->again = true;
        model.resent[expected->begin] = now;
      }
    } else if (prng.chance(0.7)) {
      const Time then = now - Duration::milliseconds(static_cast<std::int64_t>(prng.below(50)));
      std::uint64_t fresh = 0;
      for (std::uint64_t i = model.acked; i < model.all.size() && dup_acks > 0; ++i) {
        Scoreboard::Segment& segment = model.all[i];
        const Time last_sent = segment.lost ? model.resent[segment.begin] : segment.sent;
        if (!segment.in_flight() || last_sent >= then) continue;
        segment.again = false;
        segment.lost = true;
        fresh += segment.payload;
      }
      EXPECT_EQ(board.mark_lost_before(then), fresh);
    } else if (prng.chance(0.5)) {
      const auto last = std::find_if(model.all.rbegin(), model.all.rend(),
                                     [](const auto& s) { return !s.acknowledged; });
      if (last == model.all.rend()) continue;
      last->sent = now;
      EXPECT_EQ(board.probe(now).begin, last->begin);
    } else {
      board.lose_all();
      for (std::uint64_t i = model.acked; i < model.all.size(); ++i) {
        if (model.all[i].acknowledged) continue;
        model.all[i].lost = true;
        model.all[i].again = false;
      }
    }
    board.mark_lost();
    model.mark_lost(dup_acks);
    ASSERT_EQ(board.in_flight(), model.sum([](const auto& s) { return s.in_flight(); }));
    ASSERT_EQ(board.lost(), model.sum([](const auto& s) { return s.lost && !s.acknowledged; }));
    ASSERT_EQ(board.segments(), model.all.size() - model.acked);
  }
}

TEST(Scoreboard, random_histories__as_the_model) {
  const std::uint64_t seeds = kUnderSanitizer ? 300 : 3000;
  for (std::uint64_t seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    random_history(seed);
  }
}

}  // namespace
}  // namespace thalweg::sim
