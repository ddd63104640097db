// A worker with a server in the same process, which adds the worker's gradients itself.
#include <gtest/gtest.h>

#include "proto/atp_by_hand.h"

namespace thalweg::proto {
namespace {

using namespace atp_by_hand;

// The first two of three servers are workers of this group of three, the second this one.
AtpWorkerOptions beside_a_server() {
  AtpWorkerOptions options = two_workers();
  options.fan_in = 3;
  options.servers = 3;
  options.seats = {AtpSeat{0, 2}, AtpSeat{0, 1}, std::nullopt};
  return options;
}

TEST(AtpWorker, poll_transmit__what_its_own_server_adds_passes_all_switches) {
  AtpWorker worker = started(beside_a_server(), 12);
  const auto sent = drained(worker, at(0));
  ASSERT_EQ(sequences(sent), (Sequences{0, 1, 2}));
  for (const AtpTransmit& each : sent) {
    EXPECT_EQ(wire::check_atp_header(each.header), wire::WireError::kNone);
    EXPECT_EQ(each.header.workers, 0b010U);
    EXPECT_EQ(each.header.groups, 0U);
  }
  EXPECT_FALSE(sent[0].own);
  EXPECT_EQ(sent[0].header.fan_in, 2) << "its server adds the gradient of worker 2 itself";
  EXPECT_EQ(sent[0].header.level, wire::kAtpFirstLevel);
  EXPECT_TRUE(sent[1].own);
  EXPECT_EQ(sent[1].header.fan_in, 2);
  EXPECT_EQ(sent[1].header.level, wire::kAtpServerLevel);
  EXPECT_FALSE(sent[2].own);
  EXPECT_EQ(sent[2].header.fan_in, 3);
}

// A switch that does not know of own servers asks for what never comes by it.
TEST(AtpWorker, on_missing__is_deaf_for_what_its_own_server_adds) {
  AtpWorker worker = started(beside_a_server(), 12);
  (void)drained(worker, at(0));
  wire::AtpHeader missing = parameter(1, 0);
  missing.kind = wire::AtpKind::kMissing;
  missing.workers = 0b010;
  missing.groups = 0;
  worker.on_missing(missing);
  EXPECT_TRUE(drained(worker, at(0)).empty());
  missing.sequence = 2;
  worker.on_missing(missing);
  EXPECT_EQ(sequences(drained(worker, at(0))), (Sequences{2}));
}

// Own sums come sooner than others, by the time of a packet on its way.
TEST(AtpWorker, on_parameter__own_sums_do_not_say_how_long_others_take) {
  AtpWorkerOptions options = two_workers();
  options.seats = {AtpSeat{0, 1}};
  options.recovery.initial = kOneMs * 100;
  AtpWorker worker = started(options, 40);
  ASSERT_EQ(drained(worker, at(0)).size(), 8U);
  wire::AtpHeader sum = parameter(0);
  sum.fan_in = 1;
  for (; sum.sequence < 8; ++sum.sequence) (void)worker.on_parameter(sum, at(1));
  ASSERT_EQ(sequences(drained(worker, at(1))), (Sequences{8, 9}));
  EXPECT_EQ(worker.on_parameter(sum, at(2)).verdict, Verdict::kPlace);
  worker.on_timeout(at(50));
  EXPECT_EQ(worker.counters().timeouts, 0U);
  worker.on_timeout(at(101));
  EXPECT_EQ(worker.counters().timeouts, 1U);
}

TEST(AtpWorkerOptions, validate__own_servers_have_company) {
  AtpWorkerOptions options = beside_a_server();
  EXPECT_TRUE(options.validate().ok());
  options.seats.pop_back();
  EXPECT_FALSE(options.validate().ok()) << "one for each server";
  options = beside_a_server();
  options.seats[0] = AtpSeat{0, 3};
  EXPECT_FALSE(options.validate().ok());
  options = beside_a_server();
  options.fan_in = 1;
  options.index = 0;
  EXPECT_FALSE(options.validate().ok()) << "alone in its group";
}

}  // namespace
}  // namespace thalweg::proto
