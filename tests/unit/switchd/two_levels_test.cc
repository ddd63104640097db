// Communicators whose job is at the switches of two racks, over sockets.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "base/messages.h"
#include "net/ranks.h"
#include "switchd/leaves.h"
#include "switchd/loopback_job.h"

namespace thalweg::switchd {
namespace {

// The jobs of leases end a moment after their connections.
void expect_no_jobs(const SwitchDaemon& daemon) {
  const Time until = soon();
  while (!ask_switch(daemon, "list").at("jobs").empty()) {
    ASSERT_LT(net::monotonic_now(), until) << "a job is left behind";
  }
}

// Packets of a sum of kRackElements.
constexpr std::uint64_t kRackPackets = (kRackElements + 255) / 256;

// Calls `check` on rank 0 while the other ranks wait.
void on_rank_0(const Communicator& all, const std::function<void()>& check) {
  ASSERT_TRUE(all.barrier({}).ok());
  if (all.rank() == 0) check();
  ASSERT_TRUE(all.barrier({}).ok());
}

TEST(TwoLevels, allreduce__one_sum_of_each_rack_and_one_result_cross_the_uplinks) {
  const Leaves leaves(2);
  net::run_ranks(6, over_leaves(leaves.list()), [&](Communicator& all) {
    expect_exact_sum(all, 1);
    on_rank_0(all, [&] {
      // The servers' leaf completes each sequence twice: its own rack's, then the sum of both.
      EXPECT_GT(counter_of(*leaves.daemons[0], "completed"), kRackPackets);
      EXPECT_GT(counter_of(*leaves.daemons[1], "completed"), kRackPackets / 2);
      const nlohmann::json stats = ask_switch(*leaves.daemons[1], "stats");
      const nlohmann::json& ports = stats.at("jobs").at(0).at("ports");
      ASSERT_EQ(ports.size(), 4U);  // three workers and the servers' leaf
      const auto up = ports.at(3).at("packets_out").get<std::uint64_t>();
      const auto down = ports.at(3).at("packets_in").get<std::uint64_t>();
      // A busy machine is late and sends some packets again.
      EXPECT_GE(up, kRackPackets);
      EXPECT_LT(up, 2 * kRackPackets);
      EXPECT_LT(down, 2 * kRackPackets);
    });
  });
  for (const auto& daemon : leaves.daemons) expect_no_jobs(*daemon);
}

TEST(TwoLevels, allreduce__with_a_job_key_all_switches_have_one_key) {
  const ScopedJobKey key;
  const Leaves leaves(2);
  net::run_ranks(4, over_leaves(leaves.list(), "leaf-spine:racks=2,hosts=2,spines=1"),
                 [&](Communicator& all) {
                   expect_exact_sum(all, 17);
                   on_rank_0(all, [&] {
                     for (const auto& daemon : leaves.daemons) {
                       EXPECT_GT(counter_of(*daemon, "completed"), kRackPackets / 2);
                       EXPECT_EQ(ask_switch(*daemon, "list").at("jobs")[0].at("keyed"), true);
                     }
                   });
                 });
}

TEST(TwoLevels, allreduce__switches_spread_their_packets_where_there_are_several_routes) {
  for (const bool keyed : {false, true}) {
    SCOPED_TRACE(keyed);
    const std::optional<ScopedJobKey> key =
        keyed ? std::optional<ScopedJobKey>(std::in_place) : std::nullopt;
    for (const int spines : {1, 2}) {
      SCOPED_TRACE(spines);
      const Leaves leaves(2, 8192, 4);
      const std::string topology = fmt::format("leaf-spine:racks=2,hosts=2,spines={}", spines);
      net::run_ranks(4, over_leaves(leaves.list(), topology), [&](Communicator& all) {
        expect_exact_sum(all, 23);
        on_rank_0(all, [&] {
          for (const auto& daemon : leaves.daemons) {
            const nlohmann::json job = ask_switch(*daemon, "list").at("jobs")[0];
            const nlohmann::json sources = job.value("sources", nlohmann::json::object());
            EXPECT_EQ(sources.size(), spines > 1 ? 1U : 0U);
            for (const nlohmann::json& ports : sources) EXPECT_EQ(ports.size(), 3U);
            EXPECT_GT(counter_of(*daemon, "completed"), kRackPackets / 2);
            EXPECT_EQ(counter_of(*daemon, "foreign"), 0U);
            EXPECT_EQ(ask_switch(*daemon, "stats").at("switch").at("strangers"), 0);
          }
        });
      });
    }
  }
}

TEST(TwoLevels, allreduce__the_servers_are_in_the_rack_with_the_fastest_uplinks) {
  const Leaves leaves(3);
  // The ranks of the racks alternate, and the second rack has the fastest uplink.
  std::string hosts;
  std::string links;
  for (int i = 0; i < 6; ++i) {
    hosts += fmt::format("  - {{name: h{}}}\n", i);
    links += fmt::format("  - {{between: [h{}, leaf{}]}}\n", i, i % 3);
  }
  const std::string topology = "defaults: {rate: 1G}\nhosts:\n" + hosts +
                               "switches: [{name: spine}, {name: leaf0}, {name: leaf1}, "
                               "{name: leaf2}]\nlinks:\n" +
                               links +
                               "  - {between: [leaf0, spine]}\n"
                               "  - {between: [leaf1, spine], rate: 4G}\n"
                               "  - {between: [leaf2, spine]}\n";
  net::run_ranks(6, over_leaves(leaves.list(), topology), [&](Communicator& all) {
    expect_exact_sum(all, 2);
    on_rank_0(all, [&] {
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_GT(counter_of(*leaves.daemons[i], "completed"), kRackPackets / 2);
        const nlohmann::json job = ask_switch(*leaves.daemons[i], "list").at("jobs").at(0);
        EXPECT_EQ(job.at("second_level"), i == 1);
        EXPECT_EQ(job.at("servers").size(), i == 1 ? 2U : 1U);
      }
    });
  });
}

TEST(TwoLevels, allreduce__ranks_behind_a_switch_that_does_not_aggregate) {
  const Leaves leaves(2);
  net::run_ranks(
      6, over_leaves(leaves.list(), "leaf-spine:racks=3,hosts=2,spines=1,host=1G,uplink=1G"),
      [&](Communicator& all) {
        expect_exact_sum(all, 3);
        on_rank_0(all, [&] {
          EXPECT_GT(counter_of(*leaves.daemons[0], "alone"), kRackPackets);
          EXPECT_GT(counter_of(*leaves.daemons[1], "completed"), kRackPackets / 2);
        });
      });
}

TEST(TwoLevels, allreduce__one_server_and_few_aggregators) {
  const Leaves leaves(2, 16);
  CommunicatorOptions options = over_leaves(leaves.list());
  options.atp_servers = 1;
  net::run_ranks(6, options, [&](Communicator& all) {
    expect_exact_sum(all, 4);
    on_rank_0(all, [&] { EXPECT_GT(counter_of(*leaves.daemons[1], "collision"), 0U); });
  });
}

TEST(TwoLevels, allreduce__exact_under_loss) {
  const Leaves leaves(2);
  const net::ScopedLoss loss(net::lose_one_in(100));
  net::run_ranks(6, over_leaves(leaves.list()), [&](Communicator& all) {
    for (std::uint64_t seed = 5; seed < 8; ++seed) expect_exact_sum(all, seed);
    on_rank_0(all, [&] {
      EXPECT_GT(
          counter_of(*leaves.daemons[0], "flushed") + counter_of(*leaves.daemons[1], "flushed"),
          0U);
    });
  });
}

TEST(TwoLevels, create__a_switch_that_is_not_there_is_left_out) {
  Leaves leaves(2);
  leaves.addresses[0] = net::free_address();  // Nothing listens there.
  // A process that never answers.
  const net::Fd silent = std::move(net::listen_tcp("127.0.0.1:0").value());
  leaves.addresses.push_back(net::SocketAddress::local_of(silent.get()).to_string());
  net::run_ranks(
      6, over_leaves(leaves.list(), "leaf-spine:racks=3,hosts=2,spines=1"), [&](Communicator& all) {
        expect_exact_sum(all, 11);
        on_rank_0(all, [&] {
          // All six ranks are one group there.
          EXPECT_GT(counter_of(*leaves.daemons[1], "completed"), kRackPackets / 2);
          EXPECT_EQ(ask_switch(*leaves.daemons[1], "list").at("jobs")[0].at("groups"), 1);
        });
      });
}

TEST(TwoLevels, create__without_a_topology_the_first_switch_sums) {
  const Leaves leaves(2);
  net::run_ranks(4, over_leaves(leaves.list(), ""), [&](Communicator& all) {
    expect_exact_sum(all, 12);
    on_rank_0(all, [&] {
      EXPECT_GT(counter_of(*leaves.daemons[0], "completed"), kRackPackets / 2);
      EXPECT_TRUE(ask_switch(*leaves.daemons[1], "list").at("jobs").empty());
    });
  });
}

TEST(TwoLevels, create__a_switch_without_room_is_left_out) {
  Leaves leaves(2);
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.max_jobs = 1;
  auto full = SwitchDaemon::start(config);
  ASSERT_TRUE(full.ok());
  LoopbackJob other(full->get(), {.workers = 2});
  leaves.addresses[1] = (*full)->control_address();
  net::run_ranks(4, over_leaves(leaves.list(), "leaf-spine:racks=2,hosts=2,spines=1"),
                 [&](Communicator& all) {
                   expect_exact_sum(all, 14);
                   on_rank_0(all, [&] {
                     EXPECT_EQ(ask_switch(*leaves.daemons[0], "list").at("jobs").size(), 1U);
                     EXPECT_EQ(ask_switch(**full, "list").at("jobs").size(), 1U);
                   });
                 });
}

TEST(TwoLevels, create__a_switch_that_is_asked_too_often_is_left_out) {
  Leaves leaves(2);
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.requests_per_second = 1;
  auto busy = SwitchDaemon::start(config);
  ASSERT_TRUE(busy.ok());
  leaves.addresses[1] = (*busy)->control_address();
  std::atomic<bool> over = false;
  std::thread asks_on([&] {
    while (!over) {
      auto client = net::SwitchClient::connect(leaves.addresses[1], switch_secrets(), soon());
      if (client.ok()) static_cast<void>(client->ask({{"op", "list"}}, soon()));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  net::run_ranks(
      4, over_leaves(leaves.list(), "leaf-spine:racks=2,hosts=2,spines=1"), [&](Communicator& all) {
        expect_exact_sum(all, 14);
        on_rank_0(all,
                  [&] { EXPECT_EQ(ask_switch(*leaves.daemons[0], "list").at("jobs").size(), 1U); });
      });
  over = true;
  asks_on.join();
}

// The control socket of a switch that refuses the first job with this error. Everything else goes
// to the switch. It serves one client.
void refuse_one_job(const net::Fd& listener, const SwitchDaemon& daemon, const std::string& error) {
  ASSERT_TRUE(net::wait_for_socket(listener.get(), POLLIN, soon()));
  const net::Fd client(accept(listener.get(), nullptr, nullptr));
  net::SwitchClient behind =
      std::move(*net::SwitchClient::connect(daemon.control_address(), switch_secrets(), soon()));
  std::string line;
  bool refused = false;
  for (char byte = 0; recv(client.get(), &byte, 1, 0) == 1;) {
    if (byte != '\n') {
      line += byte;
      continue;
    }
    const auto request = nlohmann::json::parse(std::exchange(line, {}));
    nlohmann::json answer;
    if (request.at("op") == "create" && !std::exchange(refused, true)) {
      answer = {{"ok", false}, {"error", error}};
    } else {
      answer = behind.ask(request, soon()).value();
      answer["ok"] = true;
    }
    const std::string text = answer.dump() + "\n";
    send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(refused);
}

TEST(TwoLevels, create__a_switch_that_refuses_is_named_and_nothing_is_left) {
  Leaves leaves(2);
  const net::Fd listener = std::move(net::listen_tcp("127.0.0.1:0").value());
  leaves.addresses[1] = net::SocketAddress::local_of(listener.get()).to_string();
  std::thread relay([&] { refuse_one_job(listener, *leaves.daemons[1], "workers: not these"); });
  expect_four_refused(over_leaves(leaves.list(), "leaf-spine:racks=2,hosts=2,spines=1"), "leaf1=");
  relay.join();
  expect_no_jobs(*leaves.daemons[0]);
}

TEST(TwoLevels, create__bad_lists_are_errors_on_every_rank) {
  const Leaves leaves(2);
  const std::string& one = leaves.addresses[0];
  const std::string& two = leaves.addresses[1];
  const auto topology = "leaf-spine:racks=2,hosts=2,spines=1";
  expect_four_refused(over_leaves("leaf0=" + one + ",attic=" + two, topology), "no switch 'attic'");
  expect_four_refused(over_leaves("leaf0=" + one + "," + two, topology), "has no name");
  expect_four_refused(over_leaves("leaf0=" + one + ",leaf0=" + two, topology), "there twice");
  expect_four_refused(over_leaves("leaf0=" + one + ",leaf1=nowhere", topology), "leaf1=nowhere");
  expect_four_refused(over_leaves("/nowhere/switches", topology), "/nowhere/switches");
}

TEST(TwoLevels, create__asks_for_another_number_if_a_switch_has_given_it) {
  Leaves leaves(2);
  const net::Fd listener = std::move(net::listen_tcp("127.0.0.1:0").value());
  leaves.addresses[1] = net::SocketAddress::local_of(listener.get()).to_string();
  std::thread relay([&] {
    refuse_one_job(listener, *leaves.daemons[1], fmt::format("job: 1; {}", net::kNumberTaken));
  });
  net::run_ranks(4, over_leaves(leaves.list(), "leaf-spine:racks=2,hosts=2,spines=1"),
                 [&](Communicator& all) {
                   expect_exact_sum(all, 16);
                   on_rank_0(all, [&] {
                     for (const auto& daemon : leaves.daemons) {
                       EXPECT_GT(counter_of(*daemon, "completed"), kRackPackets / 2);
                     }
                   });
                 });
  relay.join();
}

TEST(TwoLevels, create__chosen_by_the_planner_or_tcp_if_the_list_is_wrong) {
  const Leaves leaves(2);
  const auto topology = "leaf-spine:racks=2,hosts=3,spines=1,host=10G,uplink=10G";
  CommunicatorOptions options = over_leaves(leaves.list(), topology);
  options.transport = Transport::kAuto;
  net::run_ranks(6, options, [&](Communicator& all) {
    expect_exact_sum(all, 14, 6 * kRackElements);
    on_rank_0(all, [&] {
      EXPECT_GT(counter_of(*leaves.daemons[0], "completed"), 0U);
      EXPECT_GT(counter_of(*leaves.daemons[1], "completed"), 0U);
    });
  });
  options.atp_switch = "attic=" + leaves.addresses[0];
  net::run_ranks(6, options, [&](Communicator& all) { expect_exact_sum(all, 15); });
}

TEST(TwoLevels, create__the_list_may_be_in_a_file) {
  const Leaves leaves(2);
  const std::string path = testing::TempDir() + "/thalweg-switches";
  std::ofstream(path) << "# two racks\nleaf0=" << leaves.addresses[0]
                      << "\n\n leaf1 = " << leaves.addresses[1] << "\n";
  net::run_ranks(
      4, over_leaves(path, "leaf-spine:racks=2,hosts=2,spines=1"), [&](Communicator& all) {
        expect_exact_sum(all, 13);
        on_rank_0(
            all, [&] { EXPECT_GT(counter_of(*leaves.daemons[1], "completed"), kRackPackets / 2); });
      });
}

}  // namespace
}  // namespace thalweg::switchd
