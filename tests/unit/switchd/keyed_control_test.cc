// The control socket of a switch with a key, and somebody between it and its clients who listens,
// changes, cuts and repeats.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/messages.h"
#include "base/prng.h"
#include "net/eavesdropper.h"
#include "net/ranks.h"
#include "net/relay.h"
#include "net/test_environment.h"
#include "switchd/control_server.h"
#include "switchd/leaves.h"
#include "switchd/loopback_job.h"

namespace thalweg::switchd {
namespace {

using nlohmann::json;

const wire::JobKey kKey = wire::JobKey::from_hex(std::string(32, 'a')).value();
const wire::JobKey kOther = wire::JobKey::from_hex(std::string(32, 'b')).value();
const std::string kKeyOfJob(32, 'e');

std::unique_ptr<SwitchDaemon> start_with(const std::optional<wire::JobKey>& key,
                                         Duration greeting_time = net::kGreetingTime) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  config.token = "the token";
  config.key = key;
  config.greeting_time = greeting_time;
  Result<std::unique_ptr<SwitchDaemon>> daemon = SwitchDaemon::start(config);
  EXPECT_TRUE(daemon.ok()) << message_of(daemon);
  return std::move(*daemon);
}

Result<json> ask_at(const std::string& address, const std::optional<wire::JobKey>& key,
                    const json& request, Time until = soon()) {
  THALWEG_TRY(net::SwitchClient client,
              net::SwitchClient::connect(address, {.token = "the token", .key = key}, until));
  return client.ask(request, until);
}

json a_job() {
  return {{"op", "create"},
          {"workers", {"127.0.0.1:1", "127.0.0.1:2"}},
          {"servers", {"127.0.0.1:1"}},
          {"keyed", true},
          {"key", kKeyOfJob}};
}

std::size_t jobs_at(const SwitchDaemon& daemon, const std::optional<wire::JobKey>& key) {
  return ask_at(daemon.control_address(), key, {{"op", "list"}})->at("jobs").size();
}

TEST(KeyedControl, eavesdropper__learns_token_and_key_of_a_job_only_without_a_key) {
  for (const std::optional<wire::JobKey>& key : {std::optional<wire::JobKey>(), {kKey}}) {
    const auto daemon = start_with(key);
    net::Eavesdropper ear;
    {
      const net::Relay relay(daemon->control_address(), ear.filters());
      const Result<json> answer = ask_at(relay.address(), key, a_job());
      EXPECT_EQ(message_of(answer), "no error");
    }
    EXPECT_EQ(jobs_at(*daemon, key), 1U);
    EXPECT_GT(ear.bytes(), 200U);
    EXPECT_EQ(ear.count(kKeyOfJob), key ? 0 : 2);
    EXPECT_EQ(ear.count("the token"), key ? 0 : 1);
    EXPECT_EQ(ear.count("127.0.0.1") > 0, !key);
  }
}

TEST(KeyedControl, eavesdropper__hears_nothing_of_a_communicators_job) {
  const ScopedJobKey key;
  const auto daemon = start_switch(4096);
  net::Eavesdropper ear;
  {
    const net::Relay relay(daemon->control_address(), ear.filters());
    CommunicatorOptions options;
    options.transport = Transport::kAtp;
    options.atp_switch = relay.address();
    net::run_ranks(2, options, [](Communicator& all) {
      EXPECT_TRUE(all.has_switch());
      std::vector<std::int32_t> values(3000, all.rank() + 1);
      EXPECT_EQ(message_of(all.allreduce(TensorSpan::of(values), {.op = ReduceOp::kSum})),
                "no error");
      EXPECT_EQ(values, std::vector<std::int32_t>(3000, 3));
    });
  }
  EXPECT_GT(ear.bytes(), 300U);
  for (const char* word : {"key", "workers", "127.0.0.1", "create"}) EXPECT_EQ(ear.count(word), 0);
}

TEST(KeyedControl, ask__keys_that_do_not_fit_are_errors_that_say_what_to_do) {
  const auto keyed = start_with(kKey);
  const auto plain = start_with(std::nullopt);
  const auto expect_mismatch = [](const Result<json>& answer, const char* text) {
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code(), ErrorCode::kMismatch);
    EXPECT_NE(answer.error().message().find(text), std::string::npos) << answer.error().message();
  };
  const json list{{"op", "list"}};
  expect_mismatch(ask_at(keyed->control_address(), std::nullopt, list),
                  "the switch holds a key, and this client holds none");
  expect_mismatch(ask_at(keyed->control_address(), kOther, list),
                  "wrong key: the key that it holds is not ours");
  expect_mismatch(ask_at(plain->control_address(), kKey, list),
                  "THALWEG_SWITCH_KEY_FILE=none to use switches without a key");
  EXPECT_EQ(message_of(ask_at(keyed->control_address(), kKey, list)), "no error");
  EXPECT_EQ(message_of(ask_at(plain->control_address(), std::nullopt, list)), "no error");
}

// A communicator with a key goes on in the clear only if somebody says so.
TEST(KeyedControl, communicator__at_a_switch_without_a_key) {
  SwitchConfig config;
  config.control = "127.0.0.1:0";
  const auto daemon = std::move(*SwitchDaemon::start(config));
  const ScopedJobKey key;
  CommunicatorOptions options;
  options.transport = Transport::kAtp;
  options.atp_switch = daemon->control_address();
  expect_four_refused(options, "Start the switch with --key-file");
  const net::Variable none("THALWEG_SWITCH_KEY_FILE", "none");
  net::run_ranks(2, options, [](Communicator& all) { EXPECT_TRUE(all.has_switch()); });
}

