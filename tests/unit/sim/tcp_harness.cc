#include "sim/tcp_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace thalweg::sim {
namespace {

constexpr double kDefaultMss = 1460;

}  // namespace

std::unique_ptr<TransportFactory> transport_or_fail(std::string_view name, const KeyValues& given) {
  MadeTransport made = make_transport(name, given);
  if (!made.ok()) {
    ADD_FAILURE() << made.error().message();
    return nullptr;
  }
  return std::move(made).value();
}

Numbers range(std::uint64_t begin, std::uint64_t end) {
  Numbers numbers;
  for (std::uint64_t i = begin; i < end; ++i) numbers.push_back(i);
  return numbers;
}

SenderByHand::SenderByHand(std::string_view transport, const KeyValues& given,
                           std::uint64_t segments, std::optional<double> window_segments)
    : factory_(transport_or_fail(transport, given)), mss_(kDefaultMss) {
  std::optional<double> window;
  if (window_segments) window = *window_segments * mss_;
  sender_ = factory_->make_sender(segments * static_cast<std::uint64_t>(mss_), window);
  sender_->start(now_);
}

std::vector<std::uint64_t> SenderByHand::send() {
  std::vector<std::uint64_t> numbers;
  while (sender_->poll_transmit(now_, last_)) {
    numbers.push_back(last_.sequence / static_cast<std::uint64_t>(mss_));
  }
  return numbers;
}

void SenderByHand::ack(std::uint64_t next, bool echo, bool answers_retransmission) {
  Acknowledgement ack;
  ack.next_expected = next * static_cast<std::uint64_t>(mss_);
  ack.answered_sent = now_ - round_trip_;
  ack.answered_retransmission = answers_retransmission;
  ack.echo = echo;
  sender_->on_ack(now_, ack);
}

void SenderByHand::sack(std::uint64_t next, const std::vector<SackBlock>& blocks) {
  const auto mss = static_cast<std::uint64_t>(mss_);
  SackBlocks sack;
  for (const SackBlock& block : blocks) {
    sack.blocks.at(sack.count++) = {block.begin * mss, block.end * mss};
  }
  Acknowledgement ack;
  ack.next_expected = next * mss;
  ack.answered_sent = now_ - round_trip_;
  ack.sack = &sack;
  sender_->on_ack(now_, ack);
}

std::vector<std::uint64_t> SenderByHand::duplicates(std::uint64_t next, int count) {
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < count; ++i) {
    ack(next);
    for (const std::uint64_t number : send()) numbers.push_back(number);
  }
  return numbers;
}

void SenderByHand::time_out() {
  now_ = *sender_->next_timeout();
  sender_->on_timeout(now_);
}

Pipe::Pipe(const TransportFactory& transport, const PipeOptions& options)
    : transport_(transport), options_(options), mss_(kDefaultMss), prng_(options.seed) {}

void Pipe::push(Event event) {
  event.order = next_order_++;
  events_.push(event);
}

Duration Pipe::random_jitter() {
  if (options_.jitter == Duration()) return {};
  return Duration::picoseconds(
      static_cast<std::int64_t>(prng_.below(static_cast<std::uint64_t>(options_.jitter.ps()))));
}

void Pipe::run(const std::vector<std::uint64_t>& flow_bytes, Time until) {
  flows_.resize(flow_bytes.size());
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    Flow& flow = flows_[i];
    flow.bytes = flow_bytes[i];
    flow.sender = transport_.make_sender(flow.bytes, std::nullopt);
    flow.receiver = std::make_unique<Receiver>(flow.bytes);
    if (keep_sent_) flow.arrived.resize(flow.bytes);
    if (keep_sent_) flow.known.resize(flow.bytes);
    flow.sender->start(now_);
    poll(i);
  }
  while (!events_.empty() && events_.top().time <= until && !testing::Test::HasFailure()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    handle(event);
  }
}

