// What an ATP worker and a server do about sums that were changed on their way.
#include <gtest/gtest.h>

#include "proto/atp/server.h"
#include "proto/atp/worker.h"
#include "proto/atp_by_hand.h"

namespace thalweg::proto::atp_corrupt_test {
namespace {

using namespace atp_by_hand;
using Cause = AtpServerAction::Cause;

TEST(AtpWorker, on_corrupt__asks_the_server_again_past_the_switches) {
  AtpWorker worker = started(two_workers(), 8);
  for (const AtpTransmit& each : drained(worker, at(0))) EXPECT_FALSE(each.past_switches);
  worker.on_corrupt(parameter(0), "a test", at(1));
  EXPECT_EQ(worker.counters().corrupt, 1U);
  const std::vector<AtpTransmit> again = drained(worker, at(1));
  ASSERT_EQ(sequences(again), Sequences{0});
  EXPECT_TRUE(again[0].past_switches);
  EXPECT_TRUE(again[0].header.resend);
  EXPECT_EQ(worker.on_parameter(parameter(0), at(2)).verdict, Verdict::kPlace);
  EXPECT_EQ(worker.on_parameter(parameter(1), at(2)).verdict, Verdict::kPlace);
  AtpOutcome outcome;
  ASSERT_TRUE(worker.poll_event(outcome));
  EXPECT_TRUE(outcome.ok()) << outcome.error;
}

TEST(AtpWorker, on_corrupt__fails_when_the_sum_stays_wrong_and_names_the_way) {
  AtpWorkerOptions options = two_workers();
  options.recovery.most_bad_sums = 2;
  AtpWorker worker = started(options, 8);
  (void)drained(worker, at(0));
  worker.on_corrupt(parameter(1), "the switch at 10.0.0.1:7", at(1));
  // A copy of the same sum, before the server was asked again.
  worker.on_corrupt(parameter(1), "the switch at 10.0.0.1:7", at(1));
  EXPECT_EQ(worker.counters().corrupt, 1U);
  (void)drained(worker, at(1));
  worker.on_corrupt(parameter(1), "the server at 10.0.0.2:8 itself", at(2));
  AtpOutcome outcome;
  ASSERT_TRUE(worker.poll_event(outcome));
  EXPECT_EQ(outcome.code, ErrorCode::kInternal);
  EXPECT_FALSE(outcome.rank);
  EXPECT_EQ(outcome.error,
            "job 3: worker 1 of group 0: the sum of sequence 1 from server 0 was changed on its "
            "way 2 times, at last by way of the server at 10.0.0.2:8 itself: look for a faulty "
            "card, switch or memory there");
}

TEST(AtpWorker, on_corrupt__of_other_sequences_jobs_and_sums_that_are_there_changes_nothing) {
  AtpWorker worker = started(two_workers(), 8);
  (void)drained(worker, at(0));
  EXPECT_EQ(worker.on_parameter(parameter(0), at(1)).verdict, Verdict::kPlace);
  worker.on_corrupt(parameter(0), "a test", at(1));
  worker.on_corrupt(parameter(9), "a test", at(1));
  wire::AtpHeader other = parameter(1);
  other.job = 4;
  worker.on_corrupt(other, "a test", at(1));
  // The sum of a repetition that this worker did not send.
  worker.on_corrupt(parameter(wire::kAtpRepetition + 1), "a test", at(1));
  EXPECT_EQ(worker.counters().corrupt, 0U);
  EXPECT_TRUE(drained(worker, at(1)).empty());
}

AtpServer server_of_three() {
  AtpServerOptions options;
  options.job = 3;
  options.groups = {3};
  options.window = 4;
  return AtpServer(options);
}

wire::AtpHeader gradient(std::uint32_t workers, std::uint64_t check) {
  wire::AtpHeader header;
  header.level = wire::kAtpServerLevel;
  header.job = 3;
  header.workers = workers;
  header.fan_in = 3;
  header.elements = 64;
  header.resend = true;
  header.check = check;
  return header;
}

TEST(AtpServer, check__words_are_added_and_replaced_as_elements_are) {
  AtpServer server = server_of_three();
  EXPECT_EQ(server.on_gradient(gradient(0b001, 5), Time()).cause, Cause::kStored);
  EXPECT_EQ(server.on_gradient(gradient(0b001, 5), Time()).cause, Cause::kDuplicate);
  EXPECT_EQ(server.on_gradient(gradient(0b011, 12), Time()).cause, Cause::kReplaced);
  EXPECT_EQ(server.on_gradient(gradient(0b100, 30), Time()).cause, Cause::kAdded);
  AtpServerTransmit transmit;
  ASSERT_TRUE(server.poll_transmit(transmit));
  EXPECT_EQ(transmit.header.check, 42U);
}

TEST(AtpServer, saturated__sums_of_several_prove_nothing_but_contributions_do) {
  AtpServer server = server_of_three();
  wire::AtpHeader sum = gradient(0b011, 5);
  sum.saturated = true;
  EXPECT_EQ(server.on_gradient(sum, Time()).cause, Cause::kUnproven);
  EXPECT_EQ(server.on_gradient(gradient(0b001, 5), Time()).cause, Cause::kStored);
  const AtpServerAction action = server.on_gradient(gradient(0b110, 6), Time());
  EXPECT_TRUE(action.completed);
  server.mark_saturated(action.slot);
  AtpServerTransmit transmit;
  ASSERT_TRUE(server.poll_transmit(transmit));
  EXPECT_TRUE(transmit.header.saturated);
}

}  // namespace
}  // namespace thalweg::proto::atp_corrupt_test
