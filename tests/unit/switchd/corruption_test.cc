// Paths that change packets of ATP, between workers, a switch and servers: a call gives the right
// sum or an error, never a wrong sum. tests/unit/net/corruption_test.cc has TCP and DLCP.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "net/corrupted_sums.h"
#include "net/corruptor.h"
#include "net/ranks.h"
#include "switchd/loopback_job.h"
#include "wire/atp_packet.h"

namespace thalweg::switchd {
namespace {

using namespace std::chrono_literals;

CommunicatorOptions over_atp(const SwitchDaemon& daemon) {
  CommunicatorOptions options;
  options.transport = Transport::kAtp;
  options.atp_switch = daemon.control_address();
  return options;
}

// Every hop of every packet may change it: the switch and the ranks receive through the corruptor.
TEST(Corruption, atp__no_sum_is_silently_wrong) {
  for (const bool keyed : {false, true}) {
    std::optional<ScopedJobKey> key;
    if (keyed) key.emplace();
    for (const bool swaps_words : {true, false}) {
      SCOPED_TRACE(fmt::format("key: {}, words change places: {}", keyed, swaps_words));
      net::PacketCorruptor corruptor(
          {.swaps_words = swaps_words, .one_in = 100, .seed = net::test_seed()});
      const net::ScopedChanges changes(corruptor.changes());
      const auto daemon = start_switch(4096);
      net::Tally tally;
      net::run_ranks(3, over_atp(*daemon), [&](Communicator& all) {
        tally.reduce(all, net::corrupted_sums(36) / 3, 60s);
      });
      fmt::print("{} packets changed: {}\n", corruptor.changed(), tally.text());
      EXPECT_GT(corruptor.changed(), 0);
      EXPECT_EQ(tally.wrong, 0);
      EXPECT_GT(tally.right, 0);
      for (const Error& error : tally.errors) ADD_FAILURE() << error.message();
    }
  }
}

// So the test above finds what it looks for. With a key the tags find changes of packets on their
// way, checked or not.
TEST(Corruption, atp__sums_are_wrong_without_checks) {
  const net::Variable off("THALWEG_CHECKSUM", "0");
  for (const bool swaps_words : {true, false}) {
    net::PacketCorruptor corruptor(
        {.swaps_words = swaps_words, .one_in = 100, .seed = net::test_seed()});
    const net::ScopedChanges changes(corruptor.changes());
    const auto daemon = start_switch(4096);
    net::Tally tally;
    net::run_ranks(3, over_atp(*daemon), [&](Communicator& all) { tally.reduce(all, 12, 60s); });
    EXPECT_GT(tally.wrong, 0) << tally.text();
  }
}

// Changes an element of every packet of this kind.
net::ChangePacket spoils(wire::AtpKind kind) {
  return [kind](std::span<std::byte> packet) {
    if (packet.size() > wire::kAtpHeaderSize && packet[1] == static_cast<std::byte>(kind)) {
      packet.back() ^= std::byte{1};
    }
  };
}

TEST(Corruption, atp__a_switch_that_spoils_every_sum_costs_time_only) {
  std::optional<net::ScopedChanges> changes(spoils(wire::AtpKind::kGradient));
  const auto daemon = start_switch(4096);
  changes.reset();
  net::Tally tally;
  net::run_ranks(3, over_atp(*daemon), [&](Communicator& all) { tally.reduce(all, 2, 60s); });
  EXPECT_EQ(tally.right, 6) << tally.text();
}

TEST(Corruption, atp__sums_that_stay_wrong_are_an_error_on_every_rank_that_names_the_way) {
  const auto daemon = start_switch(4096);
  const net::ScopedChanges changes(spoils(wire::AtpKind::kParameter));
  net::Tally tally;
  net::run_ranks(3, over_atp(*daemon), [&](Communicator& all) { tally.reduce(all, 1, 60s); });
  ASSERT_EQ(tally.errors.size(), 3U) << tally.text();
  for (const Error& error : tally.errors) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal) << error.message();
    EXPECT_NE(error.message().find("was changed on its way 4 times, at last by way of the "),
              std::string::npos)
        << error.message();
    EXPECT_FALSE(error.rank()) << error.message();
  }
}

}  // namespace
}  // namespace thalweg::switchd
