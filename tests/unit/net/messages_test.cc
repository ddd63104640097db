// Messages between two ranks, over loopback.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/communicator.h>

#include "base/messages.h"
#include "net/ranks.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

std::vector<std::int32_t> numbers(std::size_t count, int from) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

TEST(Messages, ring__of_every_size) {
  run_ranks(3, {}, [](Communicator& all) {
    const int next = (all.rank() + 1) % all.size();
    const int before = (all.rank() + all.size() - 1) % all.size();
    for (const std::size_t count : {0U, 1U, 7U, 1024U, 1025U, 300'000U}) {
      const auto out = numbers(count, all.rank() * 1000);
      std::vector<std::int32_t> in(count);
      const auto sent = all.send_async(TensorView::of(out), next, 7, {});
      const auto source = all.recv(TensorSpan::of(in), before, 7, {});
      ASSERT_EQ(message_of(source), "no error");
      EXPECT_EQ(*source, before);
      EXPECT_EQ(message_of(sent->wait()), "no error");
      ASSERT_EQ(in, numbers(count, before * 1000));
    }
  });
}

TEST(Messages, order__is_kept_within_a_tag_and_free_between_tags) {
  constexpr int kMany = 200;  // more than the receiver keeps with their bytes
  run_ranks(2, {}, [](Communicator& all) {
    if (all.rank() == 0) {
      std::vector<std::vector<std::int32_t>> out;
      std::vector<Operation> sends;
      for (int i = 0; i < kMany; ++i) {
        out.push_back(numbers(i % 10 == 0 ? 5000 : 3, i));
        sends.push_back(*all.send_async(TensorView::of(out.back()), 1, i % 2, {}));
      }
      ASSERT_TRUE(all.barrier({}).ok());  // messages do not keep collectives waiting
      for (const Operation& send : sends) ASSERT_EQ(message_of(send.wait()), "no error");
      return;
    }
    ASSERT_TRUE(all.barrier({}).ok());
    for (const int tag : {1, 0}) {
      for (int i = tag; i < kMany; i += 2) {
        std::vector<std::int32_t> in(i % 10 == 0 ? 5000 : 3);
        ASSERT_EQ(message_of(all.recv(TensorSpan::of(in), 0, tag, {})), "no error");
        ASSERT_EQ(in, numbers(in.size(), i));
      }
    }
  });
}

TEST(Messages, any_source__says_whose_it_was) {
  run_ranks(5, {}, [](Communicator& all) {
    if (all.rank() > 0) {
      const auto out = numbers(static_cast<std::size_t>(2000), all.rank());
      ASSERT_EQ(message_of(all.send(TensorView::of(out), 0, 3, {})), "no error");
      return;
    }
    std::vector<bool> seen(5);
    for (int i = 1; i < 5; ++i) {
      std::vector<std::int32_t> in(2000);
      const auto source = all.recv(TensorSpan::of(in), Communicator::kAnySource, 3, {});
      ASSERT_EQ(message_of(source), "no error");
      EXPECT_EQ(in, numbers(2000, *source));
      EXPECT_FALSE(seen[static_cast<std::size_t>(*source)]);
      seen[static_cast<std::size_t>(*source)] = true;
    }
  });
}

TEST(Messages, message__passes_a_collective_that_waits) {
  run_ranks(2, {}, [](Communicator& all) {
    std::vector<float> gradient(1 << 20, 1.0F);
    std::vector<std::int32_t> message = numbers(1 << 20, 5);
    if (all.rank() == 0) {
      const auto sum = all.allreduce_async(TensorSpan::of(gradient), {});
      ASSERT_EQ(message_of(all.send(TensorView::of(message), 1, 0, {})), "no error");
      ASSERT_EQ(message_of(sum->wait()), "no error");
    } else {
      std::vector<std::int32_t> in(message.size());
      ASSERT_EQ(message_of(all.recv(TensorSpan::of(in), 0, 0, {})), "no error");
      EXPECT_EQ(in, message);
      ASSERT_EQ(message_of(all.allreduce(TensorSpan::of(gradient), {})), "no error");
    }
    EXPECT_EQ(gradient.back(), 2.0F);
  });
}

TEST(Messages, self__gets_its_own) {
  for (const int size : {1, 2}) {
    run_ranks(size, {}, [](Communicator& all) {
      const auto out = numbers(100'000, 1);
      std::vector<std::int32_t> in(out.size());
      const auto sent = all.send_async(TensorView::of(out), all.rank(), 1, {});
      ASSERT_TRUE(sent.ok()) << sent.error().message();
      ASSERT_EQ(message_of(all.recv(TensorSpan::of(in), all.rank(), 1, {})), "no error");
      ASSERT_EQ(message_of(sent->wait()), "no error");
      EXPECT_EQ(in, out);
    });
  }
}

// Rank 0 has the store, where rank 1 looks for the address of rank 2 when it first sends to it.
TEST(Messages, first_one_after_rank_0_left__arrives) {
  run_ranks(3, {}, [](Communicator& all) {
    std::vector<std::int32_t> word = {all.rank()};
    ASSERT_EQ(message_of(all.barrier({})), "no error");
    if (all.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ASSERT_EQ(message_of(all.send(TensorView::of(word), 2, 1, {})), "no error");
    } else if (all.rank() == 2) {
      ASSERT_EQ(message_of(all.recv(TensorSpan::of(word), 1, 1, {})), "no error");
      EXPECT_EQ(word[0], 1);
    }
  });
}

TEST(Messages, sizes_that_differ__are_an_error_at_both_ends) {
  run_ranks(2, {}, [](Communicator& all) {
    const std::string what = "rank 1 receives 4000 float32, and rank 0 sends 5000 int32 with tag 2";
    if (all.rank() == 0) {
      const auto out = numbers(5000, 0);
      const std::string error = message_of(all.send(TensorView::of(out), 1, 2, {}));
      EXPECT_NE(error.find(what), std::string::npos) << error;
    } else {
      std::vector<float> in(4000);
      const std::string error = message_of(all.recv(TensorSpan::of(in), 0, 2, {}));
      EXPECT_NE(error.find(what), std::string::npos) << error;
    }
    // Later calls and messages are not affected.
    EXPECT_EQ(message_of(all.barrier({})), "no error");
    std::int32_t word = all.rank();
    const TensorSpan one = TensorSpan::of(std::span(&word, 1));
    if (all.rank() == 0) {
      EXPECT_EQ(message_of(all.send({one.data, 1, one.type}, 1, 2, {})), "no error");
    } else {
      EXPECT_EQ(message_of(all.recv(one, 0, 2, {})), "no error");
      EXPECT_EQ(word, 0);
    }
  });
}

TEST(Messages, deadline__of_a_receive_does_no_harm) {
  run_ranks(2, {}, [](Communicator& all) {
    std::vector<std::int32_t> in(3000);
    if (all.rank() == 0) {
      EXPECT_EQ(message_of(all.recv(TensorSpan::of(in), 1, 9, {.deadline = 100ms})),
                "recv of 3000 int32 from rank 1, tag 9: no such message came within 100 ms");
      ASSERT_TRUE(all.barrier({}).ok());
      ASSERT_EQ(message_of(all.recv(TensorSpan::of(in), 1, 9, {})), "no error");
      EXPECT_EQ(in, numbers(3000, 4));
    } else {
      ASSERT_TRUE(all.barrier({}).ok());
      ASSERT_EQ(message_of(all.send(TensorView::of(numbers(3000, 4)), 0, 9, {})), "no error");
    }
  });
}

TEST(Messages, deadline__of_a_send_that_nobody_receives) {
  run_ranks(2, {}, [](Communicator& all) {
    if (all.rank() == 0) {
      const auto out = numbers(3000, 4);
      EXPECT_EQ(message_of(all.send(TensorView::of(out), 1, 9, {.deadline = 100ms})),
                "send of 3000 int32 to rank 1, tag 9: no receive took it within 100 ms");
    }
    EXPECT_EQ(message_of(all.barrier({})), "no error");
  });
}

TEST(Messages, death__of_the_sender_fails_the_receive) {
  run_ranks(2, {}, [](Communicator& all) {
    std::vector<std::int32_t> in(1);
    if (all.rank() == 1) {
      const auto out = numbers(1, 6);
      ASSERT_TRUE(all.send(TensorView::of(out), 0, 0, {}).ok());
      return;
    }
    // Messages that it had sent before it left are received.
    ASSERT_EQ(message_of(all.recv(TensorSpan::of(in), 1, 0, {})), "no error");
    EXPECT_EQ(in.front(), 6);
    const std::string error = message_of(all.recv(TensorSpan::of(in), 1, 0, {.deadline = 20s}));
    EXPECT_NE(error.find("rank 1 is lost"), std::string::npos) << error;
  });
}

TEST(Messages, calls__refuse_what_makes_no_sense) {
  run_ranks(1, {}, [](Communicator& all) {
    std::int32_t word = 0;
    const TensorSpan one = TensorSpan::of(std::span(&word, 1));
    EXPECT_EQ(message_of(all.recv(one, 1, 0, {})), "source: 1; from 0 to 0 are allowed");
    EXPECT_EQ(message_of(all.send({&word, 1, one.type}, -1, 0, {})),
              "target: -1; from 0 to 0 are allowed");
    EXPECT_EQ(message_of(all.recv(one, 0, -1, {})), "tag: -1; 0 or more is allowed");
    EXPECT_EQ(message_of(all.recv(one, 0, 0, {.deadline = 0s})),
              "deadline: 0 ns; it must be above 0");
  });
}

TEST(Messages, first_message__comes_also_after_a_collective_that_the_caller_drove) {
  run_ranks(2, {}, [](Communicator& all) {
    std::vector<float> values(8, 1.0F);
    ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {}).ok());
    // This is long enough for the engine's thread to fall asleep. Then the receiver calls first,
    // and drives.
    std::this_thread::sleep_for(std::chrono::milliseconds(all.rank() == 0 ? 200 : 100));
    ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {}).ok());
    const CallOptions soon{.deadline = std::chrono::seconds(5)};
    if (all.rank() == 0) {
      EXPECT_TRUE(all.send(TensorView::of(values), 1, 0, soon).ok());
    } else {
      const Result<int> source = all.recv(TensorSpan::of(values), 0, 0, soon);
      EXPECT_TRUE(source.ok()) << source.error().message();
    }
    // A collective here would wake the thread that sleeps.
    std::this_thread::sleep_for(std::chrono::milliseconds(all.rank() == 0 ? 300 : 0));
  });
}

}  // namespace
}  // namespace thalweg::net
