// Two harnesses that drive TCP-like senders in virtual time: by hand, and over a pipe with a
// bottleneck.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "sim/hosts/transport.h"
#include "sim/tcp/transports.h"

namespace thalweg::sim {

// Returns the transport; if there is none, fails the test and returns a null pointer.
std::unique_ptr<TransportFactory> transport_or_fail(std::string_view name, const KeyValues& given);

// Numbers of segments.
using Numbers = std::vector<std::uint64_t>;
Numbers range(std::uint64_t begin, std::uint64_t end);

// One sender driven by hand, for exact traces. Segments are named by number: segment i starts at
// byte i * mss. Time moves only when the test says so.
class SenderByHand {
 public:
  SenderByHand(std::string_view transport, const KeyValues& given, std::uint64_t segments,
               std::optional<double> window_segments = std::nullopt);

  // Polls until nothing is left; returns the numbers of the segments sent.
  std::vector<std::uint64_t> send();
  // Acknowledges as a receiver that now expects segment `next`, in answer to a packet sent
  // `round_trip` ago. Does not poll.
  void ack(std::uint64_t next, bool echo = false, bool answers_retransmission = false);
  // The same with blocks of segments beyond: {3, 5} are segments 3 and 4.
  void sack(std::uint64_t next, const std::vector<SackBlock>& blocks);
  // Acknowledges `count` times the same, polling after each; returns all segments sent.
  std::vector<std::uint64_t> duplicates(std::uint64_t next, int count);
  void wait(Duration time) { now_ += time; }
  // Moves to the next timeout and tells the sender.
  void time_out();

  [[nodiscard]] double window() const { return sender_->window() / mss_; }
  [[nodiscard]] Duration until_timeout() const { return *sender_->next_timeout() - now_; }
  [[nodiscard]] Sender& sender() { return *sender_; }
  [[nodiscard]] const SegmentToSend& last() const { return last_; }
  [[nodiscard]] Time now() const { return now_; }
  void set_round_trip(Duration rtt) { round_trip_ = rtt; }

 private:
  std::unique_ptr<TransportFactory> factory_;
  std::unique_ptr<Sender> sender_;
  double mss_;
  SegmentToSend last_;
  Time now_;
  Duration round_trip_ = Duration::microseconds(100);
};

// Flows from one host over one FIFO to one receiver; acknowledgements come back over a link without
// a queue. Faults come from a script or from a seed.
struct PipeOptions {
  Bandwidth rate = Bandwidth::gbps(10);
  Duration delay = Duration::microseconds(50);  // one way
  Bytes buffer;                                 // 0: unlimited
  Bytes mark_above;                             // bytes queued on arrival; 0: never
  double loss = 0;                              // share of data packets, on arrival at the queue
  double ack_loss = 0;
  double duplication = 0;  // share of data and acknowledgements
  Duration jitter;         // each packet is delayed by up to this, each way, which reorders
  std::uint64_t seed = 0;
  // Returns true to lose this segment; called for every segment sent, with its number in sending
  // order.
  std::function<bool(const SegmentToSend& segment, std::uint64_t number)> lose;
};

struct SentSegment {
  Time time;
  std::size_t flow = 0;
  SegmentToSend segment;
};

class Pipe {
 public:
  Pipe(const TransportFactory& transport, const PipeOptions& options);

  // Takes the bytes of each flow; all start at time 0. Returns when all are done and nothing is in
  // flight, or at `until`. Fails the test when a property of every transport does not hold:
  // 1. a sender with bytes outstanding has a timeout ahead;
  // 2. nothing beyond the flow's bytes is sent, and new data only within the window, which
  //    duplicates may inflate by a segment each; what was acknowledged selectively is not sent
  //    again;
  // 3. the receiver is given every byte in order, and done() and complete() agree with it.
  void run(const std::vector<std::uint64_t>& flow_bytes, Time until);

  [[nodiscard]] bool all_done() const;
  [[nodiscard]] Time now() const { return now_; }
  // When the last flow so far was done.
  [[nodiscard]] Time last_done() const { return last_done_; }
  [[nodiscard]] const Sender& sender(std::size_t flow) const { return *flows_[flow].sender; }
  [[nodiscard]] const std::vector<SentSegment>& sent() const { return sent_; }
  // Payload bytes that have reached the receiver for the first time.
  [[nodiscard]] std::uint64_t delivered() const { return delivered_; }
  [[nodiscard]] std::uint64_t drops() const { return drops_; }
  // `callback` gets the queue in bytes when a data packet has arrived at it.
  void on_queue(std::function<void(Time, std::uint64_t)> callback) {
    on_queue_ = std::move(callback);
  }
  void keep_sent(bool keep) { keep_sent_ = keep; }

 private:
  struct Flow {
    std::unique_ptr<Sender> sender;
    std::unique_ptr<Receiver> receiver;
    std::uint64_t bytes = 0;
    std::uint64_t acked = 0;     // as the sender knows it
    std::uint64_t high = 0;      // the end of what the sender has sent
    std::uint64_t expected = 0;  // as the receiver last said
    double inflation = 0;        // how much duplicates may add to the window
    std::vector<bool> arrived;   // by byte: a model of the receiver
    std::vector<bool> known;     // by byte: acknowledged selectively, as the sender knows it
  };
  enum class Kind : std::uint8_t { kData, kAck, kTimer };
  struct Event {
    Time time;
    std::uint64_t order = 0;
    Kind kind = Kind::kTimer;
    std::size_t flow = 0;
    SegmentToSend segment;
    Acknowledgement ack;
    SackBlocks sack;
    Time sent;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  void push(Event event);
  void handle(const Event& event);
  void poll(std::size_t flow);
  void check_segment(Flow& flow, const SegmentToSend& segment);
  void transmit(std::size_t flow, SegmentToSend segment);
  void receive(const Event& event);
  void check_sack(const Flow& flow, const SegmentToSend& segment, const SackBlocks& sack);
  void take_ack(Flow& flow, const Event& event);
  Duration random_jitter();

  const TransportFactory& transport_;
  PipeOptions options_;
  double mss_ = 0;
  Prng prng_;
  Time now_;
  Time last_done_;
  std::vector<Flow> flows_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_order_ = 0;
  // The packets in the bottleneck: when each will have left, and its size.
  std::deque<std::pair<Time, std::uint64_t>> queue_;
  std::uint64_t queued_ = 0;
  Time busy_until_;
  std::vector<SentSegment> sent_;
  bool keep_sent_ = true;
  std::uint64_t sent_count_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t drops_ = 0;
  std::function<void(Time, std::uint64_t)> on_queue_;
};

}  // namespace thalweg::sim
