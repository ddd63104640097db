// The C API of transfers and of the parameter server's client: what it moves, tells and refuses.
#include <thalweg/thalweg_endpoint.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "capi/codes.h"
#include "net/dlcp/test_faults.h"
#include "ps/workers.h"

namespace thalweg::capi {
namespace {

constexpr int kFloats = THALWEG_FLOAT32;
constexpr std::int64_t kElements = 35'000;  // 100 packets
constexpr double kLimit = 10;

thalweg_endpoint_options options_for(const char* listen) {
  thalweg_endpoint_options options;
  thalweg_endpoint_options_init(&options);
  options.listen = listen;
  options.job_token = 7;
  options.packet_payload = 1400;
  options.line_rate_gbps = 10;
  return options;
}

// Two endpoints in one process. `lose`: which of its packets the sender loses.
class CApiTransfers : public testing::Test {
 protected:
  void SetUp() override { connect({}); }
  void TearDown() override { disconnect(); }

  void connect(const net::LosePacket& lose) {
    const thalweg_endpoint_options listening = options_for("127.0.0.1:0");
    expect_ok(thalweg_endpoint_create(&listening, &receiver_));
    const thalweg_endpoint_options connecting = options_for(nullptr);
    {
      const net::ScopedLoss loss(lose);
      expect_ok(thalweg_endpoint_create(&connecting, &sender_));
    }
    const char* address = nullptr;
    expect_ok(thalweg_endpoint_address(receiver_, &address));
    expect_ok(thalweg_endpoint_connect(sender_, address, kLimit, &to_));
    expect_ok(thalweg_endpoint_accept(receiver_, kLimit, &from_));
  }
  void disconnect() {
    thalweg_endpoint_destroy(sender_);
    thalweg_endpoint_destroy(receiver_);
    thalweg_peer_free(to_);
    thalweg_peer_free(from_);
  }

