// A parameter server on a path that changes bytes: what changed is found and said, and no value is
// ever wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "net/corrupted_sums.h"
#include "net/corruptor.h"
#include "net/ranks.h"
#include "net/relay.h"
#include "net/test_environment.h"
#include "ps/workers.h"
#include "wire/ps_message.h"

namespace thalweg::ps {
namespace {

constexpr std::size_t kRampElements = 30'000;

// Elements that all differ, so that no swapped word goes unnoticed; their sums are exact.
Values ramp() {
  Values values(kRampElements);
  for (std::size_t i = 0; i < kRampElements; ++i) values[i] = static_cast<float>(i + 1);
  return values;
}

struct PsTally {
  int right = 0;
  int wrong = 0;
  std::vector<std::string> errors;
};

// Whether this is the value after some number of steps of ramp().
bool is_some_step(const Values& value) {
  const Values gradient = ramp();
  const float steps = value[0] / gradient[0];
  for (std::size_t i = 0; i < kRampElements; ++i) {
    if (value[i] != steps * gradient[i]) return false;
  }
  return std::round(steps) == steps;
}

// One worker pushes and pulls, over a new connection after each error.
PsTally push_and_pull(const std::string& address, int calls, bool until_wrong) {
  PsTally tally;
  const Values gradient = ramp();
  for (int call = 0; call < calls && !(until_wrong && tally.wrong > 0); ++call) {
    const auto step = [&]() -> Status {
      THALWEG_TRY(ParameterClient client, ParameterClient::connect({.server = address}));
      Values value(kRampElements);
      THALWEG_TRY_STATUS(client.init("w", value));
      for (int i = 0; i < 10 && call < calls; ++i, ++call) {
        THALWEG_TRY_STATUS(client.push("w", gradient));
        THALWEG_TRY([[maybe_unused]] const std::uint64_t steps, client.pull("w", value));
        ++(is_some_step(value) ? tally.right : tally.wrong);
        if (tally.wrong > 0) return ok_status();
      }
      return ok_status();
    };
    if (const Status status = step(); !status.ok()) {
      tally.errors.push_back(status.error().message());
    }
  }
  return tally;
}

TEST(PsCorruption, streams__no_value_is_wrong) {
  const net::Variable always("THALWEG_CHECKSUM", "always");
  for (const bool swaps : {true, false}) {
    const auto server = start_server(ps_config(1));
    net::Corruptor corruptor({.swaps_words = swaps, .one_in = 40, .seed = net::test_seed()});
    const net::Relay relay(server->address(), corruptor.filters());
    const PsTally tally = push_and_pull(relay.address(), net::corrupted_sums(40), false);
    EXPECT_EQ(tally.wrong, 0) << (swaps ? "swapped words" : "flipped bits");
    EXPECT_GT(tally.right, 0);
    EXPECT_GT(corruptor.changed(), 0);
    std::uint64_t at_server = 0;
    for (const std::string& error : tally.errors) {
      EXPECT_NE(error.find("changed on the way"), std::string::npos) << error;
      at_server += error.find("from the worker") != std::string::npos ? 1U : 0U;
    }
    // The answer that says so may have changed, too.
    EXPECT_GE(server->counters().changed, at_server);
    EXPECT_LE(server->counters().changed, tally.errors.size());
  }
}

TEST(PsCorruption, streams__values_are_wrong_without_checksums) {
  const net::Variable never("THALWEG_CHECKSUM", "0");
  const auto server = start_server(ps_config(1));
  net::Corruptor corruptor({.one_in = 20, .seed = net::test_seed()});
  const net::Relay relay(server->address(), corruptor.filters());
  EXPECT_GT(push_and_pull(relay.address(), 2000, true).wrong, 0);
}

TEST(PsCorruption, streams__any_byte_of_the_first_messages_is_found_at_once) {
  const net::Variable always("THALWEG_CHECKSUM", "always");
  const auto server = start_server(ps_config(1));
  // The hello, and a push of two elements under a name of one byte.
  constexpr std::size_t kBytes = 2 * wire::kCheckedPsHeaderSize + 1 + 8;
  for (std::size_t place = 0; place < kBytes; ++place) {
    const net::Relay relay(server->address(), [place](std::size_t /*number*/, bool forth) {
      return [=, passed = std::size_t{0}](std::vector<std::byte>& bytes) mutable {
        if (forth && place >= passed && place < passed + bytes.size()) {
          bytes[place - passed] ^= std::byte{1} << static_cast<int>(place % 8);
        }
        passed += bytes.size();
        return true;
      };
    });
    const Time started = net::monotonic_now();
    auto client = ParameterClient::connect({.server = relay.address()});
    Values value{0, 0};
    EXPECT_FALSE(client.ok() && client->init("w", value).ok()) << place;
    EXPECT_LT((net::monotonic_now() - started).s(), 5) << place;
  }
}

TEST(PsCorruption, bad_variable__is_an_error_that_names_it) {
  const net::Variable odd("THALWEG_CHECKSUM", "yes");
  const auto server = start_server(ps_config(1));
  const auto client = ParameterClient::connect({.server = server->address()});
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.error().message().find("THALWEG_CHECKSUM: 'yes' is not allowed"),
            std::string::npos)
      << client.error().message();
}

}  // namespace
}  // namespace thalweg::ps
