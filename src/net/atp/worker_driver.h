// The worker's half of an AtpNode: sends tensors as gradient packets and writes parameter packets
// to tensors.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/atp/member.h"
#include "net/atp/node.h"
#include "proto/atp/paths.h"
#include "proto/atp/worker.h"

namespace thalweg::net {

// The options of the node's worker, with timings that suit real sockets.
[[nodiscard]] proto::AtpWorkerOptions worker_options(const AtpNodeOptions& node);

class AtpServerDriver;

class AtpWorkerDriver {
 public:
  // `member` outlives this.
  explicit AtpWorkerDriver(AtpMember& member);

  void start(AtpReduction reduction, Time now);
  // Handles a parameter or abort packet that AtpMember::read() accepted. `by_switch`: a switch sent
  // it.
  void on_packet(const wire::AtpHeader& header, std::span<const std::byte> packet, bool by_switch,
                 Time now);
  // From now on gradients for the server in the same process go to it at once. It outlives this.
  void keep_own(AtpServerDriver& server) { own_server_ = &server; }
  // A sum, or an abort, of that server.
  void on_own(const wire::AtpHeader& header, std::span<const std::byte> elements, Time now);
  void fail(const Error& cause, Time now);
  void on_timeout(Time now) { worker_.on_timeout(now); }
  // Ends the reductions that are over and sends the packets that may leave. Returns false if more
  // packets must be sent at the next turn.
  bool pump(Time now);
  [[nodiscard]] std::optional<Time> next_timeout() const { return worker_.next_timeout(); }

  [[nodiscard]] const proto::AtpWorkerCounters& counters() const { return worker_.counters(); }
  [[nodiscard]] std::uint64_t sent_direct() const { return sent_direct_; }
  [[nodiscard]] bool switch_gone() const { return path_.gone(); }

 private:
  // A reduction in flight. The worker's cookie for it is its number.
  struct Flight {
    AtpReduction reduction;
    std::size_t misfits = 0;  // elements that do not fit their block's exponent
    bool over = false;
  };
  [[nodiscard]] Flight& flight(std::uint64_t cookie) { return flights_[cookie - first_flight_]; }
  void on_abort(const wire::AtpHeader& header, Time now);
  void send(proto::AtpTransmit& transmit, Time now);
  void give(proto::AtpTransmit& transmit, Time now);
  // Writes the block's elements as they travel, and what the header says of them.
  void fill(proto::AtpTransmit& transmit, std::int32_t* elements);
  void take_sum(const wire::AtpHeader& header, std::span<const std::byte> elements, bool by_switch,
                Time now);
  void place(const proto::AtpPlacement& placement, std::span<const std::byte> elements);
  // By whom the sum of a sequence came, as text for an error.
  [[nodiscard]] std::string way_of(const wire::AtpHeader& header, bool by_switch) const;
  void end(const proto::AtpOutcome& outcome);
  [[nodiscard]] int contributions() const {
    return static_cast<int>(member_.options().members.size());
  }

  AtpMember& member_;
  proto::AtpWorker worker_;
  proto::AtpWorkerPath path_;
  std::deque<Flight> flights_;
  std::uint64_t first_flight_ = 0;  // the cookie of flights_.front()
  std::uint64_t sent_direct_ = 0;
  AtpServerDriver* own_server_ = nullptr;
  std::vector<std::int32_t> own_elements_;  // of a gradient for it
};

}  // namespace thalweg::net