  thalweg_endpoint* receiver_ = nullptr;
  thalweg_endpoint* sender_ = nullptr;
  thalweg_peer* to_ = nullptr;    // the receiver, as the sender sees it
  thalweg_peer* from_ = nullptr;  // the sender, as the receiver sees it
  std::vector<float> source_ = std::vector<float>(kElements, 2.5F);
  std::vector<float> target_ = std::vector<float>(kElements, 0.0F);
};

TEST_F(CApiTransfers, exact__arrive_whole_and_are_told_of) {
  thalweg_peer_recv_options receive;
  thalweg_peer_recv_options_init(&receive);
  receive.key = 3;
  std::atomic<std::int64_t> told = 0;
  receive.on_arrival = [](const thalweg_range* ranges, size_t count, void* context) {
    auto& sum = *static_cast<std::atomic<std::int64_t>*>(context);
    for (size_t i = 0; i < count; ++i) sum += ranges[i].end - ranges[i].begin;
  };
  receive.arrival_context = &told;
  thalweg_peer_send_options send;
  thalweg_peer_send_options_init(&send);
  send.key = 3;
  std::int64_t tagged = 0;
  send.tag_of = [](std::int64_t first, std::int64_t count, void* context) {
    *static_cast<std::int64_t*>(context) += count;
    return thalweg_packet_tag{.queue = first % 2 == 0 ? 2 : 5, .important = 1};
  };
  send.tag_context = &tagged;
  thalweg_transfer* receiving = nullptr;
  thalweg_transfer* sending = nullptr;
  expect_ok(thalweg_peer_recv(from_, target_.data(), kElements, kFloats, &receive, &receiving));
  expect_ok(thalweg_peer_send(to_, source_.data(), kElements, kFloats, &send, &sending));
  thalweg_report report;
  expect_ok(thalweg_transfer_wait(sending, &report));
  EXPECT_EQ(report.packets, 100);
  expect_ok(thalweg_transfer_wait(receiving, &report));
  EXPECT_EQ(report.fraction, 1.0);
  EXPECT_EQ(report.bytes, kElements * 4);
  EXPECT_EQ(report.missing, 0);
  EXPECT_GT(report.time_s, 0);
  EXPECT_EQ(source_, target_);
  EXPECT_EQ(told, kElements);
  EXPECT_EQ(tagged, kElements);
  int done = 0;
  expect_ok(thalweg_transfer_test(receiving, &done));
  EXPECT_EQ(done, 1);
  thalweg_transfer_free(receiving);
  thalweg_transfer_free(sending);
}

TEST_F(CApiTransfers, with_a_bound__say_which_elements_are_missing) {
  disconnect();
  connect([](std::uint64_t sequence) { return sequence % 50 == 7; });  // 2 of 100 packets
  thalweg_peer_recv_options receive;
  thalweg_peer_recv_options_init(&receive);
  receive.loss_bound = 0.1;
  thalweg_peer_send_options send;
  thalweg_peer_send_options_init(&send);
  send.loss_bound = 0.1;
  thalweg_transfer* receiving = nullptr;
  thalweg_transfer* sending = nullptr;
  expect_ok(thalweg_peer_recv(from_, target_.data(), kElements, kFloats, &receive, &receiving));
  expect_ok(thalweg_peer_send(to_, source_.data(), kElements, kFloats, &send, &sending));
  thalweg_report report;
  expect_ok(thalweg_transfer_wait(receiving, &report));
  EXPECT_GE(report.fraction, 0.9);
  EXPECT_GT(report.missing, 0);

  std::size_t count = 0;
  expect_ok(thalweg_transfer_missing(receiving, nullptr, 0, &count));
  ASSERT_GT(count, 0U);
  std::vector<thalweg_range> ranges(count);
  expect_ok(thalweg_transfer_missing(receiving, ranges.data(), count, &count));
  std::vector<float> expected = source_;
  std::int64_t missing = 0;
  for (const thalweg_range& range : ranges) {
    missing += range.end - range.begin;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      expected[static_cast<std::size_t>(i)] = 0;
    }
  }
  EXPECT_EQ(missing, report.missing);
  EXPECT_EQ(target_, expected);
  thalweg_transfer_free(receiving);
  thalweg_transfer_free(sending);
}

TEST_F(CApiTransfers, gradual__leave_when_offered) {
  thalweg_peer_send_options send;
  thalweg_peer_send_options_init(&send);
  send.gradual = 1;
  thalweg_transfer* receiving = nullptr;
  thalweg_transfer* sending = nullptr;
  expect_ok(thalweg_peer_recv(from_, target_.data(), kElements, kFloats, nullptr, &receiving));
  expect_ok(thalweg_peer_send(to_, source_.data(), kElements, kFloats, &send, &sending));
  expect_refused(thalweg_transfer_offer(receiving, 0, kElements), "");
  expect_refused(thalweg_transfer_offer(sending, 0, kElements + 1), "");
  int done = 1;
  expect_ok(thalweg_transfer_test(receiving, &done));
  EXPECT_EQ(done, 0);
  std::size_t count = 0;
  expect_refused(thalweg_transfer_missing(receiving, nullptr, 0, &count), "not over");
  expect_ok(thalweg_transfer_offer(sending, 0, kElements));
  expect_ok(thalweg_transfer_wait(receiving, nullptr));
  EXPECT_EQ(source_, target_);
  thalweg_transfer_free(receiving);
  thalweg_transfer_free(sending);
}

TEST_F(CApiTransfers, cancelled_or_closed__fail_on_both_ends) {
  thalweg_transfer* receiving = nullptr;
  expect_ok(thalweg_peer_recv(from_, target_.data(), kElements, kFloats, nullptr, &receiving));
  expect_ok(thalweg_transfer_cancel(receiving));
  EXPECT_EQ(thalweg_transfer_wait(receiving, nullptr), THALWEG_CANCELLED) << thalweg_last_error();
  thalweg_transfer_free(receiving);

  int connected = 0;
  expect_ok(thalweg_peer_connected(from_, &connected));
  EXPECT_EQ(connected, 1);
  const char* name = nullptr;
  expect_ok(thalweg_peer_name(from_, &name));
  EXPECT_NE(std::string(name).find("127.0.0.1"), std::string::npos);
  expect_ok(thalweg_peer_recv(from_, target_.data(), kElements, kFloats, nullptr, &receiving));
  expect_ok(thalweg_peer_close(to_));
  EXPECT_EQ(thalweg_transfer_wait(receiving, nullptr), THALWEG_PEER_LOST) << thalweg_last_error();
  thalweg_transfer_free(receiving);
}

TEST_F(CApiTransfers, counters__say_what_an_endpoint_and_a_peer_moved) {
  thalweg_transfer* receiving = nullptr;
  thalweg_transfer* sending = nullptr;
  expect_ok(thalweg_peer_recv(from_, target_.data(), kElements, kFloats, nullptr, &receiving));
  expect_ok(thalweg_peer_send(to_, source_.data(), kElements, kFloats, nullptr, &sending));
  expect_ok(thalweg_transfer_wait(receiving, nullptr));
  expect_ok(thalweg_transfer_wait(sending, nullptr));
  thalweg_counters sender;
  expect_ok(thalweg_endpoint_counters(sender_, &sender));
  EXPECT_GE(sender.packets_sent, 100U);
  EXPECT_GT(sender.send_calls, 0U);
  EXPECT_EQ(sender.packets_received, 0U);
  thalweg_counters receiver;
  expect_ok(thalweg_peer_counters(from_, &receiver));
  EXPECT_EQ(receiver.packets_received, 100U);
  EXPECT_GT(receiver.receive_calls, 0U);
  EXPECT_EQ(receiver.packets_sent, 0U);
  size_t bytes = 0;
  expect_ok(thalweg_peer_packet_payload(to_, &bytes));
  EXPECT_EQ(bytes, 1400U);
  int vanishes = 1;
  expect_ok(thalweg_peer_data_vanishes(from_, &vanishes));
  EXPECT_EQ(vanishes, 0);
  thalweg_transfer_free(receiving);
  thalweg_transfer_free(sending);
}

TEST_F(CApiTransfers, wait_for__returns_at_its_limit_and_the_transfer_goes_on) {
  thalweg_transfer* receiving = nullptr;
  thalweg_transfer* sending = nullptr;
  expect_ok(thalweg_peer_recv(from_, target_.data(), kElements, kFloats, nullptr, &receiving));
  EXPECT_EQ(thalweg_transfer_wait_for(receiving, 0.02, nullptr), THALWEG_TIMEOUT);
  expect_ok(thalweg_peer_send(to_, source_.data(), kElements, kFloats, nullptr, &sending));
  thalweg_report report;
  expect_ok(thalweg_transfer_wait_for(receiving, kLimit, &report));
  EXPECT_EQ(report.packets, 100);
  EXPECT_EQ(source_, target_);
  expect_refused(thalweg_transfer_wait_for(receiving, 0, &report), "limit_s: 0");
  expect_refused(thalweg_transfer_wait_for(nullptr, 1, &report), "transfer: a null pointer");
  expect_ok(thalweg_transfer_wait(sending, nullptr));
  thalweg_transfer_free(receiving);
  thalweg_transfer_free(sending);
}

TEST_F(CApiTransfers, data_that_vanishes__is_noticed) {
  disconnect();
  connect([](std::uint64_t) { return true; });
  thalweg_transfer* receiving = nullptr;
  thalweg_transfer* sending = nullptr;
  expect_ok(thalweg_peer_recv(from_, target_.data(), kElements, kFloats, nullptr, &receiving));
  expect_ok(thalweg_peer_send(to_, source_.data(), kElements, kFloats, nullptr, &sending));
  int vanishes = 0;
  for (int tries = 0; tries < 1'000 && vanishes == 0; ++tries) {
    EXPECT_EQ(thalweg_transfer_wait_for(receiving, 0.01, nullptr), THALWEG_TIMEOUT);
    expect_ok(thalweg_peer_data_vanishes(from_, &vanishes));
  }
  EXPECT_EQ(vanishes, 1);
  expect_ok(thalweg_transfer_cancel(receiving));
  expect_ok(thalweg_transfer_cancel(sending));
  thalweg_transfer_free(receiving);
  thalweg_transfer_free(sending);
}

TEST_F(CApiTransfers, wrong_arguments__are_refused) {
  float* data = target_.data();
  thalweg_transfer* started = nullptr;
  thalweg_peer* made = to_;
  int number = 0;
  const char* text = nullptr;
  expect_refused(thalweg_endpoint_create(nullptr, nullptr), "made: a null pointer");
  expect_refused(thalweg_endpoint_address(nullptr, &text), "endpoint: a null pointer");
  expect_refused(thalweg_endpoint_connect(nullptr, "127.0.0.1:1", 1, &made), "endpoint: a null");
  EXPECT_EQ(made, nullptr);
  expect_refused(thalweg_endpoint_connect(sender_, nullptr, 1, &made), "");
  expect_refused(thalweg_endpoint_accept(receiver_, -1, &made), "limit_s: -1");
  EXPECT_EQ(thalweg_endpoint_accept(receiver_, 0.01, &made), THALWEG_TIMEOUT);
  expect_refused(thalweg_peer_name(nullptr, &text), "peer: a null pointer");
  expect_refused(thalweg_peer_connected(to_, nullptr), "connected: a null pointer");
  expect_refused(thalweg_peer_close(nullptr), "peer: a null pointer");
  thalweg_counters counters;
  std::size_t bytes = 0;
  expect_refused(thalweg_endpoint_counters(nullptr, &counters), "endpoint: a null pointer");
  expect_refused(thalweg_endpoint_counters(sender_, nullptr), "counters: a null pointer");
  expect_refused(thalweg_peer_counters(nullptr, &counters), "peer: a null pointer");
  expect_refused(thalweg_peer_counters(to_, nullptr), "counters: a null pointer");
  expect_refused(thalweg_peer_packet_payload(nullptr, &bytes), "peer: a null pointer");
  expect_refused(thalweg_peer_packet_payload(to_, nullptr), "bytes: a null pointer");
  expect_refused(thalweg_peer_data_vanishes(nullptr, &number), "peer: a null pointer");
  expect_refused(thalweg_peer_data_vanishes(to_, nullptr), "vanishes: a null pointer");
  expect_refused(thalweg_peer_send(nullptr, data, 4, kFloats, nullptr, &started), "peer: a null");
  expect_refused(thalweg_peer_send(to_, data, -1, kFloats, nullptr, &started), "elements: -1");
  expect_refused(thalweg_peer_recv(to_, data, 4, 99, nullptr, &started), "type: 99");
  expect_refused(thalweg_peer_recv(to_, data, 4, kFloats, nullptr, nullptr), "started: a null");
  expect_refused(thalweg_transfer_wait(nullptr, nullptr), "transfer: a null pointer");
  expect_refused(thalweg_transfer_test(nullptr, &number), "transfer: a null pointer");
  expect_refused(thalweg_transfer_offer(nullptr, 0, 1), "transfer: a null pointer");
  expect_refused(thalweg_transfer_cancel(nullptr), "transfer: a null pointer");
  EXPECT_EQ(started, nullptr);
  thalweg_transfer_free(nullptr);
  thalweg_peer_free(nullptr);
  thalweg_endpoint_destroy(nullptr);
}

TEST_F(CApiTransfers, wrong_options__are_refused) {
  thalweg_transfer* started = nullptr;
  const auto refuses_send = [&](const char* word, const auto& change) {
    thalweg_peer_send_options options;
    thalweg_peer_send_options_init(&options);
    change(options);
    expect_refused(thalweg_peer_send(to_, source_.data(), 4, kFloats, &options, &started), word);
  };
  refuses_send("thalweg_peer_send_options_init()", [](auto& options) { options = {}; });
  refuses_send("timeout_s: 0", [](auto& options) { options.timeout_s = 0; });
  refuses_send("a priority of 255", [](auto& options) { options.tag.queue = -1; });
  refuses_send("a priority of 8", [](auto& options) { options.tag.queue = 8; });
  refuses_send("1", [](auto& options) { options.loss_bound = 1; });
  const auto refuses_recv = [&](const char* word, const auto& change) {
    thalweg_peer_recv_options options;
    thalweg_peer_recv_options_init(&options);
    change(options);
    expect_refused(thalweg_peer_recv(from_, target_.data(), 4, kFloats, &options, &started), word);
  };
  refuses_recv("thalweg_peer_recv_options_init()", [](auto& options) { options = {}; });
  refuses_recv("nan", [](auto& options) { options.loss_target = std::nan(""); });
  refuses_recv("a loss target of 0.5", [](auto& options) { options.loss_target = 0.5; });
  thalweg_endpoint* made = nullptr;
  const auto refuses_endpoint = [&](const char* word, const auto& change) {
    thalweg_endpoint_options options = options_for(nullptr);
    change(options);
    expect_refused(thalweg_endpoint_create(&options, &made), word);
  };
  refuses_endpoint("thalweg_endpoint_options_init()", [](auto& options) { options = {}; });
  refuses_endpoint("peer_timeout_s: -1", [](auto& options) { options.peer_timeout_s = -1; });
  refuses_endpoint("33", [](auto& options) { options.paths = 33; });
}

TEST(CApiKey, read__needs_a_file_and_room) {
  std::array<char, 33> key = {};
  expect_refused(thalweg_read_job_key("/no/such/file", key.data(), key.size()), "/no/such/file");
  expect_refused(thalweg_read_job_key(nullptr, key.data(), key.size()), "path: a null pointer");
  const std::string path = testing::TempDir() + "capi_key";
  const std::string text = "00112233445566778899aabbccddeeff";
  FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs((text + "\n").c_str(), file);
  std::fclose(file);
  expect_refused(thalweg_read_job_key(path.c_str(), key.data(), 32), "size: 32");
  expect_ok(thalweg_read_job_key(path.c_str(), key.data(), key.size()));
  EXPECT_EQ(key.data(), text);
}

TEST(CApiParameters, push_and_pull__as_the_server_sums) {
  const auto server = ps::start_server(ps::ps_config(1));
  thalweg_parameters* parameters = nullptr;
  expect_ok(thalweg_parameters_connect(server->address().c_str(), 0, kLimit, &parameters));
  std::array<float, 2> value = {1, 2};
  expect_ok(thalweg_parameters_init(parameters, "line", value.data(), 2));
  const std::array<float, 2> gradient = {0.5F, 0.25F};
  expect_ok(thalweg_parameters_push(parameters, "line", gradient.data(), 2));
  std::uint64_t steps = 0;
  expect_ok(thalweg_parameters_pull(parameters, "line", value.data(), 2, &steps));
  EXPECT_EQ(steps, 1U);
  EXPECT_EQ(value, (std::array<float, 2>{0.5F, 1.75F}));

  expect_refused(thalweg_parameters_pull(nullptr, "line", value.data(), 2, nullptr), "parameters");
  expect_refused(thalweg_parameters_push(parameters, nullptr, value.data(), 2), "name: a null");
  expect_refused(thalweg_parameters_init(parameters, "line", nullptr, 2), "values: a null");
  expect_refused(thalweg_parameters_init(parameters, "line", value.data(), -1), "elements: -1");
  thalweg_parameters_free(parameters);
  expect_refused(thalweg_parameters_connect("127.0.0.1:1", 0, 0, &parameters), "timeout_s: 0");
  EXPECT_EQ(parameters, nullptr);
  thalweg_parameters_free(nullptr);
}

}  // namespace
}  // namespace thalweg::capi
