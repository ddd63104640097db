// The rendezvous store over loopback.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/messages.h"
#include "net/descriptors.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/job/environment.h"
#include "net/job/interfaces.h"
#include "net/net_pair.h"
#include "net/store/store_client.h"
#include "net/store/store_server.h"

namespace thalweg::net {
namespace {

Time in_time(std::int64_t ms) { return monotonic_now() + Duration::milliseconds(ms); }

StoreServer start_store(const StoreLimits& limits = {}) {
  return StoreServer::start("127.0.0.1:0", kToken, {}, limits).value();
}

StoreClient client_of(const StoreServer& server) {
  Result<StoreClient> client = StoreClient::connect(server.address(), kToken, in_time(5000));
  EXPECT_TRUE(client.ok()) << client.error().message();
  return std::move(*client);
}

// Waits until the condition holds, for at most five seconds.
bool eventually(const std::function<bool()>& holds) {
  const Time until = in_time(5000);
  while (!holds()) {
    if (monotonic_now() >= until) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

TEST(Store, every_operation__between_two_clients) {
  const StoreServer server = start_store();
  StoreClient a = client_of(server);
  StoreClient b = client_of(server);
  const std::string value("any\0bytes", 9);
  ASSERT_TRUE(a.set("key", value, in_time(1000)).ok());
  EXPECT_EQ(b.get("key", in_time(1000)).value(), value);
  EXPECT_TRUE(b.wait("key", in_time(1000)).ok());
  EXPECT_EQ(a.add("count", 2, in_time(1000)).value(), 2);
  EXPECT_EQ(b.add("count", 40, in_time(1000)).value(), 42);
  EXPECT_TRUE(a.compare_and_set("leader", std::nullopt, "a", in_time(1000)).value());
  EXPECT_FALSE(b.compare_and_set("leader", std::nullopt, "b", in_time(1000)).value());
  EXPECT_TRUE(b.compare_and_set("leader", "a", "b", in_time(1000)).value());
  EXPECT_EQ(a.get("leader", in_time(1000)).value(), "b");
  EXPECT_TRUE(a.remove("leader", in_time(1000)).value());
  EXPECT_FALSE(b.remove("leader", in_time(1000)).value());
  EXPECT_EQ(server.counters().clients, 2U);
  EXPECT_EQ(server.counters().keys, 2U);
}

TEST(Store, get__waits_for_the_key) {
  const StoreServer server = start_store();
  StoreClient a = client_of(server);
  StoreClient b = client_of(server);
  std::thread later([&] {
    EXPECT_TRUE(eventually([&] { return server.counters().waiting == 1; }));
    EXPECT_TRUE(b.set("late", "here", in_time(1000)).ok());
  });
  EXPECT_EQ(a.get("late", in_time(5000)).value(), "here");
  later.join();
}

TEST(Store, get__a_deadline_that_passes_names_the_key_and_does_no_harm) {
  const StoreServer server = start_store();
  StoreClient a = client_of(server);
  const Time started = monotonic_now();
  const std::string message = message_of(a.get("never", in_time(50)));
  EXPECT_LT(monotonic_now() - started, Duration::milliseconds(1000));
  EXPECT_TRUE(says(message, "the store at " + server.address()));
  EXPECT_TRUE(says(message, "nobody has set 'never' within"));
  ASSERT_TRUE(a.set("never", "now", in_time(1000)).ok());
  EXPECT_EQ(a.get("never", in_time(1000)).value(), "now");
}

// A relay delays the reply, as a path does on which packets are lost and sent again.
TEST(Store, find__a_reply_may_take_longer_than_the_patience) {
  const StoreServer server = start_store();
  const Fd listener = listen_tcp("127.0.0.1:0").value();
  std::atomic<bool> over = false;
  std::thread relay([&] {
    EXPECT_TRUE(wait_for_socket(listener.get(), POLLIN, in_time(10'000)));
    const Fd client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const Fd store =
        connect_tcp(*SocketAddress::resolve(server.address()), "store", in_time(5000)).value();
    const auto pass = [](int from, int to, std::chrono::milliseconds late) {
      std::array<char, 4096> bytes{};
      const ssize_t got = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got <= 0) return;
      std::this_thread::sleep_for(late);
      EXPECT_EQ(send(to, bytes.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL), got);
    };
    while (!over) {
      pass(client.get(), store.get(), milliseconds(0));
      pass(store.get(), client.get(), milliseconds(250));
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  Result<StoreClient> client = StoreClient::connect(
      SocketAddress::local_of(listener.get()).to_string(), kToken, in_time(10'000));
  EXPECT_TRUE(client.ok()) << client.error().message();
  for (int i = 0; i < 2 && client.ok(); ++i) {
    const auto found = client->find("key", in_time(20), in_time(10'000));
    EXPECT_TRUE(found.ok()) << found.error().message();
    EXPECT_FALSE(found.ok() && *found);
  }
  over = true;
  relay.join();
}

TEST(Store, large_values__whole_and_many_at_once) {
  const StoreServer server = start_store();
  StoreClient a = client_of(server);
  const std::string value(kMaxStoreValue, 'x');
  ASSERT_TRUE(a.set("large", value, in_time(5000)).ok());
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      StoreClient client = client_of(server);
      for (int k = 0; k < 5; ++k) EXPECT_EQ(client.get("large", in_time(5000)).value(), value);
    });
  }
  for (std::thread& reader : readers) reader.join();
}

TEST(Store, bad_sizes__are_named_before_anything_is_sent) {
  const StoreServer server = start_store();
  StoreClient a = client_of(server);
  EXPECT_EQ(message_of(a.set("", "", in_time(1000))),
            "key '': has 0 bytes; from 1 to 1024 are allowed");
  EXPECT_TRUE(says(message_of(a.get(std::string(1025, 'k'), in_time(1000))), "has 1025 bytes"));
  EXPECT_TRUE(says(message_of(a.set("k", std::string(kMaxStoreValue + 1, 'v'), in_time(1000))),
                   "value of key 'k': has 1048577 bytes; at most 1048576 are allowed"));
  EXPECT_TRUE(a.set("k", "v", in_time(1000)).ok());
}

TEST(Store, full__is_said) {
  const StoreServer server = start_store({.keys = 1});
  StoreClient a = client_of(server);
  ASSERT_TRUE(a.set("one", "", in_time(1000)).ok());
  EXPECT_TRUE(says(message_of(a.set("two", "", in_time(1000))), "'two': it has no room for more"));
}

TEST(Store, add__to_what_is_no_number_is_said) {
  const StoreServer server = start_store();
  StoreClient a = client_of(server);
  ASSERT_TRUE(a.set("text", "abc", in_time(1000)).ok());
  EXPECT_TRUE(says(message_of(a.add("text", 1, in_time(1000))), "cannot add 1 to 'text'"));
}

TEST(Store, connect__either_may_start_first) {
  const std::string address = start_store().address();  // the port is free again
  std::thread client([&] {
    Result<StoreClient> late = StoreClient::connect(address, kToken, in_time(10'000));
    ASSERT_TRUE(late.ok()) << late.error().message();
    EXPECT_TRUE(late->set("k", "v", in_time(1000)).ok());
  });
  std::this_thread::sleep_for(milliseconds(100));
  const Result<StoreServer> server = StoreServer::start(address, kToken);
  ASSERT_TRUE(server.ok()) << server.error().message();
  client.join();
}

TEST(Store, connect__absent_store_is_named_at_the_deadline) {
  const std::string address = start_store().address();
  const std::string message = message_of(StoreClient::connect(address, kToken, in_time(60)));
  EXPECT_TRUE(says(message, "cannot connect to the store at " + address + " within"));
  EXPECT_TRUE(says(message, "Connection refused"));
}

TEST(Store, connect__another_jobs_token_is_refused) {
  const StoreServer server = start_store();
  const std::string message =
      message_of(StoreClient::connect(server.address(), kToken + 1, in_time(5000)));
  EXPECT_TRUE(says(message, "it refused us: the job token is not the one it holds"));
  EXPECT_EQ(server.counters().refused, 1U);
}

TEST(Store, connect__both_ends_must_hold_the_key) {
  const auto key_of = [](char digit) {
    return wire::JobKey::from_hex(std::string(32, digit)).value();
  };
  const StoreServer keyed = StoreServer::start("127.0.0.1:0", kToken, key_of('a')).value();
  const StoreServer keyless = start_store();
  const auto connect = [](const StoreServer& server, const std::optional<wire::JobKey>& key) {
    return StoreClient::connect(server.address(), kToken, in_time(5000), key);
  };
  Result<StoreClient> client = connect(keyed, key_of('a'));
  ASSERT_TRUE(client.ok()) << client.error().message();
  ASSERT_TRUE(client->set("key", "value", in_time(1000)).ok());
  EXPECT_EQ(client->get("key", in_time(1000)).value(), "value");
  EXPECT_TRUE(says(message_of(connect(keyed, {})), "it holds a job key, and we hold none"));
  EXPECT_TRUE(says(message_of(connect(keyless, key_of('a'))), "it holds none"));
  EXPECT_TRUE(says(message_of(connect(keyed, key_of('b'))), "wrong key"));
  EXPECT_EQ(keyed.counters().refused, 2U);
}

// A server answers as a store does, but holds no key.
TEST(Store, connect__a_store_that_only_claims_to_hold_the_key_is_refused) {
  const Fd listener = listen_tcp("127.0.0.1:0").value();
  const std::string address = SocketAddress::local_of(listener.get()).to_string();
  std::thread other([&] {
    ASSERT_TRUE(wait_for_socket(listener.get(), POLLIN, in_time(5000)));
    const Fd fd(accept4(listener.get(), nullptr, nullptr, 0));
    std::array<std::byte, kStoreHelloSize + wire::kSessionProofSize> claim{};
    std::ranges::copy(encode_store_hello({HelloStatus::kHello, 77}), claim.begin());
    EXPECT_GT(send(fd.get(), claim.data(), claim.size(), MSG_NOSIGNAL), 0);
    char byte = 0;
    while (recv(fd.get(), &byte, 1, 0) > 0) {
    }
  });
  EXPECT_TRUE(
      says(message_of(StoreClient::connect(address, kToken, in_time(5000),
                                           wire::JobKey::from_hex(std::string(32, 'a')).value())),
           "wrong key: it holds another job key"));
  other.join();
}

TEST(Store, connect__something_else_that_listens_is_told_apart) {
  const Fd listener = listen_tcp("127.0.0.1:0").value();
  const std::string address = SocketAddress::local_of(listener.get()).to_string();
  std::thread other([&] {
    ASSERT_TRUE(wait_for_socket(listener.get(), POLLIN, in_time(5000)));
    const Fd fd(accept4(listener.get(), nullptr, nullptr, 0));
    const std::string text = "HTTP/1.1 400 Bad Request\r\n";
    EXPECT_GT(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
    char byte = 0;
    while (recv(fd.get(), &byte, 1, 0) > 0) {
    }
  });
  EXPECT_TRUE(says(message_of(StoreClient::connect(address, kToken, in_time(5000))),
                   "its hello is wrong (kind): something else listens there"));
  other.join();
}

TEST(Store, server_gone__fails_what_waits_and_what_follows) {
  auto server = std::make_unique<StoreServer>(start_store());
  StoreClient a = client_of(*server);
  std::thread end([&] {
    EXPECT_TRUE(eventually([&] { return server->counters().waiting == 1; }));
    server.reset();
  });
  EXPECT_TRUE(says(message_of(a.get("k", in_time(10'000))), "closed the connection"));
  end.join();
  EXPECT_TRUE(says(message_of(a.set("k", "v", in_time(1000))), "closed the connection"));
}

// The socket of a client that sends whatever a test wants.
struct RawClient {
  explicit RawClient(const StoreServer& server)
      : fd(connect_tcp(SocketAddress::resolve(server.address()).value(), "", in_time(5000))
               .value()) {}
  void say(std::span<const std::byte> bytes) const {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void greet() const { say(encode_store_hello({HelloStatus::kHello, kToken})); }
  // Whether the server closes the connection.
  [[nodiscard]] bool closed() const {
    std::array<char, 4096> bytes{};
    while (wait_for_socket(fd.get(), POLLIN, in_time(5000))) {
      if (recv(fd.get(), bytes.data(), bytes.size(), 0) <= 0) return true;
    }
    return false;
  }
  Fd fd;
};

TEST(Store, clients_that_die_or_talk_nonsense__harm_nobody) {
  const StoreServer server = start_store();
  StoreClient good = client_of(server);
  std::vector<std::byte> wait;
  encode_store({.what = StoreRequest::What::kGet, .key = "k", .wait_ms = 60'000}, wait);
  {
    RawClient dies(server);
    dies.greet();
    dies.say(wait);
    EXPECT_TRUE(eventually([&] { return server.counters().waiting == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return server.counters().waiting == 0; }));
  Prng prng(7);
  for (int i = 0; i < 50; ++i) {
    RawClient noisy(server);
    std::vector<std::byte> noise(200);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(prng.below(256));
    noise[3] = std::byte{0xff};  // not a valid length of a message
    if (i % 2 == 0) noisy.greet();
    noisy.say(noise);
    EXPECT_TRUE(noisy.closed());
  }
  EXPECT_EQ(server.counters().refused, 50U);
  EXPECT_TRUE(good.set("k", "v", in_time(1000)).ok());
  EXPECT_TRUE(eventually([&] { return server.counters().clients == 1; }));
}

TEST(Store, a_client_that_reads_nothing__is_not_read_from_and_harms_nobody) {
  const StoreServer server = start_store();
  StoreClient good = client_of(server);
  ASSERT_TRUE(good.set("k", std::string(kMaxStoreValue, 'v'), in_time(5000)).ok());
  RawClient deaf(server);
  deaf.greet();
  std::vector<std::byte> get;
  encode_store({.what = StoreRequest::What::kGet, .key = "k"}, get);
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  // Asks for gigabytes, until the server takes no more requests.
  for (int sent = 0; sent < 100'000; ++sent) {
    if (send(deaf.fd.get(), get.data(), get.size(), MSG_NOSIGNAL) < 0) break;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_EQ(good.get("k", in_time(5000))->size(), kMaxStoreValue);
  EXPECT_LT(usage.ru_maxrss - before.ru_maxrss, 500'000) << "KiB";
}

TEST(Store, hundreds_of_clients_at_once__all_meet) {
  const StoreServer server = start_store();
  constexpr int kClients = 400;
  constexpr int kThreads = 8;
  std::atomic<int> met = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<StoreClient> clients;
      for (int i = t; i < kClients; i += kThreads) {
        clients.push_back(client_of(server));
        EXPECT_TRUE(clients.back().set(std::to_string(i), "here", in_time(10'000)).ok());
        EXPECT_TRUE(clients.back().add("count", 1, in_time(10'000)).ok());
      }
      for (StoreClient& client : clients) {
        met += client.get(std::to_string((met * 7) % kClients), in_time(20'000)).ok() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(met, kClients);
  StoreClient last = client_of(server);
  EXPECT_EQ(last.add("count", 0, in_time(1000)).value(), kClients);
}

// The error that the client got.
std::string connect_with_the_last_descriptor(const StoreServer& server, bool may_raise) {
  return with_the_last_descriptor(may_raise, [&] {
    return message_of(StoreClient::connect(server.address(), kToken, in_time(5000)));
  });
}

TEST(Store, open_files__the_soft_limit_is_raised_when_it_is_met) {
  EXPECT_EQ(connect_with_the_last_descriptor(start_store(), true), "no error");
}

TEST(StoreDeathTest, open_files__none_left_is_said_to_the_client) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  // This runs in a process of its own, because the limit stays.
  EXPECT_EXIT(
      {
        const StoreServer server = start_store();
        fmt::print(stderr, "{}\n", connect_with_the_last_descriptor(server, false));
        std::_Exit(server.counters().refused == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "it refused us: ");
}

TEST(Interfaces, rank_addresses__the_one_that_reaches_the_store_or_those_named) {
  const StoreServer server = start_store();
  const StoreClient client = client_of(server);
  const auto by_store = rank_addresses({}, client.local_address());
  ASSERT_TRUE(by_store.ok());
  EXPECT_EQ(by_store->at(0).to_string(), "127.0.0.1:0");
  const auto named = rank_addresses({"lo"}, client.local_address());
  ASSERT_TRUE(named.ok()) << named.error().message();
  EXPECT_EQ(named->at(0).to_string(), "127.0.0.1:0");
  const std::string message = message_of(rank_addresses({"nic9"}, client.local_address()));
  EXPECT_TRUE(says(message, "interface 'nic9' does not exist; there are: "));
  EXPECT_TRUE(says(message, "lo"));
}

}  // namespace
}  // namespace thalweg::net
