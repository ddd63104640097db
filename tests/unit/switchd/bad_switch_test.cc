// Lists that are wrong, and switches that answer wrongly: every rank gets exact sums, or an error
// that names the switch.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "net/ranks.h"
#include "net/test_environment.h"
#include "switchd/control_relay.h"
#include "switchd/leaves.h"

namespace thalweg::switchd {
namespace {

using nlohmann::json;

constexpr const char* kTwoRacksOfTwo = "leaf-spine:racks=2,hosts=2,spines=1";

std::string with_leaf1_at(const Leaves& leaves, const std::string& address) {
  return "leaf0=" + leaves.addresses[0] + ",leaf1=" + address;
}

// Rank 0 reaches leaf1 by a relay that answers so: an error on each rank that names leaf1 and has
// this text. Nothing is left at the switches.
void expect_named(const ControlRelay::Answer& answer, const std::string& cause) {
  SCOPED_TRACE(cause);
  const Leaves leaves(2);
  const ControlRelay relay(leaves.addresses[1], answer);
  const CommunicatorOptions options =
      over_leaves(with_leaf1_at(leaves, relay.address()), kTwoRacksOfTwo);
  expect_four_refused(options, cause);
  expect_four_refused(options, "leaf1=" + relay.address());
  for (const auto& daemon : leaves.daemons) {
    const Time until = soon();
    while (!ask_switch(*daemon, "list").at("jobs").empty()) {
      ASSERT_LT(net::monotonic_now(), until) << "a job is left behind";
    }
  }
}

// Three exact sums at a relay that answers so; then `check` on rank 0.
void expect_exact(const ControlRelay::Answer& answer,
                  const std::function<void(const Leaves& leaves)>& check = {}) {
  const Leaves leaves(2);
  const ControlRelay relay(leaves.addresses[1], answer);
  net::run_ranks(4, over_leaves(with_leaf1_at(leaves, relay.address()), kTwoRacksOfTwo),
                 [&](Communicator& all) {
                   for (std::uint64_t seed = 1; seed < 4; ++seed) expect_exact_sum(all, seed);
                   ASSERT_TRUE(all.barrier({}).ok());
                   if (all.rank() == 0 && check) check(leaves);
                   ASSERT_TRUE(all.barrier({}).ok());
                 });
}

// Changes the answers to requests for a job.
ControlRelay::Answer changed(const std::function<void(json& answer)>& change) {
  return [change](const json& request, const ControlRelay::Ask& ask) {
    json answer = ask(request);
    if (request.at("op") == "create") change(answer);
    return std::optional(ControlRelay::line_of(answer));
  };
}

TEST(BadSwitch, create__switches_that_have_changed_names) {
  const Leaves leaves(2);
  const std::string list = "leaf0=" + leaves.addresses[1] + ",leaf1=" + leaves.addresses[0];
  net::run_ranks(4, over_leaves(list, kTwoRacksOfTwo), [&](Communicator& all) {
    for (std::uint64_t seed = 1; seed < 4; ++seed) expect_exact_sum(all, seed);
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() != 0) return;
    for (const auto& daemon : leaves.daemons) EXPECT_GT(counter_of(*daemon, "completed"), 0U);
  });
}

TEST(BadSwitch, create__one_switch_under_two_names) {
  const Leaves leaves(1);
  // Another spelling of the same address.
  const std::string port = leaves.addresses[0].substr(leaves.addresses[0].find(':'));
  expect_four_refused(
      over_leaves("leaf0=" + leaves.addresses[0] + ",leaf1=127.1" + port, kTwoRacksOfTwo),
      "is a data address of this switch");
}

TEST(BadSwitch, create__answers_for_another_job) {
  expect_named(
      changed([](json& answer) { answer["job"] = answer.at("job").get<int>() % 60'000 + 1; }),
      "it was asked for the job");
  expect_named(changed([](json& answer) { answer["job"] = 0; }), "for the job 0");
  expect_named(changed([](json& answer) { answer.erase("job"); }), "for the job 0");
  expect_named(changed([](json& answer) { answer["job"] = 70'000; }), "for the job 70000");
}

TEST(BadSwitch, create__answers_that_no_switch_gives) {
  const auto say = [](const char* text) {
    return [text](const json& request, const ControlRelay::Ask& ask) {
      return std::optional(request.at("op") == "create" ? std::string(text)
                                                        : ControlRelay::line_of(ask(request)));
    };
  };
  expect_named(say("HTTP/1.1 400 Bad Request\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  expect_named(say("\n"), "a JSON object is allowed");
  expect_named(say("[1, 2]\n"), "a JSON object is allowed");
  expect_named(say("{\"ok\": false}\n"), "without saying why");
  expect_named(say("{\"ok\": true, \"job\": \"one\"}\n"), "job: ");
  expect_named(changed([](json& answer) { answer["elements"] = 0; }), "elements: 0");
  expect_named(changed([](json& answer) { answer["data"] = json::array(); }),
               "without a data address");
  for (const char* data : {"nowhere:1", "127.0.0.1:0", "0.0.0.0:1"}) {
    expect_named(changed([data](json& answer) { answer["data"] = json::array({data}); }),
                 std::string("data: '") + data);
  }
  const std::string endless(net::kMaxControlAnswer + 5000, 'x');
  expect_named(say(endless.c_str()), "longer than");
}

TEST(BadSwitch, create__the_data_address_of_a_member) {
  const auto answer = [&](const json& request, const ControlRelay::Ask& ask) {
    json said = ask(request);
    if (request.at("op") == "create") said["data"] = json::array({request.at("workers").at(0)});
    return std::optional(ControlRelay::line_of(said));
  };
  expect_named(answer, "is a member of the job");
}

TEST(BadSwitch, create__odd_lines_before_the_job) {
  expect_named(
      [](const json& /*request*/, const ControlRelay::Ask& /*ask*/) {
        return std::optional<std::string>("220 mail ready\n");
      },
      "220 mail ready");
  // A second line is read as the answer to the next request.
  expect_named(
      [](const json& request, const ControlRelay::Ask& ask) {
        return std::optional(ControlRelay::line_of(ask(request)) + "and more\n");
      },
      "and more");
}

TEST(BadSwitch, create__closes_instead_of_answering) {
  for (const char* op : {"list", "create"}) {
    SCOPED_TRACE(op);
    expect_exact(
        [op](const json& request, const ControlRelay::Ask& ask) -> std::optional<std::string> {
          if (request.at("op") == op) return std::nullopt;
          return ControlRelay::line_of(ask(request));
        },
        [](const Leaves& leaves) {
          EXPECT_GT(completed_at(*leaves.daemons[0]), 0U);
          EXPECT_TRUE(ask_switch(*leaves.daemons[1], "list").at("jobs").empty());
        });
  }
}

TEST(BadSwitch, allreduce__lines_that_nobody_asked_for) {
  expect_exact(
      [](const json& request, const ControlRelay::Ask& ask) {
        const std::string answer = ControlRelay::line_of(ask(request));
        return std::optional(request.at("op") == "create" ? answer + "hello\n" : answer);
      },
      [](const Leaves& leaves) {
        for (const auto& daemon : leaves.daemons) EXPECT_GT(counter_of(*daemon, "completed"), 0U);
      });
}

TEST(BadSwitch, allreduce__a_renewal_that_is_answered_wrongly) {
  Leaves leaves(2);
  std::atomic<int> creations = 0;
  const ControlRelay relay(leaves.addresses[1],
                           [&](const json& request, const ControlRelay::Ask& ask) {
                             if (request.at("op") != "create" || creations++ == 0) {
                               return std::optional(ControlRelay::line_of(ask(request)));
                             }
                             return std::optional<std::string>("what?\n");
                           });
  net::run_ranks(4, over_leaves(with_leaf1_at(leaves, relay.address()), kTwoRacksOfTwo),
                 [&](Communicator& all) {
                   expect_exact_sum(all, 1);
                   ASSERT_TRUE(all.barrier({}).ok());
                   if (all.rank() == 0) {
                     leaves.daemons[1] = restarted(std::move(leaves.daemons[1]));
                   }
                   const Time until = soon();
                   std::vector<std::int32_t> over{0};
                   for (std::uint64_t seed = 2; over[0] == 0; ++seed) {
                     expect_exact_sum(all, seed);
                     // The renewal, and an attempt to make another job.
                     const bool done = creations > 2 || net::monotonic_now() > until;
                     over[0] = all.rank() == 0 && done ? 1 : 0;
                     ASSERT_TRUE(all.allreduce(TensorSpan::of(over), {}).ok());
                   }
                   EXPECT_GT(creations, 2);
                   expect_exact_sum(all, 9);
                 });
}

TEST(BadSwitch, create__a_switch_that_holds_another_key_is_named) {
  const ScopedJobKey key;
  // Whoever answers in the switch's place cannot do so on a sealed connection.
  const net::Variable in_the_clear("THALWEG_SWITCH_KEY_FILE", "none");
  const auto with_another_key = [](json request) {
    if (request.contains("key")) request["key"] = std::string(32, '7');
    return request;
  };
  expect_named(
      [&](const json& request, const ControlRelay::Ask& ask) {
        return std::optional(ControlRelay::line_of(ask(with_another_key(request))));
      },
      "another key");
  // It says the right one: its packets are forged, and the ranks go on without it.
  expect_exact(
      [&](const json& request, const ControlRelay::Ask& ask) {
        json answer = ask(with_another_key(request));
        if (request.contains("key")) answer["key"] = request.at("key");
        return std::optional(ControlRelay::line_of(answer));
      },
      [](const Leaves& leaves) {
        EXPECT_GT(counter_of(*leaves.daemons[1], "forged"), 0U);
        EXPECT_EQ(counter_of(*leaves.daemons[1], "completed"), 0U);
      });
}

}  // namespace
}  // namespace thalweg::switchd
