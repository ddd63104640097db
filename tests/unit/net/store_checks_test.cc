// The store on a path that changes bytes: what changed is found and said, and no wrong value is
// ever read or stored.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/messages.h"
#include "net/corrupted_sums.h"
#include "net/corruptor.h"
#include "net/ranks.h"
#include "net/relay.h"
#include "net/store/store_client.h"
#include "net/store/store_server.h"

namespace thalweg::net {
namespace {

constexpr wire::JobToken kStoreToken = 0x5e;

Time soon_enough() { return monotonic_now() + Duration::seconds(10); }

StoreServer plain_store() { return StoreServer::start("127.0.0.1:0", kStoreToken).value(); }

// A value whose 16-bit words all differ.
std::string value_of(int number) {
  std::string value;
  for (int word = 0; word < 20'000; ++word) {
    const int both = word * 3 + number;
    value += static_cast<char>(both & 0xff);
    value += static_cast<char>(both >> 8 & 0xff);
  }
  return value;
}

struct StoreTally {
  int right = 0;
  int wrong = 0;
  std::vector<std::string> errors;
};

// Sets and reads values, over a new connection after each error.
StoreTally use_store(const std::string& address, StreamChecks checks, int calls, bool until_wrong) {
  StoreTally tally;
  for (int call = 0; call < calls && !(until_wrong && tally.wrong > 0);) {
    Result<StoreClient> client =
        StoreClient::connect(address, kStoreToken, soon_enough(), {}, checks);
    if (!client.ok()) {
      tally.errors.push_back(client.error().message());
      ++call;
      continue;
    }
    for (; call < calls; ++call) {
      const std::string key = fmt::format("key {}", call);
      const Status set = client->set(key, value_of(call), soon_enough());
      const Result<std::string> got =
          set.ok() ? client->get(key, soon_enough()) : Result<std::string>(set.error());
      if (!got.ok()) {
        tally.errors.push_back(got.error().message());
        ++call;
        break;
      }
      ++(*got == value_of(call) ? tally.right : tally.wrong);
    }
  }
  return tally;
}

TEST(StoreChecks, corruption__no_value_is_wrong) {
  for (const bool swaps : {true, false}) {
    const StoreServer server = plain_store();
    Corruptor corruptor({.swaps_words = swaps, .one_in = 40, .seed = test_seed()});
    const Relay relay(server.address(), corruptor.filters());
    const StoreTally tally =
        use_store(relay.address(), StreamChecks::kAll, corrupted_sums(40), false);
    EXPECT_EQ(tally.wrong, 0) << (swaps ? "swapped words" : "flipped bits");
    EXPECT_GT(corruptor.changed(), 0);
    EXPECT_GT(tally.right, 0);
    for (const std::string& error : tally.errors) {
      EXPECT_NE(error.find("changed on the way"), std::string::npos) << error;
    }
    EXPECT_EQ(server.counters().refused > 0, std::ranges::any_of(tally.errors, [](const auto& one) {
                return one.find("on the way to it") != std::string::npos;
              }));
  }
}

TEST(StoreChecks, corruption__values_are_wrong_without_checksums) {
  const StoreServer server = plain_store();
  Corruptor corruptor({.one_in = 10, .seed = test_seed()});
  const Relay relay(server.address(), corruptor.filters());
  EXPECT_GT(use_store(relay.address(), StreamChecks::kNone, 2000, true).wrong, 0);
}

// Flips one bit of the byte at `place` of one direction.
Relay::MakeFilter flip_at(std::size_t place, bool forth_only) {
  return [=](std::size_t /*number*/, bool forth) {
    return [=, passed = std::size_t{0}](std::vector<std::byte>& bytes) mutable {
      if (forth == forth_only && place >= passed && place < passed + bytes.size()) {
        bytes[place - passed] ^= std::byte{1} << static_cast<int>(place % 8);
      }
      passed += bytes.size();
      return true;
    };
  };
}

TEST(StoreChecks, corruption__any_byte_of_the_first_messages_is_found_at_once) {
  const StoreServer server = plain_store();
  constexpr std::size_t kBytes = 16 + 2 * (12 + 32 + 4);  // a hello and about two requests
  for (const bool forth : {true, false}) {
    for (std::size_t place = 0; place < kBytes; ++place) {
      const Relay relay(server.address(), flip_at(place, forth));
      const Time started = monotonic_now();
      Result<StoreClient> client =
          StoreClient::connect(relay.address(), kStoreToken, soon_enough(), {}, StreamChecks::kAll);
      if (client.ok()) {
        const std::string key = fmt::format("{} {}", forth, place);
        const Status set = client->set(key, "twelve bytes", soon_enough());
        const auto got = client->get(key, soon_enough());
        EXPECT_TRUE(!set.ok() || !got.ok() || *got == "twelve bytes") << place;
      }
      EXPECT_LT((monotonic_now() - started).s(), 5) << (forth ? "forth " : "back ") << place;
    }
  }
}

}  // namespace
}  // namespace thalweg::net
