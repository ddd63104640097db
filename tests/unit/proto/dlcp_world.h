// World: two DLCP endpoints in virtual time. The network between them loses, duplicates, delays,
// reorders and corrupts data, delays messages, and dies, as its options say. Checkers watch
// throughout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "base/prng.h"
#include "proto/dlcp/endpoint.h"

namespace thalweg::proto {

// One of several paths of a direction. Each keeps the order of its packets.
struct PathChannel {
  Duration delay;             // in addition to ChannelOptions::delay
  double loss = 0;            // in addition to ChannelOptions::loss
  std::int32_t behind = -1;   // the path whose bottleneck it shares; -1: its own
  Bandwidth bottleneck = {};  // above 0: a queue that drops what would wait for longer than …
  Duration longest_wait = Duration::milliseconds(2);  // … this
  Time dead_from = {};                                // the path swallows everything from here …
  Time dead_until = {};                               // … to here
};

// One direction of the network. Delays are one-way.
struct ChannelOptions {
  Duration delay = Duration::microseconds(20);
  Duration jitter;       // each packet is delayed by up to this in addition, so packets reorder
  Bandwidth bottleneck;  // above 0: an unlimited queue that keeps the order
  // With a bottleneck: a queue for every priority, and the most urgent packet leaves first.
  bool strict_priority = false;
  // Every stop is followed by a copy of it, in the queue that it names (on_data_end).
  bool stop_copies = false;
  double loss = 0;         // probability that a single packet is lost
  double burst_start = 0;  // probability, per packet, that a burst of losses begins …
  double burst_end = 1;    // … and ends
  double duplication = 0;
  double corruption = 0;  // of headers; the packet is lost, and the decoder must survive it
  Duration control_delay = Duration::microseconds(20);
  Duration control_jitter;
  // Not empty: the sender deals its packets over these. Without `jitter` and the bottleneck above.
  std::vector<PathChannel> paths = {};
};

// A transfer from one end to the other. Times count from the start of the world.
struct PlannedTransfer {
  int source = 0;  // 0 or 1
  TransferSpec spec;
  // The spec at the receiver if it differs, to test mismatches.
  std::optional<TransferSpec> receiver_spec;
  Time send_at;
  Time receive_at;
  // The sender, or the receiver, never starts.
  bool sender_missing = false;
  bool receiver_missing = false;
  std::optional<Time> cancel_at;
  bool cancelled_by_receiver = false;
  TagSource tags;
  // With spec.gradual: when which segments are offered. They need not be in order, may overlap, and
  // a fair schedule offers all of them.
  struct Offer {
    Time at;
    Bitmap::Run segments;
  };
  std::vector<Offer> offers = {};
};

struct WorldOptions {
  std::array<DlcpOptions, 2> endpoints;
  std::array<ChannelOptions, 2> channels;  // [i]: from end i to the other
  std::vector<PlannedTransfer> transfers;
  std::optional<Time> death;  // when the connection dies
  bool with_bytes = false;    // move real bytes, and check them afterwards
  std::uint64_t seed = 0;
  // If set, it decides losses instead of chance: true loses the packet. Called for every packet of
  // end 0, in order.
  std::function<bool(const wire::DataHeader&)> lose;
};

// How both ends of a planned transfer ended; none for an end that was not started.
struct TransferResult {
  std::optional<TransferOutcome> sent;
  std::optional<TransferOutcome> received;
};

class World {
 public:
  explicit World(const WorldOptions& options);

  // Runs until nothing is left to happen. Returns the first broken rule, or an empty text:
  // 1. every transfer that was started ends once, by its deadline, and failures say why;
  // 2. a receiver succeeds only within the bound, and reports exactly the segments that were
  // placed;
  // 3. a sender succeeds only if its receiver did;
  // 4. no segment is placed twice or after the end; bytes are right, and none outside is touched;
  // 5. nothing leaves faster than the line rate allows;
  // 6. of a gradual transfer, nothing leaves that was not offered;
  // 7. in the end both endpoints are idle and want no more time.
  std::string run();