void Pipe::handle(const Event& event) {
  Flow& flow = flows_[event.flow];
  switch (event.kind) {
    case Kind::kData:
      receive(event);
      return;
    case Kind::kAck:
      take_ack(flow, event);
      break;
    case Kind::kTimer:
      // A timer that was moved in the meantime is stale.
      if (flow.sender->next_timeout() != event.time) return;
      flow.sender->on_timeout(now_);
      break;
  }
  poll(event.flow);
}

void Pipe::take_ack(Flow& flow, const Event& event) {
  Acknowledgement ack = event.ack;
  if (transport_.selective()) ack.sack = &event.sack;
  for (std::uint32_t i = 0; keep_sent_ && i < event.sack.count; ++i) {
    const SackBlock& block = event.sack.blocks[i];
    for (std::uint64_t byte = block.begin; byte < block.end; ++byte) flow.known[byte] = true;
  }
  if (ack.next_expected > flow.acked) {
    const auto bytes = static_cast<double>(ack.next_expected - flow.acked);
    flow.acked = ack.next_expected;
    flow.inflation = std::max(0.0, flow.inflation - bytes + mss_);
    if (flow.acked == flow.high) flow.inflation = 0;
  } else if (ack.next_expected == flow.acked) {
    flow.inflation += mss_;
  }
  if (!flow.sender->done()) last_done_ = now_;
  flow.sender->on_ack(now_, ack);
  EXPECT_EQ(flow.sender->done(), flow.acked == flow.bytes);
}

void Pipe::poll(std::size_t index) {
  Flow& flow = flows_[index];
  SegmentToSend segment;
  while (flow.sender->poll_transmit(now_, segment)) {
    check_segment(flow, segment);
    if (keep_sent_) sent_.push_back({now_, index, segment});
    transmit(index, segment);
    if (testing::Test::HasFailure()) return;
  }
  const std::optional<Time> timeout = flow.sender->next_timeout();
  if (flow.sender->done()) {
    EXPECT_FALSE(timeout.has_value());
    return;
  }
  // A sender that has nothing to send and is not done must wait for an acknowledgement or the
  // timer.
  EXPECT_TRUE(timeout.has_value()) << "nothing would ever wake this flow";
  if (!timeout) return;
  EXPECT_GE(*timeout, now_);
  Event event;
  event.time = *timeout;
  event.flow = index;
  push(event);
}

void Pipe::check_segment(Flow& flow, const SegmentToSend& segment) {
  const std::uint64_t end = segment.sequence + segment.payload;
  EXPECT_GT(segment.payload, 0U);
  EXPECT_LE(segment.payload, static_cast<std::uint32_t>(mss_));
  EXPECT_LE(end, flow.bytes);
  EXPECT_GE(segment.sequence, flow.acked);
  EXPECT_EQ(segment.retransmission, segment.sequence < flow.high);
  if (end > flow.high) {
    EXPECT_EQ(segment.sequence, std::max(flow.high, flow.acked)) << "skipped a byte";
    const auto outstanding = static_cast<double>(end - flow.acked);
    const double allowed = std::max(flow.sender->window(), mss_) + flow.inflation;
    // With a scoreboard, lost segments make room too.
    if (!transport_.selective()) {
      EXPECT_LE(outstanding, allowed + 1e-6);
    }
  }
  if (keep_sent_) {
    EXPECT_FALSE(flow.known[segment.sequence]) << "the sender knew that it arrived";
  }
  flow.high = std::max(flow.high, end);
}

