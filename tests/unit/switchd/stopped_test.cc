// Switches that are stopped for three seconds (SIGSTOP) in each phase of a job: every sum is exact,
// nothing hangs, and the switch is used afterwards.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/ranks.h"
#include "switchd/control_relay.h"
#include "switchd/leaves.h"
#include "switchd/switch_process.h"

namespace thalweg::switchd {
namespace {

constexpr std::chrono::seconds kStopped{3};
constexpr const char* kTwoOfTwo = "leaf-spine:racks=2,hosts=2,spines=1";
// The most time that any phase may take.
constexpr std::chrono::seconds kAllOver{40};

// Continues the switch after a time.
[[nodiscard]] std::thread continue_after(const SwitchProcess& stopped, std::chrono::seconds time) {
  return std::thread([&stopped, time] {
    std::this_thread::sleep_for(time);
    stopped.go_on();
  });
}

// Sums until the switch has completed more sequences than now.
void expect_goes_on(const Communicator& all, const SwitchProcess& at, std::uint64_t seed) {
  const Time until = net::monotonic_now() + Duration::milliseconds(20'000);
  const std::uint64_t before = all.rank() == 0 ? at.completed() : 0;
  std::vector<std::int32_t> over{0};
  for (; over[0] == 0; ++seed) {
    expect_exact_sum(all, seed);
    if (all.rank() == 0 && (at.completed() > before || net::monotonic_now() > until)) over[0] = 1;
    ASSERT_TRUE(all.allreduce(TensorSpan::of(over), {}).ok());
  }
  if (all.rank() == 0) {
    EXPECT_GT(at.completed(), before);
  }
}

std::string list_of(const std::string& leaf0, const std::string& leaf1) {
  return "leaf0=" + leaf0 + ",leaf1=" + leaf1;
}

TEST(Stopped, create__before_the_job_is_made) {
  const SwitchProcess leaf0;
  const SwitchProcess leaf1;
  for (const auto* stopped : {&leaf0, &leaf1}) {
    stopped->stop();
    std::thread later = continue_after(*stopped, kStopped);
    net::run_ranks(
        4, over_leaves(list_of(leaf0.control_address(), leaf1.control_address()), kTwoOfTwo),
        [&](Communicator& all) {
          EXPECT_TRUE(all.has_switch());
          expect_exact_sum(all, 1);
          expect_goes_on(all, *stopped, 2);
        });
    later.join();
  }
}

TEST(Stopped, create__for_longer_than_the_job_waits) {
  const SwitchProcess process;
  process.stop();
  net::run_ranks(3, over_leaves(process.control_address(), ""), [&](Communicator& all) {
    EXPECT_FALSE(all.has_switch());
    expect_exact_sum(all, 1);
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() == 0) process.go_on();
    expect_goes_on(all, process, 2);
    EXPECT_TRUE(all.has_switch());
  });
}

// The relay stops the switch when the job is to be created there.
TEST(Stopped, create__during_admission) {
  const SwitchProcess leaf0;
  const SwitchProcess leaf1;
  for (const auto* stopped : {&leaf0, &leaf1}) {
    std::vector<std::thread> later;
    const auto answer = [&](const nlohmann::json& request, const ControlRelay::Ask& ask) {
      if (request.at("op") == "create" && later.empty()) {
        stopped->stop();
        later.push_back(continue_after(*stopped, kStopped));
      }
      return std::optional(ControlRelay::line_of(ask(request)));
    };
    {
      const ControlRelay relay(stopped->control_address(), answer);
      const bool first = stopped == &leaf0;
      net::run_ranks(4,
                     over_leaves(list_of(first ? relay.address() : leaf0.control_address(),
                                         first ? leaf1.control_address() : relay.address()),
                                 kTwoOfTwo),
                     [&](Communicator& all) {
                       EXPECT_TRUE(all.has_switch());
                       expect_exact_sum(all, 1);
                       expect_goes_on(all, *stopped, 2);
                     });
    }
    ASSERT_EQ(later.size(), 1U);
    later.front().join();
  }
}

TEST(Stopped, allreduce__amid_data) {
  const SwitchProcess leaf0;
  const SwitchProcess leaf1;
  net::run_ranks(
      4, over_leaves(list_of(leaf0.control_address(), leaf1.control_address()), kTwoOfTwo),
      [&](Communicator& all) {
        for (const auto* stopped : {&leaf0, &leaf1}) {
          expect_goes_on(all, *stopped, 1);
          ASSERT_TRUE(all.barrier({}).ok());
          // The other ranks are in the midst of the next sums.
          std::thread later;
          if (all.rank() == 0) {
            later = std::thread([stopped] {
              std::this_thread::sleep_for(std::chrono::milliseconds(2));
              stopped->stop();
              std::this_thread::sleep_for(kStopped);
              stopped->go_on();
            });
          }
          std::vector<std::int32_t> over{0};
          const auto until = std::chrono::steady_clock::now() + kStopped;
          for (std::uint64_t seed = 20; over[0] == 0; ++seed) {
            expect_exact_sum(all, seed);
            over[0] = all.rank() == 0 && std::chrono::steady_clock::now() > until ? 1 : 0;
            ASSERT_TRUE(all.allreduce(TensorSpan::of(over), {}).ok());
          }
          if (later.joinable()) later.join();
          expect_goes_on(all, *stopped, 5000);
        }
      });
}

// The switch comes back without its job, and is stopped before it answers rank 0, which asks it to
// create the job again. Its answer counts when it comes: the job has the number that it had.
TEST(Stopped, allreduce__at_the_renewal_of_the_lease) {
  SwitchProcess leaf0;
  SwitchProcess leaf1;
  net::run_ranks(4,
                 over_leaves(list_of(leaf0.control_address(), leaf1.control_address()), kTwoOfTwo),
                 [&](Communicator& all) {
                   for (auto* stopped : {&leaf0, &leaf1}) {
                     expect_exact_sum(all, 1);
                     ASSERT_TRUE(all.barrier({}).ok());
                     nlohmann::json number;
                     std::thread later;
                     if (all.rank() == 0) {
                       number = stopped->ask("list").at("jobs").at(0).at("job");
                       stopped->restart_stopped();
                       later = continue_after(*stopped, kStopped);
                     }
                     expect_exact_sum(all, 2);
                     if (later.joinable()) later.join();
                     ASSERT_TRUE(all.barrier({}).ok());
                     expect_goes_on(all, *stopped, 3);
                     if (all.rank() == 0) {
                       const nlohmann::json jobs = stopped->ask("list").at("jobs");
                       EXPECT_TRUE(jobs.size() == 1 && jobs[0].at("job") == number) << jobs;
                     }
                   }
                 });
}

// A further job is made because leaf1 came, and leaf1 is stopped while it is asked to create it.
TEST(Stopped, allreduce__while_the_ranks_go_over_to_it) {
  const SwitchProcess leaf0;
  const SwitchProcess leaf1;
  std::atomic<bool> there = false;
  std::atomic<bool> stopped = false;
  std::thread later;
  const auto answer = [&](const nlohmann::json& request,
                          const ControlRelay::Ask& ask) -> std::optional<std::string> {
    if (!there) return std::nullopt;
    if (request.at("op") == "create" && !stopped.exchange(true)) {
      leaf1.stop();
      later = continue_after(leaf1, kStopped);
    }
    return ControlRelay::line_of(ask(request));
  };
  {
    const ControlRelay relay(leaf1.control_address(), answer);
    net::run_ranks(4, over_leaves(list_of(leaf0.control_address(), relay.address()), kTwoOfTwo),
                   [&](Communicator& all) {
                     expect_exact_sum(all, 1);
                     there = true;
                     std::vector<std::int32_t> over{0};
                     const auto began = std::chrono::steady_clock::now();
                     for (std::uint64_t seed = 2; over[0] == 0; ++seed) {
                       expect_exact_sum(all, seed);
                       const auto took = std::chrono::steady_clock::now() - began;
                       if (all.rank() == 0 && took > kStopped) {
                         over[0] = took > kAllOver || leaf1.completed() > 0 ? 1 : 0;
                       }
                       ASSERT_TRUE(all.allreduce(TensorSpan::of(over), {}).ok());
                     }
                     if (all.rank() == 0) {
                       EXPECT_GT(leaf1.completed(), 0U);
                     }
                   });
  }
  EXPECT_TRUE(stopped);
  if (later.joinable()) later.join();
}

}  // namespace
}  // namespace thalweg::switchd