  [[nodiscard]] const std::vector<TransferResult>& results() const { return results_; }
  [[nodiscard]] const DlcpEndpoint& endpoint(int i) const { return *ends_[at(i)].endpoint; }
  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }
  // Data packets that arrived after a stop that was sent after them.
  [[nodiscard]] std::uint64_t overtaken() const { return overtaken_; }
  // Packets that end 0 gave to each of its paths.
  [[nodiscard]] const std::vector<std::uint64_t>& taken() const { return ends_[0].taken; }
  // Every data packet that left end 0, in order, with its time.
  struct Sent {
    Time at;
    wire::DataHeader header;
    std::uint32_t path = 0;
  };
  void keep_sent() { keep_sent_ = true; }
  [[nodiscard]] const std::vector<Sent>& sent() const { return sent_; }

 private:
  static constexpr std::size_t kGuard = 64;

  struct Packet {
    Time at;
    std::uint64_t order = 0;
    int to = 0;
    std::uint32_t plan = 0;  // the planned transfer whose bytes it carries
    wire::DataHeader header;
    bool stop_copy = false;  // only the header's sequence (the end of the data) and tag count
    std::uint32_t path = 0;
    bool operator>(const Packet& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Letter {
    Time at;
    std::vector<std::byte> bytes;
  };
  struct End {
    std::unique_ptr<DlcpEndpoint> endpoint;
    std::deque<Letter> inbox;
    Time line_free;                    // when the bottleneck behind this end is free
    std::vector<Time> paths_free;      // [path]: the same for the bottleneck of each path
    std::uint32_t last_path = 0;       // of the last batch
    std::vector<std::uint64_t> taken;  // [path]: packets that it was given
    std::array<std::deque<Packet>, kPriorityCount> waiting;  // for that, under strict priority
    std::uint64_t stopped_at = 0;  // the highest end_sequence of a stop that arrived
    bool in_burst = false;
    std::uint64_t letters = 0;
    double sent_bits = 0;
    double burst_bits = 0;
    bool dead = false;
  };
  struct Work {
    Time at;
    std::uint32_t plan = 0;
    enum class Kind : std::uint8_t { kSend, kReceive, kOffer, kCancel, kDeath } kind = Kind::kSend;
    Bitmap::Run segments = {};  // of an offer
  };
  // What the checkers know about a planned transfer.
  struct Track {
    std::int32_t segments = 0;
    std::vector<bool> placed;
    std::int32_t placed_count = 0;
    std::vector<bool> offered;  // of a gradual transfer
    std::optional<TransferHandle> send_handle;
    std::optional<TransferHandle> receive_handle;
    Time send_started;
    Time receive_started;
    std::vector<std::byte> source;
    std::vector<std::byte> target;  // with guards
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] std::optional<Time> next_time() const;
  void step();
  void do_work(const Work& work);
  void start_receive(const Work& work);
  void offer(const Work& work);
  void deliver(const Packet& packet);
  void place(const Packet& packet, const Placement& placement);
  void drive(int i);
  void transmit(int from, const DataBatch& batch);
  // Sends a packet into the network, which may lose it.
  void launch(int from, Packet packet, bool lose);
  void launch_by_path(int from, const Packet& packet);
  // Lets the bottlenecks with strict priority take the packets whose time has come.
  void serve(int from);
  [[nodiscard]] Duration time_on_line(int from, const Packet& packet) const;
  void arrive_at(int from, Time leaves, Packet packet);
  void check_rate(End& end, const DataBatch& batch);
  void post(int from, const wire::ControlMessage& message);
  void corrupt(const wire::DataHeader& header);
  void take_outcome(int i, TransferOutcome outcome);
  void check_received(std::uint32_t plan, const TransferOutcome& outcome);
  void check_end();
  void check_bytes(std::uint32_t plan);
  void fail(const std::string& text);

  WorldOptions options_;
  Prng prng_;
  Time now_;
  std::array<End, 2> ends_;
  std::vector<Packet> packets_;  // a heap
  std::vector<Work> work_;       // latest first
  std::vector<Track> tracks_;
  std::vector<TransferResult> results_;
  std::vector<std::byte> scratch_;
  std::uint64_t next_order_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t overtaken_ = 0;
  bool keep_sent_ = false;
  std::vector<Sent> sent_;
  std::string broken_;
};

// A world drawn from a seed. `fair`: every transfer that is started can succeed, and must.
struct Schedule {
  WorldOptions options;
  bool fair = false;
  bool lossless = false;  // nothing is lost, and delays are within what the endpoints allow for
};
Schedule random_schedule(std::uint64_t seed);

}  // namespace thalweg::proto
