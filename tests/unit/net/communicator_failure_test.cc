// What the ranks hear when they do not call the same, when one does not call at all, and when
// strangers speak to them.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/communicator.h>

#include "base/prng.h"
#include "net/collective/engine.h"
#include "net/ranks.h"
#include "wire/frame.h"

namespace thalweg {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// What each rank's call says: "" if it succeeds.
using Words = std::vector<std::string>;
using FailingCall = std::function<Status(Communicator&)>;

struct Outcome {
  Words words;
  std::chrono::nanoseconds longest{0};
};

Outcome outcome_of(int size, const FailingCall& call) {
  Outcome outcome;
  outcome.words.resize(static_cast<std::size_t>(size));
  std::mutex mutex;
  std::latch all_called(size);  // nobody leaves before
  run_ranks(size, {}, [&](Communicator& all) {
    const auto begin = Clock::now();
    const Status status = call(all);
    {
      const std::lock_guard lock(mutex);
      outcome.longest = std::max<std::chrono::nanoseconds>(outcome.longest, Clock::now() - begin);
      outcome.words[static_cast<std::size_t>(all.rank())] =
          status.ok() ? "" : status.error().message();
    }
    all_called.arrive_and_wait();
  });
  return outcome;
}

Status wait_for(const Result<Operation>& operation) {
  return operation.ok() ? operation->wait() : Status(operation.error());
}

void expect_says(const std::string& words, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(words.find(part), std::string::npos) << "'" << part << "' is not in: " << words;
  }
}

constexpr auto kSoon = 4s;  // of a deadline of 60

struct Difference {
  const char* name;
  int size;
  FailingCall call;
  std::vector<std::string> said;  // in every rank's words
};

class Differences : public testing::TestWithParam<Difference> {};

TEST_P(Differences, call__is_reported_on_every_rank_with_both_calls_and_ranks) {
  const Difference& difference = GetParam();
  const Outcome outcome = outcome_of(difference.size, difference.call);
  EXPECT_LT(outcome.longest, kSoon);
  for (const std::string& words : outcome.words) {
    expect_says(words, {"the ranks do not call the same", "operation"});
    expect_says(words, difference.said);
  }
}

template <class T>
Status sum(Communicator& all, std::size_t elements, const CallOptions& options = {}) {
  std::vector<T> values(elements, T{1});
  return all.allreduce(TensorSpan::of(values), options);
}

