// Communicators of ranks that have meeting places, and leaving one without waiting.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/communicator.h>

#include "net/job/meeting_place.h"
#include "net/ranks.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

const std::string kTowards = "127.0.0.1:9";

struct Places {
  explicit Places(int size) {
    for (int r = 0; r < size; ++r) own.push_back(MeetingPlace::open(kTowards).value());
    renew();
  }
  void renew() {
    addresses.clear();
    for (const auto& place : own) addresses.push_back(place->address().value());
  }
  [[nodiscard]] CommunicatorOptions options(int rank) const {
    CommunicatorOptions options;
    options.place = own[static_cast<std::size_t>(rank)];
    options.places = addresses;
    options.rank = rank;
    return options;
  }
  // Runs `body` on every rank, in a thread of its own.
  void run(const RankBody& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < static_cast<int>(own.size()); ++r) {
      threads.emplace_back([&, r] {
        Result<Communicator> all = Communicator::create(options(r));
        ASSERT_TRUE(all.ok()) << all.error().message();
        body(*all);
      });
    }
    for (std::thread& thread : threads) thread.join();
    renew();
  }

  std::vector<std::shared_ptr<MeetingPlace>> own;  // [rank]
  std::vector<std::string> addresses;              // [rank]
};

void sum_up(Communicator& all, std::size_t elements) {
  std::vector<float> values(elements, static_cast<float>(all.rank() + 1));
  const Status status = all.allreduce(TensorSpan::of(values));
  ASSERT_TRUE(status.ok()) << status.error().message();
  const auto n = static_cast<float>(all.size());
  for (const float value : values) ASSERT_EQ(value, n * (n + 1) / 2);
}

TEST(MeetingPlace, ranks__meet_without_a_store) {
  for (const int size : {1, 2, 4}) {
    SCOPED_TRACE(size);
    Places places(size);
    places.run([](Communicator& all) {
      sum_up(all, 10);
      sum_up(all, 3'000'000);  // large enough for channels, which ask rank 0's store
      const int next = (all.rank() + 1) % all.size();
      const int before = (all.rank() + all.size() - 1) % all.size();
      std::vector<float> out{static_cast<float>(all.rank())};
      std::vector<float> in{-1};
      const Result<Operation> sent = all.send_async(TensorView::of(out), next, 0);
      ASSERT_TRUE(sent.ok()) << sent.error().message();
      ASSERT_TRUE(all.recv(TensorSpan::of(in), before, 0).ok());
      ASSERT_EQ(in.front(), static_cast<float>(before));
      ASSERT_TRUE(sent->wait().ok());
      const Result<std::optional<Communicator>> part = all.split(all.rank() % 2, 0);
      ASSERT_TRUE(part.ok()) << part.error().message();
      ASSERT_EQ((*part)->size(), (all.size() + 1 - all.rank() % 2) / 2);
      ASSERT_TRUE((*part)->barrier().ok());
    });
  }
}

TEST(MeetingPlace, places__serve_one_group_after_the_other) {
  Places places(3);
  for (int round = 0; round < 5; ++round) {
    const std::vector<std::string> before = places.addresses;
    places.run([](Communicator& all) { sum_up(all, 100); });
    EXPECT_NE(before, places.addresses);
  }
  // One has left, and a newcomer has the first rank.
  places.own.erase(places.own.begin() + 1);
  places.own.insert(places.own.begin(), MeetingPlace::open(kTowards).value());
  places.renew();
  places.run([](Communicator& all) { sum_up(all, 100); });
}

TEST(MeetingPlace, ranks__prove_the_job_key) {
  const std::filesystem::path path = testing::TempDir() + "/meeting_place.key";
  std::ofstream(path) << "00112233445566778899aabbccddeeff\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  setenv("THALWEG_KEY_FILE", path.c_str(), 1);
  Places places(3);
  places.run([](Communicator& all) { sum_up(all, 3'000'000); });
  unsetenv("THALWEG_KEY_FILE");
  std::filesystem::remove(path);
}

TEST(MeetingPlace, address__stays_until_a_group_takes_it) {
  Places places(2);
  const std::string address = places.addresses[1];
  EXPECT_EQ(places.own[1]->address().value(), address);
  const Result<Communicator> all = Communicator::create(places.options(1));
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_NE(places.own[1]->address().value(), address);
  const Result<Communicator> again = Communicator::create(places.options(1));
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message().find("is not this process's address now"), std::string::npos);
}

TEST(MeetingPlace, options__errors_that_help) {
  const Places places(2);
  const auto error_of = [](const CommunicatorOptions& options) {
    const Result<Communicator> all = Communicator::create(options);
    return all.ok() ? std::string() : all.error().message();
  };
  CommunicatorOptions options = places.options(2 - 1);
  options.rank = 2;
  EXPECT_NE(error_of(options).find("`rank` is 2, and from 0 to 1 are allowed"), std::string::npos);
  options.rank.reset();
  EXPECT_NE(error_of(options).find("not given"), std::string::npos);
  options = places.options(0);
  options.place.reset();
  EXPECT_NE(error_of(options).find("they need `place`"), std::string::npos);
  for (const char* text : {"", "x", "1 2", "zz 127.0.0.1:1 127.0.0.1:2"}) {
    options = places.options(0);
    options.places[1] = text;
    EXPECT_NE(error_of(options).find("is no address of a meeting place"), std::string::npos);
  }
}

TEST(MeetingPlace, a_process_that_is_gone__is_named_at_once) {
  Places places(2);
  places.own[0].reset();
  const Result<Communicator> all = Communicator::create(places.options(1));
  ASSERT_TRUE(all.ok()) << all.error().message();
  const auto began = std::chrono::steady_clock::now();
  const Status status = all->barrier({.deadline = 600s});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kPeerLost) << status.error().message();
  EXPECT_EQ(status.error().rank(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 300s);
}

TEST(Communicator, leave__ends_what_is_in_flight_and_waits_for_nothing) {
  Places places(2);
  const Result<Communicator> all = Communicator::create(places.options(0));
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_FALSE(all->broken().has_value());
  std::vector<float> values(10, 1);
  const Result<Operation> sum = all->allreduce_async(TensorSpan::of(values), {.deadline = 600s});
  std::vector<float> other(10, 1);
  const Result<Operation> message =
      all->recv_async(TensorSpan::of(other), 1, 0, {.deadline = 600s});
  ASSERT_TRUE(sum.ok() && message.ok());
  std::thread waiter([&] { EXPECT_FALSE(sum->wait().ok()); });
  std::this_thread::sleep_for(20ms);
  all->leave();
  waiter.join();
  EXPECT_TRUE(sum->done());
  EXPECT_TRUE(message->done());
  EXPECT_FALSE(message->wait().ok());
  ASSERT_TRUE(all->broken().has_value());
  EXPECT_EQ(all->broken()->code(), ErrorCode::kCancelled);
  EXPECT_FALSE(all->barrier().ok());
  all->leave();
}

}  // namespace
}  // namespace thalweg::net
