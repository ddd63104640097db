// What happens to communicators and endpoints when their process forks: the child cannot use them,
// and the parent does not notice.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/messages.h"
#include "net/net_pair.h"
#include "net/ranks.h"

// A child of fork() has none of its parent's threads, so what their stacks point to looks leaked
// there. The leak sanitizer asks this function before it looks.
static bool is_forked_child = false;
extern "C" int __lsan_is_turned_off();  // NOLINT(bugprone-reserved-identifier)
extern "C" int __lsan_is_turned_off() { return is_forked_child ? 1 : 0; }

namespace thalweg::net {
namespace {

// What the child of a fork says of itself: the errors of its calls. It ends by exit(), so that its
// static objects are destroyed as in any program, and by a signal if it takes too long.
template <class Body>
std::string said_by_child(const Body& body) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    is_forked_child = true;
    alarm(30);
    const std::string text = body();
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    std::exit(written == static_cast<ssize_t>(text.size()) ? 0
                                                           : 1);  // NOLINT(concurrency-mt-unsafe)
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> some{};
  for (ssize_t got = 0; (got = ::read(ends[0], some.data(), some.size())) > 0;) {
    text.append(some.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  EXPECT_EQ(exit_code(child), 0);
  return text;
}

CallOptions within_seconds(int limit) {
  CallOptions options;
  options.deadline = seconds(limit);
  return options;
}

// The sum over both ranks if this one contributes `own`; -1 if the call fails.
float sum_of(Communicator& all, float own) {
  std::vector<float> values(1000, own);
  const Status status = all.allreduce(TensorSpan::of(values), within_seconds(20));
  EXPECT_TRUE(status.ok()) << status.error().message();
  return status.ok() && values.front() == values.back() ? values[0] : -1;
}

// The communicator of rank 0. It is static, so that exit() destroys it in a child as well.
std::optional<Communicator>& kept() {
  static std::optional<Communicator> communicator;
  return communicator;
}

struct ForkCase {
  const char* name;
  Transport transport;
  bool shared_memory;

  friend void PrintTo(const ForkCase& c, std::ostream* out) { *out << c.name; }
};

class Fork : public testing::TestWithParam<ForkCase> {
 protected:
  // Makes a communicator of this process, rank 0, and of a child, rank 1, which runs `other`. Rank
  // 1 stays until TearDown(), because what it sent last may still be on its way.
  void start(const std::function<bool(Communicator&)>& other) {
    CommunicatorOptions options = over_dlcp();
    options.transport = GetParam().transport;
    options.shared_memory = GetParam().shared_memory;
    options.store = free_address();
    options.size = 2;
    options.rank = 1;
    other_ = fork_rank(options, [&](Communicator& all) {
      const bool right = other(all);
      std::vector<float> farewell(1);
      static_cast<void>(all.recv(TensorSpan::of(farewell), 0, 0, within_seconds(10)));
      return right;
    });
    options.rank = 0;
    Result<Communicator> made = Communicator::create(options);
    ASSERT_TRUE(made.ok()) << made.error().message();
    kept().emplace(std::move(*made));
  }
  void TearDown() override {
    if (other_ == 0) return;
    if (kept()) {
      const std::vector<float> farewell(1);
      static_cast<void>(kept()->send(TensorView::of(farewell), 1, 0, within_seconds(2)));
    }
    EXPECT_EQ(exit_code(other_), 0);
    kept().reset();
  }

 private:
  pid_t other_ = 0;
};

TEST_P(Fork, allreduce__in_a_child_is_an_error_and_the_parent_goes_on) {
  start([](Communicator& all) { return sum_of(all, 1) == 3 && sum_of(all, 10) == 30; });
  ASSERT_TRUE(kept().has_value());
  EXPECT_EQ(sum_of(*kept(), 2), 3);
  const std::string error = said_by_child([] {
    std::vector<float> values(1000, 100);
    return message_of(kept()->allreduce(TensorSpan::of(values), within_seconds(2)));
  });
  EXPECT_TRUE(says(error, "the communicator was made in process " + std::to_string(getpid())));
  EXPECT_TRUE(says(error, "make it anew after fork"));
  EXPECT_EQ(sum_of(*kept(), 20), 30);
}

TEST_P(Fork, wait__in_a_child_is_an_error_and_the_operation_goes_on) {
  start([](Communicator& all) {
    std::this_thread::sleep_for(milliseconds(500));
    return sum_of(all, 1) == 3 && sum_of(all, 10) == 30;
  });
  ASSERT_TRUE(kept().has_value());
  std::vector<float> values(1000, 2);
  const Result<Operation> operation =
      kept()->allreduce_async(TensorSpan::of(values), within_seconds(20));
  ASSERT_TRUE(operation.ok()) << operation.error().message();
  const std::string error = said_by_child([&] {
    const std::string of_wait = message_of(operation->wait());
    kept().reset();
    return of_wait + (operation->done() ? "; done" : "; not done");
  });
  EXPECT_TRUE(says(error, "the operation was made in process " + std::to_string(getpid())));
  EXPECT_TRUE(says(error, "; done"));
  const Status status = operation->wait();
  EXPECT_TRUE(status.ok()) << status.error().message();
  EXPECT_EQ(values, std::vector<float>(1000, 3));
  EXPECT_EQ(sum_of(*kept(), 20), 30);
}

TEST_P(Fork, other_calls__in_a_child_are_errors) {
  start([](Communicator& all) { return sum_of(all, 1) == 3; });
  ASSERT_TRUE(kept().has_value());
  const std::string errors = said_by_child([] {
    std::vector<float> values(1, 100);
    const CallOptions soon = within_seconds(2);
    std::string all;
    for (const std::string& error :
         {message_of(kept()->barrier(soon)), message_of(kept()->split(0, 0, soon)),
          message_of(kept()->grow(soon)), message_of(kept()->shrink(seconds(1))),
          message_of(kept()->send(TensorView::of(values), 1, 0, soon)),
          message_of(kept()->recv(TensorSpan::of(values), 1, 0, soon))}) {
      all += error.find("was made in process") == std::string::npos ? error + "; " : "refused; ";
    }
    return all;
  });
  EXPECT_EQ(errors, "refused; refused; refused; refused; refused; refused; ");
  EXPECT_EQ(sum_of(*kept(), 2), 3);
}

INSTANTIATE_TEST_SUITE_P(Transports, Fork,
                         testing::Values(ForkCase{"tcp", Transport::kTcp, false},
                                         ForkCase{"shared_memory", Transport::kTcp, true},
                                         ForkCase{"dlcp", Transport::kDlcp, true}),
                         [](const auto& one) { return one.param.name; });

TEST(ForkEndpoint, peer__in_a_child_is_refused_and_the_parent_goes_on) {
  static std::optional<NetPair> pair;
  pair.emplace(NetPair::make());
  const std::vector<float> source(5000, 1);
  const auto transfer = [&] {
    std::vector<float> target(5000);
    const auto receiving = pair->at_server.recv(TensorSpan::of(target), {});
    const auto sending = pair->at_client.send(TensorView::of(source), {});
    EXPECT_EQ(error_of(sending), "");
    EXPECT_EQ(error_of(receiving), "");
    EXPECT_EQ(target, source);
  };
  transfer();
  const std::string errors = said_by_child([&] {
    const std::string sent = message_of(pair->at_client.send(TensorView::of(source), {}));
    const std::string made = message_of(pair->client.connect(pair->server.address(), seconds(1)));
    const bool nothing = pair->server.counters().packets_received == 0 &&
                         pair->at_server.counters().packets_received == 0;
    pair->at_client.close();
    return sent + "; " + made + (nothing ? "; nothing counted" : "");
  });
  const std::string refusal = "the endpoint was made in process " + std::to_string(getpid());
  EXPECT_TRUE(says(errors, refusal));
  EXPECT_TRUE(says(errors, "; " + refusal));
  EXPECT_TRUE(says(errors, "; nothing counted"));
  transfer();
  pair.reset();
}

}  // namespace
}  // namespace thalweg::net