INSTANTIATE_TEST_SUITE_P(
    Communicator, Differences,
    testing::Values(
        Difference{
            "size",
            2,
            [](Communicator& all) { return sum<float>(all, all.rank() == 1 ? 100 : 200); },
            {"rank 0 calls allreduce of 200 float32", "rank 1 calls allreduce of 100 float32"}},
        Difference{"type",
                   3,
                   [](Communicator& all) {
                     return all.rank() == 2 ? sum<std::int32_t>(all, 9) : sum<float>(all, 9);
                   },
                   {"rank 2 calls allreduce of 9 int32", "calls allreduce of 9 float32"}},
        Difference{"operation",
                   2,
                   [](Communicator& all) {
                     return sum<float>(all, 9,
                                       {.op = all.rank() == 0 ? ReduceOp::kMax : ReduceOp::kMean});
                   },
                   {"rank 0 calls allreduce of 9 float32, max",
                    "rank 1 calls allreduce of 9 float32, mean"}},
        Difference{"order",
                   2,
                   [](Communicator& all) {
                     std::vector<float> values(10'000);
                     const auto out = TensorSpan::of(values);
                     if (all.rank() == 0) {
                       const Status first = all.barrier({});
                       return first.ok() ? all.allreduce(out, {}) : first;
                     }
                     const Status first = all.allreduce(out, {});
                     return first.ok() ? all.barrier({}) : first;
                   },
                   {"rank 0 calls barrier", "rank 1 calls allreduce of 10000 float32"}},
        Difference{"nothing_to_send",
                   2,
                   [](Communicator& all) {
                     const Status first = sum<float>(all, all.rank() == 0 ? 7 : 0);
                     return first.ok() ? sum<float>(all, 7) : first;
                   },
                   {"rank 0 calls allreduce of 7 float32", "rank 1 calls allreduce of 0 float32"}},
        Difference{"scheme",
                   4,
                   [](Communicator& all) {
                     return sum<float>(all, 1000,
                                       {.scheme = all.rank() == 3 ? "ring" : "butterfly"});
                   },
                   {"by ring", "by butterfly"}},
        // None is connected with the one it waits for.
        Difference{"roots_of_which_each_waits_for_the_next",
                   3,
                   [](Communicator& all) {
                     std::vector<float> values(10);
                     return wait_for(all.broadcast_async(TensorSpan::of(values),
                                                         (all.rank() + 1) % all.size(), {}));
                   },
                   {"broadcast of 10 float32, root "}}),
    [](const auto& each) { return each.param.name; });

TEST(Communicator, broadcast__two_roots_that_send_are_found_out_by_the_next_call) {
  const Outcome outcome = outcome_of(2, [](Communicator& all) {
    std::vector<float> values(10);
    const Status first = wait_for(all.broadcast_async(TensorSpan::of(values), all.rank(), {}));
    return first.ok() ? all.barrier({}) : first;
  });
  EXPECT_LT(outcome.longest, kSoon);
  for (const std::string& words : outcome.words) {
    expect_says(words, {"rank 0 calls broadcast of 10 float32, root 0",
                        "rank 1 calls broadcast of 10 float32, root 1"});
  }
}

TEST(Communicator, deadline__names_the_rank_that_never_calls) {
  const CallOptions options{.deadline = 1500ms};
  for (const int lazy : {0, 1, 2}) {
    SCOPED_TRACE(lazy);
    const Outcome outcome = outcome_of(3, [&](Communicator& all) {
      // Connected, so that it can say for itself that it has not called.
      if (const Status met = all.barrier({}); !met.ok()) return met;
      if (all.rank() != lazy) return sum<float>(all, 1000, options);
      std::this_thread::sleep_for(2s);
      // What the others had sent before they gave up may be enough for this one.
      const Status late = sum<float>(all, 1000, options);
      return late.ok() ? all.barrier({}) : late;
    });
    EXPECT_LT(outcome.longest, 3500ms);
    for (int r = 0; r < 3; ++r) {
      expect_says(outcome.words[static_cast<std::size_t>(r)],
                  {fmt::format("rank {} has not called it yet", lazy), "barrier"});
    }
  }
}

TEST(Communicator, deadline__names_the_rank_that_never_connected) {
  const Outcome outcome = outcome_of(2, [](Communicator& all) {
    if (all.rank() == 1) {
      std::this_thread::sleep_for(1s);
      return ok_status();
    }
    return sum<float>(all, 10, {.deadline = 500ms});
  });
  expect_says(outcome.words[0], {"rank 1 never connected"});
}

TEST(Communicator, leaving__what_was_sent_before_is_received) {
  for (int turn = 0; turn < 5; ++turn) {
    run_ranks(2, {}, [&](Communicator& all) {
      std::vector<std::int32_t> values(1000, all.rank());
      // They are connected; then the root leaves before the other begins.
      ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {}).ok());
      if (all.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      values.assign(values.size(), all.rank());
      const Status status = all.broadcast(TensorSpan::of(values), 1, {});
      EXPECT_TRUE(status.ok()) << status.error().message();
      EXPECT_EQ(values.front(), 1);
    });
  }
}

TEST(Communicator, leaving__fails_the_others_and_names_the_rank) {
  run_ranks(3, {}, [](Communicator& all) {
    const Status met = all.barrier({});
    ASSERT_TRUE(met.ok()) << met.error().message();
    if (all.rank() == 1) return;
    const Status status = sum<float>(all, 10);
    ASSERT_FALSE(status.ok());
    expect_says(status.error().message(), {"rank 1", "left"});
  });
}

TEST(Communicator, calls__refuse_what_makes_no_sense) {
  run_ranks(1, {}, [](Communicator& all) {
    std::vector<float> values(4);
    const TensorSpan tensor = TensorSpan::of(values);
    expect_says(all.allreduce({nullptr, 4, DType::kInt8}, {}).error().message(),
                {"without memory"});
    expect_says(all.allreduce({values.data(), -1, DType::kInt8}, {}).error().message(), {"-1"});
    expect_says(all.allreduce(tensor, {.deadline = 0s}).error().message(), {"deadline"});
    expect_says(all.broadcast_async(tensor, 1, {}).error().message(), {"root: 1"});
  });
}

// An engine alone, and streams of strangers to it.
class EngineOfTwo : public testing::Test {
 protected:
  static constexpr std::uint64_t kSignature = 42;

  EngineOfTwo() { start(); }

