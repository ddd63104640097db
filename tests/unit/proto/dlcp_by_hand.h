// Helpers for tests that drive one endpoint by hand, message by message.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "proto/dlcp/endpoint.h"

namespace thalweg::proto {

inline Time us(std::int64_t n) { return Time() + Duration::microseconds(n); }

inline DlcpOptions named(const char* peer) {
  DlcpOptions options;
  options.peer = peer;
  return options;
}

inline TransferSpec floats(std::int64_t segments, double bound = 0) {
  TransferSpec spec;
  spec.key = 42;
  spec.elements = segments * 350;
  spec.bound = *LossBound::of(bound);
  spec.cookie = 7;
  return spec;
}

template <class Message>
Message next_message(DlcpEndpoint& endpoint) {
  wire::ControlMessage message;
  if (!endpoint.poll_control(message) || !std::holds_alternative<Message>(message)) {
    ADD_FAILURE() << "no such message";
    return Message();
  }
  return std::get<Message>(message);
}

inline bool silent(DlcpEndpoint& endpoint) {
  wire::ControlMessage message;
  return !endpoint.poll_control(message);
}

inline TransferOutcome outcome_of(DlcpEndpoint& endpoint) {
  TransferOutcome outcome;
  EXPECT_TRUE(endpoint.poll_event(outcome));
  return outcome;
}

inline bool running(DlcpEndpoint& endpoint) {
  TransferOutcome outcome;
  return !endpoint.poll_event(outcome);
}

// All segments that leave by `until`, polled whenever the endpoint asks for it.
inline std::vector<std::uint32_t> segments_until(DlcpEndpoint& endpoint, Time until,
                                                 std::uint32_t most = 1000) {
  std::vector<std::uint32_t> segments;
  DataBatch batch;
  for (auto next = endpoint.next_timeout(); next && *next <= until;
       next = endpoint.next_timeout()) {
    if (!endpoint.poll_data(*next, most, batch)) break;
    for (std::uint32_t i = 0; i < batch.count; ++i) segments.push_back(batch.header(i).segment);
  }
  return segments;
}

inline wire::ReadyMessage ready_for(const TransferSpec& spec, std::uint32_t transfer) {
  DlcpEndpoint receiver(named("x"));
  EXPECT_TRUE(receiver.start_recv(spec, Time()).ok());
  auto message = next_message<wire::ReadyMessage>(receiver);
  message.transfer = transfer;
  return message;
}

inline wire::DataHeader data(std::uint32_t transfer, std::uint32_t segment, std::uint64_t sequence,
                             std::int64_t sent_us) {
  wire::DataHeader header;
  header.transfer = transfer;
  header.segment = segment;
  header.sequence = sequence;
  header.sent_us = static_cast<std::uint32_t>(sent_us);
  header.length = 1400;
  return header;
}

class DlcpEndpointTest : public testing::Test {
 protected:
  void place(std::uint32_t transfer, std::uint32_t segment, Time now) {
    const auto placement = endpoint_.on_data(
        data(transfer, segment, segment, now.since_start().ps() / 1'000'000 - 10), false, now);
    EXPECT_EQ(placement.verdict, Placement::Verdict::kPlace);
    EXPECT_EQ(placement.offset, Bytes(1400) * segment);
    EXPECT_EQ(placement.cookie, 7U);
  }

  DlcpEndpoint endpoint_{named("bob")};
};

}  // namespace thalweg::proto
