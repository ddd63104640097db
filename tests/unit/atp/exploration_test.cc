// Exhaustive exploration of small ATP worlds (explore.h). THALWEG_EXPLORE=long adds the larger ones
// (`make explore`); any other text selects the worlds that have it in their names.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "atp/explore.h"
#include "sanitized.h"

namespace thalweg::proto::atp_test {
namespace {

struct Case {
  const char* name;
  Exploration exploration;
  bool long_only = false;  // only with THALWEG_EXPLORE=long
};

JobShape one_rack(std::uint32_t id, std::uint8_t workers) {
  JobShape job;
  job.id = id;
  job.groups = {workers};
  return job;
}

// Group 0 is behind switch 0; the other groups are beside switch 1, which is the server's.
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

JobShape with_direct_copies(JobShape job) {
  job.direct_copies = true;
  return job;
}

JobShape with_servers(JobShape job, std::uint32_t servers) {
  job.servers = servers;
  return job;
}

// The servers add the gradients of these workers of group 0 themselves, the first server those of
// worker 0.
JobShape with_seats(JobShape job) {
  for (std::uint8_t s = 0; s < job.servers; ++s) job.seats.emplace_back(AtpSeat{0, s});
  return job;
}

// Each group has a first level of its own; the server's switch is that of group 1.
JobShape two_full_racks(std::uint32_t id, std::vector<std::uint8_t> groups) {
  JobShape job;
  job.id = id;
  job.groups = std::move(groups);
  job.first_level = {0, 1};
  job.second_level = 1;
  return job;
}

// The exponents that workers need. Nothing is known of the first block, for which 0 is guessed.
std::int8_t none_fits(std::uint64_t worker, std::uint64_t sequence) {
  if (sequence > 0) return worker == 0 ? std::int8_t{-20} : std::int8_t{-30};
  return static_cast<std::int8_t>(5 + worker);
}
std::int8_t second_is_larger(std::uint64_t worker, std::uint64_t sequence) {
  return static_cast<std::int8_t>(sequence == 0 ? -1 : worker == 0 ? 9 : -1);
}
std::int8_t second_is_not_finite(std::uint64_t worker, std::uint64_t sequence) {
  if (sequence == 1 && worker == 1) return tensor::kNotFinite;
  return sequence == 0 && worker == 0 ? std::int8_t{-9} : tensor::kNoExponent;
}

JobShape choosing(JobShape job, std::int8_t (*need)(std::uint64_t, std::uint64_t)) {
  job.need = need;
  return job;
}

// Each job has this many tensors, started at the beginning.
Exploration with_tensors(Exploration exploration, int tensors) {
  exploration.tensors = tensors;
  return exploration;
}

Exploration as_in_the_paper(Exploration exploration) {
  exploration.shape.table.pass_second_level_resends = true;
  return exploration;
}

// Switches ask for a packet when the next one of its worker has arrived.
Exploration with_reports(Exploration exploration) {
  exploration.shape.table.reordering = 1;
  return exploration;
}

// A fault changes what one packet or slot holds. A worker would fail at the second wrong sum.
Exploration with_fault(Exploration exploration, Exploration::Fault fault) {
  exploration.fault = fault;
  exploration.faults = 1;
  for (JobShape& job : exploration.shape.jobs) job.recovery.most_bad_sums = 2;
  return exploration;
}

std::vector<Case> cases() {
  using Fault = Exploration::Fault;
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
      {"3 workers, one beside the server, 1 sequence, 1 slot", of({with_seats(three)}, 1, 1)},
      {"2 workers beside 2 servers, 2 sequences at once, 1 slot",
       of({with_seats(with_servers(with_window(two, 2), 2))}, 2, 1)},
      {"3 workers, two beside 2 servers, 2 sequences in turn, 1 slot",
       of({with_seats(with_servers(three, 2))}, 2, 1)},
      {"3 workers, two beside 2 servers, 2 sequences at once, 2 slots",
       of({with_seats(with_servers(with_window(three, 2), 2))}, 2, 2), true},
      {"3 workers, two beside 2 servers, that are asked for what is missing, 2 sequences at once",
       with_reports(of({with_seats(with_servers(with_window(three, 2), 2))}, 2, 2)), true},
      {"2 workers, one beside the server, that look for the switch, 2 sequences in turn, 1 slot",
       of({with_direct_copies(with_seats(two))}, 2, 1)},
      {"2 levels, groups of 2 and 1, a worker beside the server, 1 sequence, 1 slot",
       of({with_seats(two_racks({2, 1}))}, 1, 1, 2)},
      {"2 levels, groups of 3 and 1, a worker beside the server, 1 sequence, 1 slot",
       of({with_seats(two_racks({3, 1}))}, 1, 1, 2), kUnderSanitizer},
      {"2 levels, groups of 2 and 2, a worker beside the server, 1 sequence, 1 slot",
       of({with_seats(two_full_racks(1, {2, 2}))}, 1, 1, 2), true},
      {"3 workers, one beside the server, first guess does not fit, 1 sequence, 1 slot",
       of({choosing(with_seats(three), none_fits)}, 1, 1)},
      {"3 workers, one beside the server, 1 sequence, 1 slot, a contribution changes",
       with_fault(of({with_seats(three)}, 1, 1), Fault::kContribution)},
      {"2 workers, 4 sequences in turn, 1 slot", of({two}, 4, 1), kUnderSanitizer},
      {"2 workers that look for the switch, 2 sequences in turn, 1 slot",
       of({with_direct_copies(two)}, 2, 1)},
      {"3 workers that look for the switch, 1 sequence, 1 slot",
       of({with_direct_copies(three)}, 1, 1)},
      {"2 workers that look for the switch, 2 sequences at once, 2 slots",
       of({with_direct_copies(with_window(two, 2))}, 2, 2)},
      {"2 levels, groups of 2 and 1, that look for the switches, 1 sequence, 1 slot",
       of({with_direct_copies(two_racks({2, 1}))}, 1, 1, 2)},
      {"2 workers that are asked for what is missing, 2 sequences at once, 2 slots",
       with_reports(of({with_window(two, 2)}, 2, 2))},
      {"3 workers that are asked for what is missing, 2 sequences at once, 2 slots",
       with_reports(of({with_window(three, 2)}, 2, 2)), true},
      {"2 workers that are asked for what is missing, 4 sequences, 2 at once, 2 slots",
       with_reports(of({with_window(two, 2)}, 4, 2)), true},
      {"2 levels, groups of 2 and 1, that are asked for what is missing, 2 sequences at once",
       with_reports(of({with_window(two_racks({2, 1}), 2)}, 2, 2, 2)), true},
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
      {"2 workers, 1 sequence, 1 slot, a contribution changes",
       with_fault(of({two}, 1, 1), Fault::kContribution)},
      {"2 workers, 1 sequence, 1 slot, a sum changes", with_fault(of({two}, 1, 1), Fault::kSum)},
      {"2 workers, 1 sequence, 1 slot, which changes", with_fault(of({two}, 1, 1), Fault::kSlot)},
      {"2 workers, 2 sequences in turn, 1 slot, a contribution changes",
       with_fault(of({two}, 2, 1), Fault::kContribution), true},
      {"2 workers, 2 sequences at once, 2 slots, a sum changes",
       with_fault(of({with_window(two, 2)}, 2, 2), Fault::kSum), true},
      {"2 workers, 2 sequences in turn, 1 slot, which changes",
       with_fault(of({two}, 2, 1), Fault::kSlot), true},
      {"3 workers, 1 sequence, 1 slot, a contribution changes",
       with_fault(of({three}, 1, 1), Fault::kContribution), true},
      {"3 workers, 1 sequence, 1 slot, which changes", with_fault(of({three}, 1, 1), Fault::kSlot),
       true},
      {"2 levels, groups of 2 and 1, 1 sequence, 1 slot, a contribution changes",
       with_fault(of({two_racks({2, 1})}, 1, 1, 2), Fault::kContribution), true},
      {"2 levels, groups of 2 and 1, 1 sequence, 1 slot, a sum changes",
       with_fault(of({two_racks({2, 1})}, 1, 1, 2), Fault::kSum), true},
      {"2 workers whose first guess does not fit, 1 sequence, 1 slot, a contribution changes",
       with_fault(of({choosing(two, none_fits)}, 1, 1), Fault::kContribution), true},
      {"2 workers whose first guess does not fit, 1 sequence, 1 slot",
       of({choosing(two, none_fits)}, 1, 1)},
      {"2 workers, the second call of a kind needs more, in turn, 1 slot",
       with_tensors(of({choosing(two, second_is_larger)}, 1, 1), 2)},
      {"2 workers, no call fits, in turn, 1 slot",
       with_tensors(of({choosing(two, none_fits)}, 1, 1), 2), true},
      {"2 workers, no call fits, window of 2, 2 slots",
       with_tensors(of({with_window(choosing(two, none_fits), 2)}, 1, 2), 2), true},
      {"2 workers, the second block known by the first, which does not fit, in turn, 1 slot",
       of({choosing(two, none_fits)}, 2, 1)},
      {"2 workers, 2 blocks of which none fits, at once, 2 slots",
       of({with_window(choosing(two, none_fits), 2)}, 2, 2), true},
      {"2 workers, zeros first and then what is not finite, in turn, 1 slot",
       with_tensors(of({choosing(two, second_is_not_finite)}, 1, 1), 2), true},
      {"2 workers that look for the switch, first guess does not fit, 1 sequence, 1 slot",
       of({with_direct_copies(choosing(two, none_fits))}, 1, 1)},
      {"3 workers whose first guess does not fit, 1 sequence, 1 slot",
       of({choosing(three, none_fits)}, 1, 1), true},
      {"2 levels, groups of 2 and 1, first guess does not fit, 1 sequence, 1 slot",
       of({choosing(two_racks({2, 1}), none_fits)}, 1, 1, 2), true},
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

// Expects that every cause that packets of correct workers can have has occurred. `all`: also the
// causes that do not occur in the small worlds.
void expect_all_causes(const ExplorationReport& together, bool all) {
  using Switch = switches::AggregateAction::Cause;
  for (const Switch cause :
       {Switch::kStored, Switch::kAdded, Switch::kCompleted, Switch::kResent, Switch::kFlushed,
        Switch::kCollision, Switch::kDuplicate, Switch::kFreed, Switch::kUnneeded}) {
    EXPECT_TRUE(together.at_switches.test(static_cast<std::size_t>(cause)))
        << switches::name_of(cause);
  }
  EXPECT_EQ(together.at_switches.test(static_cast<std::size_t>(Switch::kFlagged)), all);
  for (const Switch cause : {Switch::kUnknownJob, Switch::kMismatch, Switch::kOverlap}) {
    EXPECT_FALSE(together.at_switches.test(static_cast<std::size_t>(cause)))
        << switches::name_of(cause);
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
  const char* const given = std::getenv("THALWEG_EXPLORE");
  const std::string wanted = given != nullptr ? given : "";
  const bool all = wanted == "long";
  const bool some = !wanted.empty() && !all;
  ExplorationReport together;
  for (const Case& each : cases()) {
    const bool named = std::string(each.name).find(wanted) != std::string::npos;
    if (some ? !named : each.long_only && !all) continue;
    const auto begin = std::chrono::steady_clock::now();
    const ExplorationReport report = explore(each.exploration);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    print(each.name, report, took.count());
    EXPECT_EQ(report.violation, "") << each.name;
    EXPECT_GT(report.finished, 0U) << each.name;
    EXPECT_EQ(report.repeated > 0, each.exploration.shape.jobs[0].need != nullptr) << each.name;
    together.at_switches |= report.at_switches;
    together.at_servers |= report.at_servers;
  }
  // Some occur only in worlds that are left out under a sanitizer.
  if (!some && !kUnderSanitizer) expect_all_causes(together, all);
}

TEST(AtpExploration, explore__finds_a_switch_that_adds_duplicates) {
  Exploration exploration = of({one_rack(1, 2)}, 1, 1);
  exploration.add_duplicates = true;
  EXPECT_NE(explore(exploration).violation, "");
}

TEST(AtpExploration, explore__finds_wrong_sums_if_nobody_looks_at_check_words) {
  using Fault = Exploration::Fault;
  for (const Fault fault : {Fault::kContribution, Fault::kSum, Fault::kSlot}) {
    Exploration exploration = with_fault(of({one_rack(1, 2)}, 1, 1), fault);
    exploration.trusting = true;
    const std::string violation = explore(exploration).violation;
    EXPECT_NE(violation.find("a wrong sum"), std::string::npos) << violation;
  }
}

TEST(AtpExploration, explore__a_worker_fails_when_its_sums_stay_wrong) {
  Exploration exploration = with_fault(of({one_rack(1, 2)}, 1, 1), Exploration::Fault::kSum);
  exploration.faults = 2;
  EXPECT_EQ(explore(exploration).violation, "a worker has failed");
}

TEST(AtpExploration, explore__finds_a_worker_that_predicts_other_exponents) {
  JobShape job = choosing(one_rack(1, 2), second_is_larger);
  job.odd_headroom = 1;
  EXPECT_NE(explore(with_tensors(of({job}, 1, 1), 2)).violation, "");
}

}  // namespace
}  // namespace thalweg::proto::atp_test
