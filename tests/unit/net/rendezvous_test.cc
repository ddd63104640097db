// Communicators that meet through the caller's store, and the callback when an operation is over.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <thalweg/communicator.h>

#include "net/io/system.h"
#include "net/ranks.h"
#include "net/store/rendezvous_store.h"

namespace thalweg::net {
namespace {

class MapRendezvous final : public Rendezvous {
 public:
  Status set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    return ok_status();
  }
  Result<std::optional<std::string>> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) return std::optional<std::string>();
    return std::optional(found->second);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    const std::int64_t sum = (value.empty() ? 0 : std::stoll(value)) + delta;
    value = std::to_string(sum);
    return sum;
  }
  Result<bool> compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                               const std::string& value) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    const bool same = found == values_.end() ? !expected : expected && *expected == found->second;
    if (same) values_[key] = value;
    return same;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

class BrokenRendezvous final : public Rendezvous {
 public:
  Status set(const std::string& /*key*/, const std::string& /*value*/) override { return why(); }
  Result<std::optional<std::string>> get(const std::string& /*key*/) override { return why(); }
  Result<std::int64_t> add(const std::string& /*key*/, std::int64_t /*delta*/) override {
    return why();
  }
  Result<bool> compare_and_set(const std::string& /*key*/,
                               const std::optional<std::string>& /*expected*/,
                               const std::string& /*value*/) override {
    return why();
  }

 private:
  static Error why() { return Error("the caller's store has gone"); }
};

void run_by_map(int size, const RankBody& body) {
  CommunicatorOptions common;
  common.rendezvous = std::make_shared<MapRendezvous>();
  run_ranks(size, common, body);
}

TEST(rendezvous, ranks_meet_and_split_by_the_callers_store) {
  run_by_map(3, [](Communicator& all) {
    std::vector<float> values(1000, static_cast<float>(all.rank() + 1));
    const Status sum = all.allreduce(TensorSpan::of(values), {});
    ASSERT_TRUE(sum.ok()) << sum.error().message();
    EXPECT_EQ(values, std::vector<float>(1000, 6.0F));
    Result<std::optional<Communicator>> part = all.split(all.rank() == 0 ? 0 : 1, 0, {});
    ASSERT_TRUE(part.ok()) << part.error().message();
    EXPECT_EQ((*part)->size(), all.rank() == 0 ? 1 : 2);
    EXPECT_TRUE((*part)->barrier({}).ok());
    const Result<Operation> later = all.barrier_async({});
    ASSERT_TRUE(later.ok() && later->wait().ok());
  });
}

TEST(rendezvous, calls_that_differ_are_found_by_the_callers_store) {
  run_by_map(2, [](Communicator& all) {
    std::vector<float> values(8);
    // No rank sends anything, since each believes that the other is the root.
    const Status status = all.broadcast(TensorSpan::of(values), 1 - all.rank(), {});
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message().find("root 0"), std::string::npos);
    EXPECT_NE(status.error().message().find("root 1"), std::string::npos);
  });
}

TEST(rendezvous, its_error_is_ours) {
  CommunicatorOptions options;
  options.rank = 0;
  options.size = 2;
  options.store = "127.0.0.1:1";
  options.rendezvous = std::make_shared<BrokenRendezvous>();
  const Result<Communicator> failed = Communicator::create(options);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message().find("the caller's store has gone"), std::string::npos);
}

TEST(rendezvous, a_key_that_nobody_sets_is_waited_for_until_the_deadline) {
  RendezvousStore store(std::make_shared<MapRendezvous>());
  const Time started = monotonic_now();
  const Result<std::string> value = store.get("missing", started + Duration::milliseconds(30));
  ASSERT_FALSE(value.ok());
  EXPECT_NE(value.error().message().find("'missing'"), std::string::npos);
  EXPECT_GE((monotonic_now() - started).ms(), 30);
}

TEST(rendezvous, address_towards__of_this_host) {
  const Result<SocketAddress> own = address_towards("127.0.0.1:9");
  ASSERT_TRUE(own.ok()) << own.error().message();
  EXPECT_EQ(own->to_string(), "127.0.0.1:0");
}

TEST(on_over, is_called_once_for_every_end) {
  run_by_map(2, [](Communicator& all) {
    std::atomic<int> calls = 0;
    CallOptions options;
    options.on_over = [&] { ++calls; };
    std::vector<float> values(100'000, 1.0F);
    ASSERT_TRUE(all.allreduce(TensorSpan::of(values), options).ok());
    EXPECT_EQ(calls, 1);
    // It is over at once, because nothing has to be sent.
    std::vector<float> none;
    ASSERT_TRUE(all.allreduce(TensorSpan::of(none), options).ok());
    EXPECT_EQ(calls, 2);
    const Status message =
        all.rank() == 0 ? all.send(TensorView::of(values), 1, 0, options) : Status(ok_status());
    if (all.rank() == 1) {
      ASSERT_TRUE(all.recv(TensorSpan::of(values), Communicator::kAnySource, 0, options).ok());
    }
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(calls, 3);
    ASSERT_TRUE(all.barrier({}).ok());
    // It fails at its deadline.
    options.deadline = std::chrono::milliseconds(20);
    EXPECT_FALSE(all.recv(TensorSpan::of(values), 1 - all.rank(), 7, options).ok());
    EXPECT_EQ(calls, 4);
    ASSERT_TRUE(all.barrier({}).ok());
  });
}

}  // namespace
}  // namespace thalweg::net
