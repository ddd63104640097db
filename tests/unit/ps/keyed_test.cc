// A parameter server with a key, and somebody on the way who listens, changes and repeats.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <mutex>
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
#include "ps/workers.h"
#include "switchd/loopback_job.h"

namespace thalweg::ps {
namespace {

const wire::JobKey kKey = wire::JobKey::from_hex(std::string(32, 'd')).value();

// 8 bytes that a value has in a row, wherever it begins.
const std::string kPattern = "8.5 8.5 ";

Values pattern() {
  Values values(50'000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&values[i], kPattern.data() + 4 * (i % 2), sizeof(float));
  }
  return values;
}

PsConfig keyed_config(Transport transport = Transport::kTcp) {
  PsConfig config = ps_config(1, transport);
  config.key = kKey;
  return config;
}

Status move_pattern(const std::string& address) {
  THALWEG_TRY(ParameterClient client, ParameterClient::connect({.server = address}));
  Values values = pattern();
  THALWEG_TRY_STATUS(client.init("the name of a tensor", values));
  THALWEG_TRY_STATUS(client.push("the name of a tensor", Values(values.size(), 0.0F)));
  Values got(values.size());
  THALWEG_TRY([[maybe_unused]] const auto steps, client.pull("the name of a tensor", got));
  EXPECT_TRUE(got == values);
  return ok_status();
}

TEST(KeyedPs, eavesdropper__hears_values_and_names_only_without_a_key) {
  for (const bool keyed : {false, true}) {
    std::optional<net::KeyFile> key;
    if (keyed) key.emplace('d');
    const auto server = start_server(keyed ? keyed_config() : ps_config(1));
    net::Eavesdropper ear;
    {
      const net::Relay relay(server->address(), ear.filters());
      EXPECT_EQ(message_of(move_pattern(relay.address())), "no error");
    }
    EXPECT_GT(ear.bytes(), 400'000U);
    EXPECT_EQ(ear.count(kPattern) > 1000, !keyed);
    EXPECT_EQ(ear.count("8.5 ") > 5, !keyed);
    EXPECT_EQ(ear.count("name of a"), keyed ? 0 : 3);
  }
}

TEST(KeyedPs, push__over_each_transport) {
  const net::KeyFile key('d');
  for (const Transport transport : {Transport::kTcp, Transport::kDlcp, Transport::kAtp}) {
    SCOPED_TRACE(name_of(transport));
    const auto daemon = switchd::start_switch(4096);
    PsConfig config = keyed_config(transport);
    config.switch_address = transport == Transport::kAtp ? daemon->control_address() : "";
    config.switch_key = kKey;
    const auto server = start_server(config);
    ParameterClient client = connect(*server, 0);
    Values values(3000, 5.0F);
    expect_ok(client.init("w", values));
    expect_ok(client.push("w", Values(values.size(), 2.0F)));
    EXPECT_TRUE(client.pull("w", values).ok());
    EXPECT_EQ(values, Values(values.size(), 3.0F));
    if (transport == Transport::kAtp) {
      net::SwitchClient asks = std::move(
          *net::SwitchClient::connect(daemon->control_address(), {.key = kKey}, switchd::soon()));
      EXPECT_EQ(asks.ask({{"op", "list"}}, switchd::soon())->at("jobs").at(0).at("keyed"), true);
    }
  }
}

TEST(KeyedPs, connect__keys_that_do_not_fit_are_errors_that_say_what_to_do) {
  const auto expect_mismatch = [](const std::string& address, const char* text) {
    const auto client = ParameterClient::connect({.server = address});
    ASSERT_FALSE(client.ok());
    EXPECT_EQ(client.error().code(), ErrorCode::kMismatch);
    EXPECT_NE(client.error().message().find(text), std::string::npos) << client.error().message();
  };
  const auto keyed = start_server(keyed_config());
  const auto plain = start_server(ps_config(1));
  expect_mismatch(keyed->address(), "the server holds a key, and this worker holds none");
  const net::KeyFile other('e');
  expect_mismatch(keyed->address(), "wrong key: the key that it holds is not ours");
  expect_mismatch(plain->address(), "Start the server with --key-file");
}

// Whatever byte of either direction changes, a call gives the right result or an error.
TEST(KeyedPs, attacker__who_changes_gets_an_error) {
  const net::KeyFile key('d');
  Prng prng(net::test_seed());
  for (int i = 0; i < 30; ++i) {
    const auto server = start_server(keyed_config());
    const bool forth = i % 2 == 0;
    const std::size_t place = prng.below(i < 10 ? 100 : 200'000);
    SCOPED_TRACE(testing::Message() << "byte " << place << (forth ? " forth" : " back"));
    const net::Relay relay(server->address(), [&](std::size_t, bool way) -> net::Relay::Filter {
      return [&, way, at = std::size_t{0}](std::vector<std::byte>& bytes) mutable {
        if (way == forth && place >= at && place < at + bytes.size()) {
          bytes[place - at] ^= std::byte{0x10};
        }
        at += bytes.size();
        return true;
      };
    });
    const auto step = [&]() -> Status {
      THALWEG_TRY(ParameterClient client,
                  ParameterClient::connect(
                      {.server = relay.address(), .timeout = std::chrono::milliseconds(500)}));
      Values values = pattern();
      THALWEG_TRY_STATUS(client.init("w", values));
      THALWEG_TRY([[maybe_unused]] const auto steps, client.pull("w", values));
      return ok_status();
    };
    EXPECT_FALSE(step().ok());
    EXPECT_EQ(server->counters().pushes, 0U);
  }
}

TEST(KeyedPs, replay__of_a_whole_connection_does_nothing) {
  const net::KeyFile key('d');
  const auto server = start_server(keyed_config());
  std::mutex mutex;
  std::vector<std::byte> sent;
  {
    const net::Relay relay(server->address(), [&](std::size_t, bool forth) {
      return [&, forth](std::vector<std::byte>& bytes) {
        const std::lock_guard lock(mutex);
        if (forth) sent.insert(sent.end(), bytes.begin(), bytes.end());
        return true;
      };
    });
    EXPECT_EQ(message_of(move_pattern(relay.address())), "no error");
  }
  EXPECT_EQ(server->counters().pushes, 1U);
  const auto remote = net::SocketAddress::resolve(server->address()).value();
  const net::Fd fd = std::move(*net::connect_tcp(remote, "the server", switchd::soon()));
  const std::size_t first = std::min<std::size_t>(sent.size(), 4096);
  EXPECT_EQ(send(fd.get(), sent.data(), first, MSG_NOSIGNAL), static_cast<ssize_t>(first));
  std::size_t heard = 0;
  std::array<std::byte, 256> bytes;
  while (net::wait_for_socket(fd.get(), POLLIN, switchd::soon())) {
    const ssize_t got = recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) break;
    heard += static_cast<std::size_t>(got);
  }
  EXPECT_EQ(heard, net::kGreetingAnswerSize + net::kVerdictSize);
  EXPECT_EQ(server->counters().pushes, 1U);
}

TEST(KeyedPs, silent_clients__are_closed) {
  PsConfig config = keyed_config();
  config.greeting_time = Duration::milliseconds(200);
  const auto server = start_server(config);
  const auto remote = net::SocketAddress::resolve(server->address()).value();
  const net::Fd fd = std::move(*net::connect_tcp(remote, "the server", switchd::soon()));
  std::byte byte;
  ASSERT_TRUE(net::wait_for_socket(fd.get(), POLLIN, switchd::soon()));
  EXPECT_EQ(recv(fd.get(), &byte, 1, 0), 0);
}

}  // namespace
}  // namespace thalweg::ps
