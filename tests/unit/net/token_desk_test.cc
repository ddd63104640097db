// The random token of a job that no launcher gives one, and who gets it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <thalweg/communicator.h>

#include "base/messages.h"
#include "net/job/environment.h"
#include "net/job/job.h"
#include "net/ranks.h"
#include "net/store/store_client.h"
#include "net/store/token_desk.h"
#include "net/test_environment.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

std::string new_name() { return fmt::format("thalweg.test.{:016x}", random_number()); }

// What anybody can know about a job: its size and its store.
Environment guessed(const std::string& store) {
  return environment_from([&](const std::string& name) -> std::optional<std::string> {
           if (name == "THALWEG_RANK") return "1";
           if (name == "THALWEG_SIZE") return "2";
           if (name == "THALWEG_STORE") return store;
           return std::nullopt;
         })
      .value();
}

Time in_5_s() { return monotonic_now() + Duration::seconds(5); }

TEST(TokenDesk, ask__the_token_as_long_as_the_desk_is_open) {
  const std::string name = new_name();
  EXPECT_EQ(TokenDesk::ask(name), std::nullopt);
  {
    const auto desk = TokenDesk::open(name, 0x0123'4567'89ab'cdef).value();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(TokenDesk::ask(name), 0x0123'4567'89ab'cdef);
  }
  EXPECT_EQ(TokenDesk::ask(name), std::nullopt);
}

TEST(TokenDesk, open__a_name_that_is_taken_is_an_error_with_the_way_out) {
  const std::string name = new_name();
  const auto desk = TokenDesk::open(name, 1).value();
  const std::string message = message_of(TokenDesk::open(name, 2));
  EXPECT_NE(message.find("THALWEG_TOKEN"), std::string::npos) << message;
  EXPECT_EQ(TokenDesk::ask(name), 1);
}

TEST(TokenDesk, ask__another_user_gets_nothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string name = new_name();
  const auto desk = TokenDesk::open(name, 1).value();
  const pid_t child = fork();
  if (child == 0) _exit(seteuid(65'534) == 0 && !TokenDesk::ask(name) ? 0 : 1);
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(TokenDesk, ask__a_desk_of_another_user_is_not_believed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string name = new_name();
  const auto desk = TokenDesk::open(name, 1).value();
  // The kernel knows the desk under the user that it had when it began to listen.
  ASSERT_EQ(seteuid(65'534), 0);
  const std::optional<wire::JobToken> token = TokenDesk::ask(name);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(token, std::nullopt);
}

// Today's defect: a stranger who knows the store's address can compute the job's token, read and
// change addresses, and end the job in his words.
TEST(JobToken, communicator__without_a_launcher_nobody_can_guess_it) {
  const std::string store = free_address();
  std::atomic<int> inside{0};
  std::atomic<bool> asked{false};
  std::thread stranger([&] {
    while (inside < 3) std::this_thread::sleep_for(1ms);
    const std::string answer =
        message_of(StoreClient::connect(store, guessed(store).token, in_5_s()));
    EXPECT_NE(answer.find("token"), std::string::npos) << answer;
    asked = true;
  });
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      auto all = Communicator::create({.rank = rank, .size = 3, .store = store});
      ++inside;
      ASSERT_EQ(message_of(all), "no error");
      while (!asked) std::this_thread::sleep_for(1ms);
      ASSERT_EQ(message_of(all->barrier({})), "no error");
    });
  }
  for (std::thread& rank : ranks) rank.join();
  stranger.join();
}

TEST(JobToken, communicator__each_job_at_a_store_has_a_new_one) {
  const std::string store = free_address();
  wire::JobToken last = 0;
  for (int round = 0; round < 3; ++round) {
    auto alone = std::make_shared<Job>();
    alone->environment = guessed(store);
    alone->environment.rank = 0;
    ASSERT_EQ(message_of(alone->meet_at_store(in_5_s())), "no error");
    Environment other = guessed(store);
    ASSERT_EQ(message_of(connect_store(other, in_5_s(), {})), "no error");
    EXPECT_EQ(other.token, alone->environment.token);
    EXPECT_NE(other.token, guessed(store).token);
    EXPECT_NE(other.token, last);
    last = other.token;
  }
}

TEST(JobToken, communicator__a_token_that_is_given_is_used) {
  const Variable given("THALWEG_TOKEN", "abc");
  const std::string store = free_address();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto all = Communicator::create({.rank = rank, .size = 2, .store = store});
      ASSERT_EQ(message_of(all), "no error");
      EXPECT_EQ(message_of(StoreClient::connect(store, 0xabc, in_5_s())), "no error");
      ASSERT_EQ(message_of(all->barrier({})), "no error");
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace thalweg::net