void Pipe::transmit(std::size_t index, SegmentToSend segment) {
  while (!queue_.empty() && queue_.front().first <= now_) {
    queued_ -= queue_.front().second;
    queue_.pop_front();
  }
  const std::uint64_t size = segment.payload + transport_.header_bytes();
  const std::uint64_t number = sent_count_++;
  const bool full = options_.buffer > Bytes(0) &&
                    queued_ + size > static_cast<std::uint64_t>(options_.buffer.count());
  if (full || (options_.lose && options_.lose(segment, number)) || prng_.chance(options_.loss)) {
    ++drops_;
    return;
  }
  if (options_.mark_above > Bytes(0) && segment.ecn == Ecn::kCapable &&
      queued_ > static_cast<std::uint64_t>(options_.mark_above.count())) {
    segment.ecn = Ecn::kCongested;
  }
  busy_until_ = std::max(busy_until_, now_) +
                options_.rate.transmission_time(Bytes(static_cast<std::int64_t>(size)));
  queue_.emplace_back(busy_until_, size);
  queued_ += size;
  if (on_queue_) on_queue_(now_, queued_);

  Event event;
  event.kind = Kind::kData;
  event.flow = index;
  event.segment = segment;
  event.sent = now_;
  const int copies = prng_.chance(options_.duplication) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    event.time = busy_until_ + options_.delay + random_jitter();
    push(event);
  }
}

void Pipe::receive(const Event& event) {
  Flow& flow = flows_[event.flow];
  const SegmentToSend& segment = event.segment;
  const std::uint64_t expected = flow.receiver->on_data(segment.sequence, segment.payload);
  if (keep_sent_) {
    for (std::uint64_t i = 0; i < segment.payload; ++i) {
      const std::size_t byte = segment.sequence + i;
      if (!flow.arrived[byte]) ++delivered_;
      flow.arrived[byte] = true;
    }
    std::uint64_t model = flow.expected;
    while (model < flow.bytes && flow.arrived[model]) ++model;
    EXPECT_EQ(expected, model);
  } else {
    delivered_ += expected - flow.expected;
  }
  flow.expected = expected;
  EXPECT_EQ(flow.receiver->complete(), expected == flow.bytes);

  Event answer;
  answer.kind = Kind::kAck;
  answer.flow = event.flow;
  answer.ack.next_expected = expected;
  answer.ack.answered_sent = event.sent;
  answer.ack.answered_retransmission = segment.retransmission;
  answer.ack.echo = segment.ecn == Ecn::kCongested;
  if (transport_.selective()) {
    answer.sack = flow.receiver->sack(segment.sequence, segment.payload);
    check_sack(flow, segment, answer.sack);
  }
  if (prng_.chance(options_.ack_loss)) return;
  const int copies = prng_.chance(options_.duplication) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    answer.time = now_ + options_.delay + random_jitter();
    push(answer);
  }
}

// Each block is one whole stretch of what has arrived beyond the next byte expected, and the first
// one holds the segment that is answered.
void Pipe::check_sack(const Flow& flow, const SegmentToSend& segment, const SackBlocks& sack) {
  if (!keep_sent_) return;
  if (segment.sequence >= flow.expected) {
    ASSERT_GT(sack.count, 0U);
    EXPECT_LE(sack.blocks[0].begin, segment.sequence);
    EXPECT_GE(sack.blocks[0].end, segment.sequence + segment.payload);
  }
  for (std::uint32_t i = 0; i < sack.count; ++i) {
    const SackBlock& block = sack.blocks[i];
    ASSERT_GT(block.begin, flow.expected);
    ASSERT_LT(block.begin, block.end);
    EXPECT_FALSE(flow.arrived[block.begin - 1]);
    EXPECT_TRUE(block.end == flow.bytes || !flow.arrived[block.end]);
    for (std::uint64_t byte = block.begin; byte < block.end; ++byte) {
      EXPECT_TRUE(flow.arrived[byte]);
    }
    for (std::uint32_t k = 0; k < i; ++k) EXPECT_NE(sack.blocks[k], block);
  }
}

bool Pipe::all_done() const {
  return std::all_of(flows_.begin(), flows_.end(), [](const Flow& flow) {
    return flow.sender->done() && flow.receiver->complete();
  });
}

}  // namespace thalweg::sim
