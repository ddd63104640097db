// Recordings made by hand: their content, their replay, and files that are refused.
#include "proto/dlcp/record/replay.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/prng.h"
#include "proto/dlcp/record/record_codec.h"
#include "proto/dlcp/record/recorded_endpoint.h"

namespace thalweg::proto {
namespace {

Time at_us(std::int64_t us) { return Time::at(Duration::microseconds(us)); }

// The records of the calls that `calls` makes to an endpoint.
std::vector<std::byte> recorded(const std::function<void(RecordedEndpoint&)>& calls,
                                const DlcpOptions& options = {}) {
  std::vector<std::byte> content;
  RecordedEndpoint endpoint(options);
  endpoint.record([&](std::span<const std::byte> block) {
    content.insert(content.end(), block.begin(), block.end());
  });
  calls(endpoint);
  endpoint.end_record();
  return content;
}

TransferSpec ten_segments() {
  TransferSpec spec;
  spec.key = 5;
  spec.elements = 1000;
  spec.payload = Bytes(400);
  return spec;
}

wire::DataHeader segment(std::uint32_t index, std::uint64_t sequence) {
  wire::DataHeader header;
  header.sequence = sequence;
  header.segment = index;
  header.length = 400;
  return header;
}

void poll_all(RecordedEndpoint& endpoint) {
  wire::ControlMessage message;
  while (endpoint.poll_control(message)) {
  }
  TransferOutcome outcome;
  while (endpoint.poll_event(outcome)) {
  }
  endpoint.next_timeout();
}

// Records the receive of ten segments, where packet `odd` carries segment `as`.
std::vector<std::byte> one_receive(std::uint32_t odd = 0, std::uint32_t as = 0) {
  return recorded([&](RecordedEndpoint& endpoint) {
    ASSERT_TRUE(endpoint.start_recv(ten_segments(), at_us(10)).ok());
    poll_all(endpoint);
    for (std::uint32_t i = 0; i < 10; ++i) {
      endpoint.on_data(segment(i == odd ? as : i, i), false, at_us(20 + i));
    }
    poll_all(endpoint);
  });
}

TEST(Replay, replay_records__same_calls_same_answers) {
  const Result<ReplaySummary> summary = replay_records(one_receive());
  ASSERT_TRUE(summary.ok()) << summary.error().message();
  EXPECT_FALSE(summary->difference);
  EXPECT_TRUE(summary->complete);
  EXPECT_EQ(summary->receives, 1U);
  EXPECT_EQ(summary->succeeded, 1U);
  EXPECT_EQ(summary->packets_received, 10U);
  EXPECT_EQ(summary->counters.segments_placed, 10U);
  EXPECT_EQ(summary->messages_sent, 2U) << "ready and finish";
  EXPECT_EQ(summary->duration, Duration::microseconds(19));
}

// Segments spread over several paths, and reports of them, as a driver with many paths records.
TEST(Replay, replay_records__several_paths) {
  std::vector<std::byte> content = recorded([](RecordedEndpoint& endpoint) {
    endpoint.set_paths(4, at_us(1));
    const std::vector<SegmentTag> tags(1);
    ASSERT_TRUE(endpoint.start_send(ten_segments(), tags, at_us(2)).ok());
    endpoint.on_control(
        wire::ReadyMessage{.transfer = 3, .key = 5, .tensor_bytes = 4000, .segment_bytes = 400},
        at_us(3));
    DataBatch batch;
    for (int us = 3; us < 40; ++us) endpoint.poll_data(at_us(us), 1, batch);
    EXPECT_GT(batch.path, 0U);
    endpoint.on_data(segment(0, 0), false, at_us(50), 2);
    endpoint.on_data_end(9, 3, at_us(51));
    poll_all(endpoint);
  });
  const Result<ReplaySummary> summary = replay_records(content);
  ASSERT_TRUE(summary.ok()) << summary.error().message();
  EXPECT_FALSE(summary->difference) << summary->difference->verb;
  EXPECT_EQ(summary->counters.segments_sent, 10U);
}

// A send whose segments become available over time, and one that was never started.
TEST(Replay, replay_records__a_gradual_send) {
  const auto content = [](std::size_t end) {
    return recorded([&](RecordedEndpoint& endpoint) {
      const std::vector<SegmentTag> tags(1);
      TransferSpec spec = ten_segments();
      spec.gradual = true;
      const auto handle = endpoint.start_send(spec, tags, at_us(2));
      ASSERT_TRUE(handle.ok());
      endpoint.on_control(
          wire::ReadyMessage{.transfer = 3, .key = 5, .tensor_bytes = 4000, .segment_bytes = 400},
          at_us(3));
      DataBatch batch;
      EXPECT_FALSE(endpoint.poll_data(at_us(4), 4, batch)) << "nothing was offered";
      endpoint.offer(*handle, {7, end}, at_us(5));
      EXPECT_TRUE(endpoint.poll_data(at_us(5), 4, batch));
      EXPECT_EQ(batch.segments[0], 7U);
      poll_all(endpoint);
    });
  };
  const Result<ReplaySummary> summary = replay_records(content(10));
  ASSERT_TRUE(summary.ok()) << summary.error().message();
  EXPECT_FALSE(summary->difference) << summary->difference->verb;
  EXPECT_EQ(summary->counters.segments_sent, 3U);
  // The count of segments, 3, is the last byte of its record.
  std::vector<std::byte> longer = content(10);
  const std::vector<std::byte> shorter = content(9);
  const auto [a, b] = std::ranges::mismatch(longer, shorter);
  ASSERT_NE(a, longer.end());
  *a = std::byte{4};
  EXPECT_FALSE(replay_records(longer).ok()) << "the tensor has no eleventh segment";
}

// Two recordings differ in one input. A mix of one's input and the other's answers is caught there.
TEST(Replay, replay_records__names_the_first_answer_that_differs) {
  const std::vector<std::byte> honest = one_receive();
  const std::vector<std::byte> other = one_receive(4, 3);  // the fifth packet repeats the fourth
  const auto [a, b] = std::ranges::mismatch(honest, other);
  ASSERT_NE(a, honest.end());
  // The first byte that differs is the segment's: `mixed` has the input of `other` and the answers
  // of `honest`.
  std::vector<std::byte> mixed(honest);
  std::copy_n(other.begin(), b - other.begin() + 1, mixed.begin());
  const Result<ReplaySummary> summary = replay_records(mixed);
  ASSERT_TRUE(summary.ok()) << summary.error().message();
  ASSERT_TRUE(summary->difference);
  EXPECT_EQ(summary->difference->verb, "on_data");
  EXPECT_EQ(summary->difference->at, Duration::microseconds(14));
  EXPECT_NE(summary->difference->recorded, summary->difference->replayed);
}

TEST(Replay, replay_records__refuses_what_no_driver_may_say) {
  const auto error = [](const std::vector<std::byte>& content, const ReplayLimits& limits = {}) {
    const Result<ReplaySummary> summary = replay_records(content, limits);
    return summary.ok() ? "" : summary.error().message();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const auto back = recorded([](RecordedEndpoint& endpoint) {
    endpoint.on_timeout(at_us(10));
    endpoint.on_timeout(at_us(9));
  });
  EXPECT_TRUE(has(error(back), "record 2 cannot be read: its time is before"));
  EXPECT_TRUE(has(error(one_receive(), {.segments = 9}), "too many segments"));
  EXPECT_EQ(error(one_receive(), {.segments = 10}), "");
  DlcpOptions slow;
  slow.rate.line_rate = Bandwidth::bits_per_second(1);
  EXPECT_TRUE(has(error(recorded([](RecordedEndpoint&) {}, slow)), "line rate of 1"));
  EXPECT_TRUE(has(error({}), "options"));
  std::vector<std::byte> more = one_receive();
  more.push_back(std::byte{0});
  EXPECT_TRUE(has(error(more), "records follow the end"));
}

TEST(RecordCodec, numbers__come_back_in_one_way_only) {
  Prng prng(1);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t value = prng.next() >> prng.below(64);
    RecordEncoder out;
    auto negative = -static_cast<std::int64_t>(value >> 1);
    out.number(value);
    out.field(negative);
    out.delta(RecordDelta::kSequence, value);
    out.delta(RecordDelta::kSequence, 7);
    RecordDecoder in(out.bytes(), {});
    std::int64_t signed_back = 0;
    ASSERT_EQ(in.number(), value);
    in.field(signed_back);
    ASSERT_EQ(signed_back, negative);
    ASSERT_EQ(in.delta(RecordDelta::kSequence), value);
    ASSERT_EQ(in.delta(RecordDelta::kSequence), 7U);
    ASSERT_TRUE(in.ok());
    ASSERT_EQ(in.number(), 0U);
    ASSERT_FALSE(in.ok()) << "nothing is left";
  }
  const std::vector<std::byte> longer = {std::byte{0x81}, std::byte{0}};
  RecordDecoder in(longer, {});
  EXPECT_EQ(in.number(), 0U);
  EXPECT_FALSE(in.ok()) << "1 takes one byte";
}

TEST(RecordCodec, recording_content__blocks_come_back_and_damage_is_named) {
  const std::vector<std::byte> first(100, std::byte{1});
  const std::vector<std::byte> second(50, std::byte{2});
  std::vector<std::byte> file = recording_start();
  append_block(first, file);
  append_block(second, file);
  const auto content = recording_content(file);
  ASSERT_TRUE(content.ok());
  EXPECT_EQ(content->size(), 150U);
  file.back() ^= std::byte{4};
  EXPECT_EQ(recording_content(file).error().message(), "block 2 of the recording is damaged");
  file.pop_back();
  EXPECT_EQ(recording_content(file).error().message(), "block 2 of the recording is cut off");
  file[4] = std::byte{9};
  EXPECT_EQ(recording_content(file).error().message(), "a recording of version 9: only 5 is known");
}

}  // namespace
}  // namespace thalweg::proto
