#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <latch>
#include <numeric>

#include "base/messages.h"
#include "net/ranks.h"
#include "switchd/loopback_job.h"
#include "tensor/fixed_point.h"

namespace thalweg::switchd {
namespace {

CommunicatorOptions over(const std::string& control, int servers = 0) {
  CommunicatorOptions options;
  options.transport = Transport::kAtp;
  options.atp_switch = control;
  options.atp_servers = servers;
  return options;
}

// The gradient of one rank; every rank can compute those of all.
std::vector<float> gradient(int rank, std::size_t elements) {
  Prng prng(static_cast<std::uint64_t>(rank) + 1);
  std::vector<float> values(elements);
  for (float& value : values) {
    value = static_cast<float>(static_cast<std::int32_t>(prng.next()) >> 8) * 0x1p-24F;
  }
  return values;
}

void expect_mean(const Communicator& all, std::size_t elements) {
  std::vector<float> values = gradient(all.rank(), elements);
  const Status status = all.allreduce(TensorSpan::of(values), {.op = ReduceOp::kMean});
  ASSERT_TRUE(status.ok()) << status.error().message();
  std::vector<double> sum(elements);
  for (int r = 0; r < all.size(); ++r) {
    const std::vector<float> one = gradient(r, elements);
    for (std::size_t i = 0; i < elements; ++i) sum[i] += double{one[i]};
  }
  // All magnitudes are below 1: no block has an exponent above 0.
  const double bound = tensor::fixed_point_quantum(0, all.size()) + 0x1p-24;
  for (std::size_t i = 0; i < elements; ++i) {
    ASSERT_NEAR(double{values[i]}, sum[i] / all.size(), bound) << i;
  }
}

TEST(CommunicatorAtp, allreduce__integers_are_exact_and_floats_within_the_bound) {
  const auto daemon = start_switch(256);
  net::run_ranks(3, over(daemon->control_address()), [&](Communicator& all) {
    std::vector<std::int32_t> ones(10'000);
    std::iota(ones.begin(), ones.end(), all.rank());
    ASSERT_TRUE(all.allreduce(TensorSpan::of(ones), {}).ok());
    for (std::size_t i = 0; i < ones.size(); ++i) {
      ASSERT_EQ(ones[i], static_cast<std::int32_t>(3 * i + 3));
    }
    expect_mean(all, 5000);
    // Other types go over TCP.
    std::vector<double> more{1.0};
    ASSERT_TRUE(all.allreduce(TensorSpan::of(more), {}).ok());
    EXPECT_EQ(more[0], 3.0);
  });
}

TEST(CommunicatorAtp, allreduce__several_in_flight) {
  const auto daemon = start_switch(4096);
  net::run_ranks(2, over(daemon->control_address(), 1), [&](Communicator& all) {
    std::vector<std::vector<std::int32_t>> tensors(20, std::vector<std::int32_t>(3000, 1));
    std::vector<Operation> operations;
    for (auto& tensor : tensors) {
      operations.push_back(all.allreduce_async(TensorSpan::of(tensor), {}).value());
    }
    for (const Operation& operation : operations) EXPECT_TRUE(operation.wait().ok());
    for (const auto& tensor : tensors) EXPECT_EQ(tensor, std::vector<std::int32_t>(3000, 2));
  });
}

TEST(CommunicatorAtp, allreduce__no_switch_there) {
  // Nobody listens at the address.
  net::run_ranks(2, over(net::free_address()), [&](Communicator& all) { expect_mean(all, 4000); });
}

TEST(CommunicatorAtp, allreduce__the_switch_dies) {
  auto daemon = start_switch(4096);
  net::run_ranks(2, over(daemon->control_address()), [&](Communicator& all) {
    expect_mean(all, 100'000);
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() == 0) daemon.reset();
    expect_mean(all, 100'000);
    expect_mean(all, 1000);
  });
}

TEST(CommunicatorAtp, allreduce__different_calls_are_named) {
  const auto daemon = start_switch(16);
  net::run_ranks(2, over(daemon->control_address()), [&](Communicator& all) {
    std::vector<std::int32_t> values(all.rank() == 0 ? 100 : 200);
    const Status status = all.allreduce(TensorSpan::of(values), {});
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message().find("100 int32"), std::string::npos)
        << status.error().message();
    EXPECT_NE(status.error().message().find("200 int32"), std::string::npos);
    EXPECT_EQ(kind_of(status), "mismatch");
  });
}

TEST(CommunicatorAtp, allreduce__overflow_is_an_error_on_every_rank) {
  const auto daemon = start_switch(16);
  net::run_ranks(2, over(daemon->control_address()), [&](Communicator& all) {
    std::vector<std::int32_t> values(100, std::numeric_limits<std::int32_t>::max());
    const Status status = all.allreduce(TensorSpan::of(values), {});
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message().find("32 bits"), std::string::npos);
    expect_mean(all, 100);
  });
}

// Creating a communicator of two ranks fails on each, with this cause.
void expect_refused(const CommunicatorOptions& common, const std::string& cause) {
  CommunicatorOptions options = common;
  options.store = net::free_address();
  options.size = 2;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([options, rank, cause]() mutable {
      options.rank = rank;
      const auto refused = Communicator::create(options);
      ASSERT_FALSE(refused.ok());
      EXPECT_NE(refused.error().message().find(cause), std::string::npos)
          << refused.error().message();
      EXPECT_EQ(refused.error().code(), ErrorCode::kBadArgument);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CommunicatorAtp, allreduce__codes_of_a_missed_deadline_and_of_a_rank_that_left) {
  const auto daemon = start_switch(16);
  for (const bool leaves : {false, true}) {
    std::latch finished(2);
    net::run_ranks(2, over(daemon->control_address()), [&](Communicator& all) {
      std::vector<std::int32_t> values(5000, 1);
      const TensorSpan tensor = TensorSpan::of(values);
      ASSERT_TRUE(all.allreduce(tensor, {}).ok());
      if (all.rank() == 0) {
        const auto deadline = std::chrono::milliseconds(leaves ? 20'000 : 500);
        const auto begin = std::chrono::steady_clock::now();
        const Status status = all.allreduce(tensor, {.deadline = deadline});
        // That a rank has left is noticed, and not only at the deadline.
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
        EXPECT_EQ(kind_of(status), leaves ? "peer lost, rank 1" : "timeout, rank 1")
            << message_of(status);
        finished.count_down();
      } else if (!leaves) {
        finished.arrive_and_wait();
      }
    });
  }
}

TEST(CommunicatorAtp, create__a_job_goes_on_without_a_switch_that_has_no_room) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.max_jobs = 1;
  const auto daemon = SwitchDaemon::start(config);
  ASSERT_TRUE(daemon.ok());
  std::latch finished(2);  // the first job keeps its place until then
  net::run_ranks(2, over((*daemon)->control_address()), [&](Communicator& all) {
    EXPECT_TRUE(all.has_switch());
    if (all.rank() == 0) {
      testing::internal::CaptureStderr();
      net::run_ranks(3, over((*daemon)->control_address()), [](Communicator& second) {
        EXPECT_FALSE(second.has_switch());
        std::vector<std::int32_t> values(10'000, second.rank() + 1);
        ASSERT_TRUE(second.allreduce(TensorSpan::of(values), {}).ok());
        EXPECT_EQ(values, std::vector<std::int32_t>(10'000, 6));
        expect_mean(second, 4000);
      });
      const std::string warned = testing::internal::GetCapturedStderr();
      EXPECT_NE(warned.find("goes on without a switch"), std::string::npos) << warned;
      EXPECT_NE(warned.find("1 jobs, as many as it may have"), std::string::npos) << warned;
      EXPECT_EQ(warned.find("without a switch"), warned.rfind("without a switch")) << warned;
    }
    finished.arrive_and_wait();
  });
}

TEST(CommunicatorAtp, create__a_switch_that_refuses_is_an_error_on_every_rank) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.token = "secret";
  const auto daemon = SwitchDaemon::start(config);
  ASSERT_TRUE(daemon.ok());
  expect_refused(over((*daemon)->control_address()), "token");
}

TEST(CommunicatorAtp, create__servers_out_of_range_are_refused) {
  for (const int servers : {-1, 3}) {
    // The call fails before it waits for other ranks.
    CommunicatorOptions options = over("", servers);
    options.store = net::free_address();
    options.size = 2;
    options.rank = 0;
    EXPECT_EQ(message_of(Communicator::create(options)),
              fmt::format("atp_servers: {}; from 0 to 2 are allowed", servers));
  }
}

TEST(CommunicatorAtp, create__a_switch_that_goes_before_it_answers_is_done_without) {
  const net::Fd listener = std::move(net::listen_tcp("127.0.0.1:0").value());
  std::thread dies([&] {
    ASSERT_TRUE(net::wait_for_socket(listener.get(), POLLIN, soon()));
    const net::Fd client(accept(listener.get(), nullptr, nullptr));
  });
  net::run_ranks(2, over(net::SocketAddress::local_of(listener.get()).to_string()),
                 [&](Communicator& all) { expect_mean(all, 4000); });
  dies.join();
}

TEST(CommunicatorAtp, create__what_rank_0_says_of_servers_and_elements_holds) {
  const auto daemon = start_switch(256);
  const std::string store = net::free_address();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options = over(daemon->control_address(), rank + 1);
      options.atp_elements = rank == 0 ? 100 : 200;
      options.rank = rank;
      options.size = 3;
      options.store = store;
      const Result<Communicator> all = Communicator::create(options);
      ASSERT_TRUE(all.ok()) << all.error().message();
      expect_mean(*all, 5000);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CommunicatorAtp, on_over__is_called_once_when_the_sum_is_there) {
  const auto daemon = start_switch(256);
  net::run_ranks(2, over(daemon->control_address()), [&](Communicator& all) {
    std::vector<std::int32_t> values(100'000, 1);
    std::atomic<int> calls = 0;
    std::atomic<std::int32_t> seen = 0;
    CallOptions options;
    options.on_over = [&] {
      seen = values.back();
      ++calls;
    };
    ASSERT_TRUE(all.allreduce(TensorSpan::of(values), options).ok());
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(seen, 2);
  });
}

CommunicatorOptions chosen(const std::string& control) {
  CommunicatorOptions options = over(control);
  options.transport = Transport::kAuto;
  return options;
}

// The packets that a switch has summed, over all its jobs.
std::uint64_t summed(const SwitchDaemon& daemon) {
  net::SwitchClient client =
      std::move(*net::SwitchClient::connect(daemon.control_address(), switch_secrets(), soon()));
  const Result<nlohmann::json> answer = client.ask({{"op", "stats"}}, soon());
  std::uint64_t count = 0;
  for (const auto& job : answer->at("jobs")) {
    count += job.at("counters").at("stored").get<std::uint64_t>();
  }
  return count;
}

TEST(CommunicatorAtp, allreduce__with_a_job_key_packets_carry_tags) {
  const ScopedJobKey key;
  const auto daemon = start_switch(4096);
  net::run_ranks(3, over(daemon->control_address()), [&](Communicator& all) {
    expect_mean(all, 5000);
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() == 0) {
      EXPECT_GT(summed(*daemon), 0U);
      net::SwitchClient client = std::move(
          *net::SwitchClient::connect(daemon->control_address(), switch_secrets(), soon()));
      const nlohmann::json job = client.ask({{"op", "list"}}, soon())->at("jobs").at(0);
      EXPECT_EQ(job.at("keyed"), true);
      EXPECT_FALSE(job.contains("key"));
    }
    ASSERT_TRUE(all.barrier({}).ok());
  });
  // Without a switch, too.
  net::run_ranks(2, over(net::free_address()), [](Communicator& all) { expect_mean(all, 4000); });
}

TEST(CommunicatorAuto, allreduce__large_ones_go_over_a_switch_that_is_there) {
  auto daemon = start_switch(4096);
  CommunicatorOptions options = chosen(daemon->control_address());
  options.topology = "single-switch:hosts=4,host=10G";
  net::run_ranks(4, options, [&](Communicator& all) {
    expect_mean(all, 10);
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() == 0) {
      EXPECT_EQ(summed(*daemon), 0U);
    }
    ASSERT_TRUE(all.barrier({}).ok());
    std::vector<float> values(600'000, 1.0F);
    ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {.scheme = "ring"}).ok());
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() == 0) {
      EXPECT_EQ(summed(*daemon), 0U);
    }
    ASSERT_TRUE(all.barrier({}).ok());
    expect_mean(all, 600'000);
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() == 0) {
      EXPECT_GT(summed(*daemon), 0U);
      daemon.reset();
    }
    expect_mean(all, 600'000);
  });
}

TEST(CommunicatorAuto, allreduce__without_a_switch_all_goes_over_tcp) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.token = "secret";
  const auto refusing = SwitchDaemon::start(config);
  ASSERT_TRUE(refusing.ok());
  for (const std::string& control : {std::string(), (*refusing)->control_address()}) {
    net::run_ranks(2, chosen(control), [&](Communicator& all) {
      expect_mean(all, 300'000);
      std::vector<float> values(1);
      const auto atp = all.allreduce(TensorSpan::of(values), {.transport = Transport::kAtp});
      ASSERT_FALSE(atp.ok());
      EXPECT_NE(atp.error().message().find("have a switch"), std::string::npos);
      // Rank 0 runs the store, so it must not leave before the other rank has joined.
      EXPECT_TRUE(all.barrier({}).ok());
    });
  }
}

TEST(CommunicatorAtp, allreduce__bad_input) {
  net::run_ranks(2, {}, [&](Communicator& all) {
    std::vector<float> values(1);
    const auto atp = all.allreduce(TensorSpan::of(values), {.transport = Transport::kAtp});
    ASSERT_FALSE(atp.ok());
    EXPECT_NE(atp.error().message().find("created with it"), std::string::npos);
    std::vector<double> wide(1);
    const auto type = all.allreduce(TensorSpan::of(wide), {.transport = Transport::kAtp});
    ASSERT_FALSE(type.ok());
    EXPECT_NE(type.error().message().find("float64"), std::string::npos);
    // Rank 0 runs the store, so it must not leave before the other rank has joined.
    EXPECT_TRUE(all.barrier({}).ok());
  });
}

}  // namespace
}  // namespace thalweg::switchd