  void start() {
    std::vector<Fd> listeners;
    listeners.push_back(std::move(listen_tcp("127.0.0.1:0").value()));
    address_ = SocketAddress::local_of(listeners.front().get()).to_string();
    EngineOptions options;
    options.size = 2;
    options.signature = kSignature;
    engine_ = Engine::make(std::move(options), std::move(listeners)).value();
  }

  [[nodiscard]] Fd stranger(std::span<const std::byte> bytes) const {
    Fd fd = std::move(connect_tcp(*SocketAddress::resolve(address_), address_,
                                  monotonic_now() + Duration::milliseconds(5000))
                          .value());
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return fd;
  }
  static Frame hello() {
    return {.kind = FrameKind::kHello, .slot = 2, .signature = kSignature, .rank = 1};
  }
  // True: the engine closes it within five seconds.
  static bool is_closed(const Fd& fd) {
    const Time until = monotonic_now() + Duration::milliseconds(5000);
    std::array<std::byte, 256> bytes;
    while (wait_for_socket(fd.get(), POLLIN, until)) {
      const ssize_t got = recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    }
    return false;
  }

  std::string address_;
  std::shared_ptr<Engine> engine_;
};

TEST_F(EngineOfTwo, listener__closes_strangers_and_lives) {
  std::vector<Frame> wrong(5, hello());
  wrong[0].signature = 43;
  wrong[1].slot = 3;
  wrong[2].rank = 0;
  wrong[3].rank = 2;
  wrong[4].kind = FrameKind::kStarted;
  for (const Frame& frame : wrong) EXPECT_TRUE(is_closed(stranger(encode_frame(frame))));
  const std::uint64_t seed = test_seed();
  Prng prng(seed);
  for (int i = 0; i < 20; ++i) {
    std::array<std::byte, 100> nonsense;
    for (std::byte& byte : nonsense) byte = static_cast<std::byte>(prng.below(256));
    EXPECT_TRUE(is_closed(stranger(nonsense)));
  }
  EXPECT_EQ(engine_->broken(), "");
}

TEST_F(EngineOfTwo, listener__many_that_say_nothing_do_not_keep_a_rank_out) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  std::vector<Fd> silent;
  for (int i = 0; i < 1100; ++i) silent.push_back(stranger({}));
  EXPECT_TRUE(is_closed(silent.front()));
  // It was taken for the rank if what it says is believed.
  const Fd rank = stranger(encode_frame(hello()));
  const auto abort = encode_frame({.kind = FrameKind::kAbort, .length = 3, .rank = 1});
  send(rank.get(), abort.data(), abort.size(), MSG_NOSIGNAL);
  send(rank.get(), "why", 3, MSG_NOSIGNAL);
  const auto until = Clock::now() + 5s;
  while (engine_->broken().empty() && Clock::now() < until) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(engine_->broken(), "why");
}

TEST_F(EngineOfTwo, stream__nonsense_ends_it_and_names_the_rank) {
  const Fd rank = stranger(encode_frame(hello()));
  const std::array<std::byte, kFrameSize> nonsense{std::byte{0xEE}};
  send(rank.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(is_closed(rank));
  expect_says(engine_->broken(), {"rank 1 is lost", "no frame"});
}

TEST_F(EngineOfTwo, stream__random_frames_never_crash_it) {
  const std::uint64_t seed = test_seed();
  Prng prng(seed);
  for (int i = 0; i < 30; ++i) {
    start();
    std::vector<std::byte> bytes;
    const auto append = [&](const auto& more) {
      bytes.insert(bytes.end(), more.begin(), more.end());
    };
    append(encode_frame(hello()));
    for (int f = 0; f < 20; ++f) {
      Frame frame;
      frame.kind = static_cast<FrameKind>(prng.below(kFrameKindCount));
      frame.operation = static_cast<std::uint32_t>(prng.below(3));
      frame.slot = static_cast<std::uint32_t>(prng.below(3));
      frame.length = static_cast<std::uint32_t>(prng.below(64));
      frame.started = static_cast<std::uint32_t>(prng.below(~std::uint32_t{0}));
      frame.rank = static_cast<std::uint32_t>(prng.below(4));
      append(encode_frame(frame));
      append(std::vector<std::byte>(frame.length, std::byte{'x'}));
    }
    const Fd fd = stranger(bytes);
    std::this_thread::sleep_for(2ms);
    engine_->leave();
    engine_.reset();
    EXPECT_TRUE(is_closed(fd));
  }
}

}  // namespace
}  // namespace thalweg