// Keeps what a client sends, and sends it again as it was.
TEST(KeyedControl, replay__of_a_whole_connection_does_nothing) {
  const auto daemon = start_with(kKey);
  std::mutex mutex;
  std::vector<std::byte> sent;
  {
    const net::Relay relay(daemon->control_address(), [&](std::size_t, bool forth) {
      return [&, forth](std::vector<std::byte>& bytes) {
        const std::lock_guard lock(mutex);
        if (forth) sent.insert(sent.end(), bytes.begin(), bytes.end());
        return true;
      };
    });
    EXPECT_EQ(message_of(ask_at(relay.address(), kKey, a_job())), "no error");
  }
  ASSERT_EQ(jobs_at(*daemon, kKey), 1U);
  const auto remote = net::SocketAddress::resolve(daemon->control_address()).value();
  const net::Fd fd = std::move(*net::connect_tcp(remote, "the switch", soon()));
  ASSERT_EQ(send(fd.get(), sent.data(), sent.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(sent.size()));
  std::vector<std::byte> heard;
  std::array<std::byte, 256> bytes;
  while (net::wait_for_socket(fd.get(), POLLIN, soon())) {
    const ssize_t got = recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) break;
    heard.insert(heard.end(), bytes.begin(), bytes.begin() + got);
  }
  ASSERT_EQ(heard.size(), net::kGreetingAnswerSize + net::kVerdictSize);
  EXPECT_EQ(heard[net::kGreetingAnswerSize], std::byte(net::GreetingStatus::kWrongKey));
  EXPECT_EQ(jobs_at(*daemon, kKey), 1U);
}

TEST(KeyedControl, strangers__who_take_all_places_give_way_to_a_member) {
  // Both ends of every connection are in this process.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  if (files.rlim_max < 3 * ControlServer::kMaxClients) GTEST_SKIP() << "too few descriptors";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  const auto daemon = start_with(kKey);
  const net::SocketAddress address = net::SocketAddress::resolve(daemon->control_address()).value();
  std::vector<net::Fd> silent;
  for (std::size_t i = 0; i < ControlServer::kMaxClients + 8; ++i) {
    silent.push_back(net::connect_tcp(address, "the switch", soon()).value());
  }
  EXPECT_EQ(jobs_at(*daemon, kKey), 0U);
}

// Whatever byte of either direction changes, or wherever the connection is cut, the client gets an
// error, no job is made by what changed, and the switch serves the next client.
TEST(KeyedControl, attacker__who_changes_or_cuts_gets_an_error) {
  const auto daemon = start_with(kKey);
  Prng prng(net::test_seed());
  for (int i = 0; i < 60; ++i) {
    const bool forth = i % 2 == 0;
    const bool cuts = i % 3 == 0;
    // Sealed bytes begin after 48 bytes forth and after 56 back.
    const std::size_t place = prng.below(forth ? 150 : 100);
    SCOPED_TRACE(fmt::format("{} byte {} {}", cuts ? "cuts at" : "changes", place,
                             forth ? "forth" : "back"));
    const net::Relay relay(
        daemon->control_address(), [&](std::size_t, bool way) -> net::Relay::Filter {
          if (way != forth) return [](std::vector<std::byte>&) { return true; };
          return [&, at = std::size_t{0}](std::vector<std::byte>& bytes) mutable {
            const bool here = place >= at && place < at + bytes.size();
            if (here && cuts) {
              bytes.resize(place - at);
              return false;
            }
            if (here) bytes[place - at] ^= std::byte{0x10};
            at += bytes.size();
            return true;
          };
        });
    const Time until = net::monotonic_now() + Duration::milliseconds(300);
    EXPECT_FALSE(ask_at(relay.address(), kKey, a_job(), until).ok());
  }
  EXPECT_EQ(message_of(ask_at(daemon->control_address(), kKey, {{"op", "list"}})), "no error");
}

TEST(KeyedControl, garbage__is_no_request) {
  const auto daemon = start_with(kKey);
  Prng prng(net::test_seed());
  const auto remote = net::SocketAddress::resolve(daemon->control_address()).value();
  for (int i = 0; i < 50; ++i) {
    const net::Fd fd = std::move(*net::connect_tcp(remote, "the switch", soon()));
    std::string bytes(1 + prng.below(300), '\0');
    for (char& c : bytes) c = static_cast<char>(prng.below(256));
    if (i % 2 == 0) bytes.replace(0, 5, "TLWK\x01");
    EXPECT_GT(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  }
  EXPECT_EQ(jobs_at(*daemon, kKey), 0U);
}

TEST(KeyedControl, silent_clients__are_closed) {
  const auto daemon = start_with(kKey, Duration::milliseconds(200));
  const auto remote = net::SocketAddress::resolve(daemon->control_address()).value();
  for (const char* said : {"", "TL", "TLWK\x01\0\0\0"}) {
    const net::Fd fd = std::move(*net::connect_tcp(remote, "the switch", soon()));
    const std::size_t size = said[0] == '\0' ? 0 : said[2] == '\0' ? 2 : 8;
    EXPECT_EQ(send(fd.get(), said, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    // One that has proved its key in the meantime may be silent as long as it likes.
    net::SwitchClient member = std::move(*net::SwitchClient::connect(
        daemon->control_address(), {.token = "the token", .key = kKey}, soon()));
    std::array<std::byte, 64> bytes;
    ssize_t got = 1;
    while (got > 0) {
      ASSERT_TRUE(net::wait_for_socket(fd.get(), POLLIN, soon()));
      got = recv(fd.get(), bytes.data(), bytes.size(), 0);
    }
    EXPECT_EQ(got, 0);
    EXPECT_FALSE(member.ended());
    EXPECT_EQ(message_of(member.ask({{"op", "list"}}, soon())), "no error");
  }
}

}  // namespace
}  // namespace thalweg::switchd
