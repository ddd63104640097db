// Exhaustive exploration of small ATP worlds (explore.h). THALWEG_EXPLORE=long adds the larger ones
// (`make explore`).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "atp/explore.h"

namespace thalweg::atp_test {
namespace {

struct Case {
  const char* name;
  Exploration exploration;
  bool long_only = false;
};

JobShape one_rack(std::uint32_t id, std::uint8_t workers) {
  JobShape job;
  job.id = id;
  job.groups = {workers};
  return job;
}

// Group 0 behind switch 0, the others beside switch 1, which is the server's.
JobShape two_racks(std::vector<std::uint8_t> groups) {
  JobShape job;
  job.groups = std::move(groups);
  job.first_level.assign(job.groups.size(), kNowhere);
  job.first_level[0] = 0;
  job.second_level = 1;
  return job;
}

Exploration of(std::vector<JobShape> jobs, std::int64_t blocks, std::uint32_t slots,
               std::size_t switches = 1) {
  Exploration exploration;
  exploration.shape.jobs = std::move(jobs);
  for (JobShape& job : exploration.shape.jobs) {
    job.congestion.enabled = false;
    job.recovery.out_of_sequence = 1;
  }
  exploration.shape.switches = switches;
  exploration.shape.table.slots = slots;
  exploration.blocks = blocks;
  return exploration;
}

JobShape with_window(JobShape job, std::uint32_t window) {
  job.window = window;
  return job;
}

JobShape with_id(JobShape job, std::uint32_t id) {
  job.id = id;
  return job;
}

JobShape with_servers(JobShape job, std::uint32_t servers) {
  job.servers = servers;
  return job;
}

// Both groups have a first level of their own; the server's switch is group 1's.
JobShape two_full_racks(std::uint32_t id, std::vector<std::uint8_t> groups) {
  JobShape job;
  job.id = id;
  job.groups = std::move(groups);
  job.first_level = {0, 1};
  job.second_level = 1;
  return job;
}

Exploration as_in_the_paper(Exploration exploration) {
  exploration.shape.table.pass_second_level_resends = true;
  return exploration;
}

std::vector<Case> cases() {
  const JobShape two = one_rack(1, 2);
  const JobShape three = one_rack(1, 3);
  const JobShape other = one_rack(2, 2);
  return {
      {"2 workers, 1 sequence, 1 slot", of({two}, 1, 1)},
      {"3 workers, 1 sequence, 1 slot", of({three}, 1, 1)},
      {"2 workers, 2 sequences in turn, 1 slot", of({two}, 2, 1)},
      {"2 workers, 2 sequences at once, 1 slot", of({with_window(two, 2)}, 2, 1)},
      {"2 workers, 2 sequences at once, 2 slots", of({with_window(two, 2)}, 2, 2)},
      {"2 workers, 2 sequences at once, 1 slot, 2 servers",
       of({with_servers(with_window(two, 2), 2)}, 2, 1)},
      {"2 workers, 4 sequences in turn, 1 slot", of({two}, 4, 1)},
      {"2 workers, 4 sequences, 2 at once, 1 slot", of({with_window(two, 2)}, 4, 1), true},
      {"3 workers, 2 sequences at once, 1 slot", of({with_window(three, 2)}, 2, 1), true},
      {"3 workers, 2 sequences at once, 2 slots", of({with_window(three, 2)}, 2, 2), true},
      {"2 jobs of 2 workers, 1 sequence each, 1 slot", of({two, other}, 1, 1)},
      {"2 jobs of 2 workers, 1 sequence each, 2 slots", of({two, other}, 1, 2), true},
      {"2 jobs of 2 workers, 2 sequences each in turn, 1 slot", of({two, other}, 2, 1), true},
      {"2 jobs of 3 workers, 1 sequence each, 1 slot", of({three, one_rack(2, 3)}, 1, 1), true},
      {"2 levels, groups of 2 and 1, 1 sequence, 1 slot", of({two_racks({2, 1})}, 1, 1, 2)},
      {"the same, retransmissions pass the second level alone",
       as_in_the_paper(of({two_racks({2, 1})}, 1, 1, 2))},
      {"2 levels, groups of 3 and 1, 1 sequence, 1 slot", of({two_racks({3, 1})}, 1, 1, 2), true},
      {"2 levels, groups of 2 and 1, 2 sequences in turn, 1 slot", of({two_racks({2, 1})}, 2, 1, 2),
       true},
      {"2 levels, groups of 2 and 2, 1 sequence, 1 slot", of({two_full_racks(1, {2, 2})}, 1, 1, 2),
       true},
      {"the same, retransmissions pass the second level alone",
       as_in_the_paper(of({two_full_racks(1, {2, 2})}, 1, 1, 2)), true},
      {"2 levels, groups of 2 and 2, 1 sequence, 2 slots", of({two_full_racks(1, {2, 2})}, 1, 2, 2),
       true},
      {"2 jobs of 2 levels, groups of 2 and 1, 1 sequence each, 1 slot",
       of({two_racks({2, 1}), with_id(two_racks({2, 1}), 2)}, 1, 1, 2), true},
      {"2 levels, groups of 2 and 1, 2 sequences at once, 2 slots",
       of({with_window(two_racks({2, 1}), 2)}, 2, 2, 2), true},
  };
}

void print(const char* name, const ExplorationReport& report, double seconds) {
  fmt::print(
      "{}: {} states, {} with packets, {} transitions, {} packets; {} finished, {} of these "
      "with stale slots; {:.1f} s{}{}\n",
      name, report.states, report.searched, report.transitions, report.packets, report.finished,
      report.stale_slots, seconds, report.violation.empty() ? "" : ": ", report.violation);
  std::fflush(stdout);
}

// Whatever packets of correct workers can meet was met. `all`: also what the small worlds have not.
void expect_all_causes(const ExplorationReport& together, bool all) {
  using Switch = AggregateAction::Cause;
  for (const Switch cause :
       {Switch::kStored, Switch::kAdded, Switch::kCompleted, Switch::kResent, Switch::kFlushed,
        Switch::kCollision, Switch::kDuplicate, Switch::kFreed, Switch::kUnneeded}) {
    EXPECT_TRUE(together.at_switches.test(static_cast<std::size_t>(cause))) << name_of(cause);
  }
  EXPECT_EQ(together.at_switches.test(static_cast<std::size_t>(Switch::kFlagged)), all);
  for (const Switch cause : {Switch::kUnknownJob, Switch::kMismatch, Switch::kOverlap}) {
    EXPECT_FALSE(together.at_switches.test(static_cast<std::size_t>(cause))) << name_of(cause);
  }
  using Server = AtpServerAction::Cause;
  for (const Server cause : {Server::kStored, Server::kAdded, Server::kReplaced, Server::kDuplicate,
                             Server::kOverlap, Server::kAnswered, Server::kStale}) {
    EXPECT_TRUE(together.at_servers.test(static_cast<std::size_t>(cause))) << name_of(cause);
  }
  for (const Server cause : {Server::kOutOfWindow, Server::kMismatch}) {
    EXPECT_FALSE(together.at_servers.test(static_cast<std::size_t>(cause))) << name_of(cause);
  }
}

TEST(AtpExploration, explore__every_state_is_safe_and_completes) {
  const char* const wanted = std::getenv("THALWEG_EXPLORE");
  const bool all = wanted != nullptr && std::string(wanted) == "long";
  ExplorationReport together;
  for (const Case& each : cases()) {
    if (each.long_only && !all) continue;
    const auto begin = std::chrono::steady_clock::now();
    const ExplorationReport report = explore(each.exploration);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    print(each.name, report, took.count());
    EXPECT_EQ(report.violation, "") << each.name;
    EXPECT_GT(report.finished, 0U) << each.name;
    together.at_switches |= report.at_switches;
    together.at_servers |= report.at_servers;
  }
  expect_all_causes(together, all);
}

TEST(AtpExploration, explore__finds_a_switch_that_adds_duplicates) {
  Exploration exploration = of({one_rack(1, 2)}, 1, 1);
  exploration.add_duplicates = true;
  EXPECT_NE(explore(exploration).violation, "");
}

}  // namespace
}  // namespace thalweg::atp_test
