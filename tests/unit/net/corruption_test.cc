// Paths that change bytes: a call gives the right sum or an error, never a wrong sum. Here TCP and
// DLCP; tests/unit/switchd/corruption_test.cc has ATP. docs/security.md has the table, and
// THALWEG_CORRUPTED_SUMS the number of sums in each of its cells.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "base/messages.h"
#include "base/prng.h"
#include "net/corrupted_sums.h"
#include "net/corruptor.h"
#include "net/net_pair.h"
#include "net/ranks.h"
#include "net/relayed_ranks.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

const std::string kOnTheWay = "bytes changed on the way";

// Ranks with a corruptor in every stream between two of them.
class CorruptedRanks {
 public:
  CorruptedRanks(int size, const Corruption& corruption)
      : corruptor_(corruption), ranks_(size, [this](int) { return corruptor_.filters(); }) {}

  void run(const RankBody& body) { ranks_.run(body); }
  [[nodiscard]] int changed() const { return corruptor_.changed(); }

 private:
  Corruptor corruptor_;
  RelayedRanks ranks_;
};

// Runs allreduces, in one communicator after the other because an error breaks one, until all ranks
// together made `most` calls or, if that is wanted, one of them got a wrong sum.
void allreduces(CorruptedRanks& ranks, Tally& tally, int most, std::chrono::seconds deadline,
                bool until_wrong = false) {
  while (!tally.is_over(most, until_wrong)) {
    ranks.run([&](Communicator& all) { tally.reduce(all, 20, deadline); });
  }
}

// With checksums, and with a key: sealed, and with checksums if it is not used for that.
TEST(Corruption, allreduce__no_sum_is_silently_wrong) {
  const Variable checksums("THALWEG_CHECKSUM", "always");
  enum class Kind : std::uint8_t { kNoKey, kKeyOnly, kSealed };
  for (const Kind kind : {Kind::kNoKey, Kind::kKeyOnly, Kind::kSealed}) {
    std::optional<KeyFile> key;
    std::optional<Variable> encrypt;
    if (kind != Kind::kNoKey) key.emplace();
    if (kind == Kind::kKeyOnly) encrypt.emplace("THALWEG_ENCRYPT", "0");
    for (const bool swaps_words : {true, false}) {
      SCOPED_TRACE(fmt::format("{}, words change places: {}", static_cast<int>(kind), swaps_words));
      CorruptedRanks ranks(3, {.swaps_words = swaps_words, .one_in = 40, .seed = test_seed()});
      Tally tally;
      allreduces(ranks, tally, corrupted_sums(90), 60s);
      fmt::print("{} reads changed: {}\n", ranks.changed(), tally.text());
      EXPECT_EQ(tally.wrong, 0);
      EXPECT_GT(tally.right, 0);
      EXPECT_GT(tally.errors.size(), 0U);
      for (const Error& error : tally.errors) {
        EXPECT_EQ(error.code(), ErrorCode::kInternal) << error.message();
        EXPECT_FALSE(error.rank()) << error.message();
        EXPECT_TRUE(says(error.message(), kOnTheWay));
      }
    }
  }
}

// So the test above finds what it looks for.
TEST(Corruption, allreduce__sums_are_wrong_without_checksums) {
  const Variable off("THALWEG_CHECKSUM", "0");
  CorruptedRanks ranks(3, {.one_in = 10, .seed = test_seed()});
  Tally tally;
  allreduces(ranks, tally, 1000, 2s, true);
  EXPECT_GT(tally.wrong, 0);
}

TEST(Corruption, messages__fail_at_the_receiver_and_at_a_sender_that_waits) {
  const Variable checksums("THALWEG_CHECKSUM", "always");
  for (const std::size_t elements : {std::size_t{200}, std::size_t{2} << 20}) {
    SCOPED_TRACE(elements);
    CorruptedRanks ranks(2, {.one_in = 1, .seed = test_seed()});
    ranks.run([&](Communicator& all) {
      std::vector<std::int32_t> values(elements);
      for (std::size_t i = 0; i < elements; ++i) values[i] = static_cast<std::int32_t>(i * 7);
      if (all.rank() == 1) {
        const Status status = all.send(TensorView::of(values), 0, 7);
        // A send is over when the system has taken all bytes, so it may succeed.
        if (!status.ok()) {
          EXPECT_TRUE(says(status.error().message(), kOnTheWay));
        }
      } else {
        const Result<int> received = all.recv(TensorSpan::of(values), 1, 7);
        EXPECT_EQ(kind_of(received), "internal");
        EXPECT_TRUE(says(message_of(received), kOnTheWay + " from rank 1 to rank 0"));
      }
    });
  }
}

// Packets of DLCP that changed are sent again, so no call fails. Few are changed: those of one
// transfer that are lost again and again slow it down.
TEST(Corruption, dlcp__no_sum_is_silently_wrong) {
  for (const bool keyed : {false, true}) {
    std::optional<KeyFile> key;
    if (keyed) key.emplace();
    for (const bool swaps_words : {true, false}) {
      SCOPED_TRACE(fmt::format("key: {}, words change places: {}", keyed, swaps_words));
      PacketCorruptor corruptor({.swaps_words = swaps_words, .one_in = 50, .seed = test_seed()});
      const ScopedChanges changes(corruptor.changes());
      Tally tally;
      run_ranks(3, over_dlcp(),
                [&](Communicator& all) { tally.reduce(all, corrupted_sums(30) / 3, 60s); });
      fmt::print("{} packets changed: {}\n", corruptor.changed(), tally.text());
      EXPECT_GT(corruptor.changed(), 0);
      EXPECT_EQ(tally.wrong, 0);
      EXPECT_GT(tally.right, 0);
      for (const Error& error : tally.errors) ADD_FAILURE() << error.message();
    }
  }
}

TEST(Corruption, dlcp__sums_are_wrong_without_checksums) {
  const Variable off("THALWEG_CHECKSUM", "0");
  for (const bool swaps_words : {true, false}) {
    Tally tally;
    // A changed header may end a call, so there may be several communicators.
    for (int i = 0; i < 50 && tally.wrong == 0; ++i) {
      PacketCorruptor corruptor({.swaps_words = swaps_words, .one_in = 10, .seed = test_seed()});
      const ScopedChanges changes(corruptor.changes());
      run_ranks(2, over_dlcp(), [&](Communicator& all) { tally.reduce(all, 4, 2s); });
    }
    EXPECT_GT(tally.wrong, 0);
  }
}

}  // namespace
}  // namespace thalweg::net
