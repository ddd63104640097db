// The metrics port: clients that say nothing do not keep others from their answer.
#include "net/job/metrics.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/net_pair.h"
#include "net/ranks.h"

namespace thalweg::net {
namespace {

Fd connected(const std::string& place) {
  return std::move(connect_tcp(SocketAddress::numeric(place).value(), place,
                               monotonic_now() + Duration::milliseconds(5000))
                       .value());
}

// What the server sends until it closes, or until `limit` has passed.
std::string heard(const Fd& stream, Duration limit) {
  const Time until = monotonic_now() + limit;
  std::string text;
  std::array<char, 4096> some{};
  while (wait_for_socket(stream.get(), POLLIN, until)) {
    const ssize_t got = recv(stream.get(), some.data(), some.size(), 0);
    if (got <= 0) break;
    text.append(some.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::string scrape(const std::string& place, const std::string& headers = "") {
  const Fd stream = connected(place);
  const std::string request = "GET /metrics HTTP/1.0\r\n" + headers + "\r\n";
  EXPECT_EQ(send(stream.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  return heard(stream, Duration::milliseconds(1000));
}

TEST(Metrics, serve__silent_clients_keep_nobody_waiting) {
  const std::string place = free_address();
  const auto metrics = Metrics::of_process(place, 0, 0);
  ASSERT_TRUE(metrics.ok()) << metrics.error().message();
  std::vector<Fd> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(connected(place));
  EXPECT_TRUE(says(scrape(place), "200 OK"));
  EXPECT_TRUE(says(scrape(place), "thalweg_operations_total"));
}

TEST(ScrapeServer, serve__silent_clients_do_not_displace_one_that_gets_its_answer) {
  const std::string place = free_address();
  const std::string large(32U << 20, 'x');  // more than the buffers of two sockets
  const ScrapeServer server(std::move(listen_tcp(place).value()),
                            Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), "", [&] { return large; });
  const Fd reader = connected(place);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  ASSERT_GT(send(reader.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  ASSERT_TRUE(wait_for_socket(reader.get(), POLLIN, monotonic_now() + Duration::seconds(10)));
  std::vector<Fd> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(connected(place));
  // The first silent one is closed when the server has seen all of them.
  EXPECT_EQ(heard(silent[0], Duration::seconds(10)), "");
  EXPECT_GT(heard(reader, Duration::seconds(10)).size(), large.size());
}

TEST(Metrics, serve__one_that_asks_too_slowly_is_closed) {
  const std::string place = free_address();
  const auto metrics = Metrics::of_process(place, 0, 0);
  ASSERT_TRUE(metrics.ok()) << metrics.error().message();
  const Fd slow = connected(place);
  ASSERT_EQ(send(slow.get(), "GET", 3, MSG_NOSIGNAL), 3);
  const Time start = monotonic_now();
  EXPECT_EQ(heard(slow, Duration::milliseconds(10'000)), "");
  const double waited_ms = (monotonic_now() - start).ms();
  EXPECT_GT(waited_ms, 1000);
  EXPECT_LT(waited_ms, 5000);
}

TEST(Metrics, serve__a_request_in_pieces_and_one_for_something_else) {
  const std::string place = free_address();
  const auto metrics = Metrics::of_process(place, 0, 0);
  ASSERT_TRUE(metrics.ok()) << metrics.error().message();
  const Fd stream = connected(place);
  for (const char* part : {"GET /met", "rics HTTP/1.0\r\n", "\r\n"}) {
    ASSERT_GT(send(stream.get(), part, std::string(part).size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(says(scrape(place), "200 OK"));
  }
  EXPECT_TRUE(says(heard(stream, Duration::milliseconds(2000)), "200 OK"));
  const Fd other = connected(place);
  const std::string request = "GET /secrets HTTP/1.0\r\n\r\n";
  ASSERT_GT(send(other.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(says(heard(other, Duration::milliseconds(2000)), "404 Not Found"));
}

TEST(Metrics, serve__with_a_key_only_to_those_who_have_its_token) {
  const std::string place = free_address();
  const wire::JobKey key = wire::JobKey::from_hex(std::string(32, 'a')).value();
  const std::string token = metrics_token(key);
  EXPECT_EQ(token.size(), 32U);
  EXPECT_NE(token, std::string(32, 'a'));
  EXPECT_NE(token, metrics_token(wire::JobKey::from_hex(std::string(32, 'b')).value()));
  const auto metrics = Metrics::of_process(place, 0, 0, key);
  ASSERT_TRUE(metrics.ok()) << metrics.error().message();
  const std::string name = "Authorization: ";
  std::string close = token;
  close.back() = close.back() == '0' ? '1' : '0';
  for (const std::string& headers :
       {std::string(), name + "\r\n", name + "Bearer\r\n", name + "Bearer \r\n",
        name + "Bearer " + close + "\r\n", name + "Bearer " + token + "0\r\n",
        name + "Bearer " + token.substr(1) + "\r\n", name + "Basic " + token + "\r\n",
        name + token + "\r\n", "X-" + name + "Bearer " + token + "\r\n",
        "X: a" + name + "Bearer " + token + "\r\n"}) {
    const std::string answer = scrape(place, headers);
    EXPECT_TRUE(says(answer, "401 Unauthorized")) << headers << answer;
    EXPECT_TRUE(says(answer, "WWW-Authenticate: Bearer")) << headers;
    EXPECT_FALSE(says(answer, "thalweg_operations")) << headers;
  }
  for (const std::string& headers :
       {name + "Bearer " + token + "\r\n",
        "Host: x\r\nauthorization:   bearer  " + token + " \r\nAccept: */*\r\n"}) {
    const std::string answer = scrape(place, headers);
    EXPECT_TRUE(says(answer, "200 OK")) << headers << answer;
    EXPECT_TRUE(says(answer, "thalweg_operations")) << headers;
  }
}

}  // namespace
}  // namespace thalweg::net
