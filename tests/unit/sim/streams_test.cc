#include "sim/hosts/streams.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "sim/tcp/transports.h"

namespace thalweg::sim {
namespace {

constexpr std::uint64_t kPiece = 1460;

struct Arrivals final : FlowWatcher {
  void on_arrived(std::uint64_t cookie, exec::Run pieces) override {
    all.emplace_back(cookie, pieces);
  }
  std::vector<std::pair<std::uint64_t, exec::Run>> all;
};

// One stream with messages that a test offers by hand.
struct OneStream {
  OneStream() { stream = streams.make(spec(1, 0), FlowId(0)); }

  FlowSpec spec(std::uint64_t bytes, std::uint64_t cookie, std::int64_t urgency = 0) {
    return {.source = Rank(0),
            .target = Rank(1),
            .bytes = bytes,
            .transport = transport.get(),
            .watcher = &arrivals,
            .cookie = cookie,
            .urgency = urgency,
            .order = cookie};
  }
  // The message's number is also its cookie and its order.
  void add(int number, std::uint64_t bytes, std::int64_t urgency = 0) {
    streams.add(FlowId(number), spec(bytes, static_cast<std::uint64_t>(number), urgency), stream,
                Time());
  }
  std::vector<int> prefix(std::uint64_t end) {
    std::vector<int> over;
    streams.on_prefix(stream, end,
                      [&](const Streams::Message& m) { over.push_back(m.id.value()); });
    return over;
  }

  std::unique_ptr<TransportFactory> transport = make_transport("newreno", {}).value();
  Arrivals arrivals;
  Streams streams;
  std::uint32_t stream = 0;
};

using Told = std::vector<std::pair<std::uint64_t, exec::Run>>;

TEST(Streams, messages__one_stream_for_each_pair_and_tag) {
  OneStream one;
  FlowSpec spec = one.spec(1, 0);
  EXPECT_EQ(one.streams.find(spec), one.stream);
  spec.tag = 1;
  EXPECT_EQ(one.streams.find(spec), std::nullopt);
  EXPECT_NE(one.streams.make(spec, FlowId(1)), one.stream);
  std::swap(spec.source, spec.target);
  EXPECT_EQ(one.streams.find(spec), std::nullopt);
}

TEST(Streams, frames__the_most_urgent_first_then_the_lowest_order) {
  OneStream one;
  one.add(1, 2 * kPiece, 5);
  one.add(2, kPiece, 5);
  one.add(3, kPiece / 2, 4);
  EXPECT_EQ(one.streams.next_frame(one.stream), 0U);
  one.streams.offer(FlowId(2), {0, 1});
  one.streams.offer(FlowId(1), {0, 1});
  one.streams.offer(FlowId(3), {0, 1});
  EXPECT_EQ(one.streams.next_frame(one.stream), kPiece / 2);
  EXPECT_EQ(one.streams.next_frame(one.stream), kPiece);
  one.streams.offer(FlowId(1), {1, 2});  // goes ahead of message 2, which waits
  EXPECT_EQ(one.streams.next_frame(one.stream), kPiece);
  EXPECT_EQ(one.streams.next_frame(one.stream), kPiece);
  EXPECT_EQ(one.streams.next_frame(one.stream), 0U);
  EXPECT_EQ(one.prefix(kPiece / 2 + 3 * kPiece), (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(one.arrivals.all, (Told{{3, {0, 1}}, {1, {0, 1}}, {1, {1, 2}}, {2, {0, 1}}}));
}

TEST(Streams, prefix__tells_of_whole_pieces_and_of_a_short_last_one) {
  OneStream one;
  one.add(1, 3 * kPiece + 100);
  one.streams.offer(FlowId(1), {0, 3});
  EXPECT_EQ(one.streams.next_frame(one.stream), 3 * kPiece);
  EXPECT_TRUE(one.prefix(kPiece - 1).empty());
  EXPECT_EQ(one.arrivals.all, Told{});
  EXPECT_TRUE(one.prefix(2 * kPiece + 1).empty());
  EXPECT_EQ(one.arrivals.all, (Told{{1, {0, 2}}}));
  EXPECT_EQ(one.streams.progress_of(FlowId(1))->received, 2 * kPiece + 1);
  one.streams.offer(FlowId(1), {3, 4});
  EXPECT_EQ(one.streams.next_frame(one.stream), 100U);
  EXPECT_EQ(one.prefix(3 * kPiece + 100), std::vector<int>{1});
  EXPECT_EQ(one.arrivals.all, (Told{{1, {0, 2}}, {1, {2, 3}}, {1, {3, 4}}}));
  EXPECT_EQ(one.streams.progress_of(FlowId(1)), std::nullopt);
  EXPECT_EQ(one.streams.offer(FlowId(1), {0, 1}), std::nullopt);
}

}  // namespace
}  // namespace thalweg::sim
