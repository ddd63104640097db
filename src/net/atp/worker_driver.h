// The worker's half of an AtpNode: tensors to gradient packets, parameter packets to tensors.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "net/atp/member.h"
#include "net/atp/node.h"
#include "net/atp/paths.h"
#include "proto/atp/worker.h"

namespace thalweg {

// How the worker of a node is set up: what a job over sockets needs.
[[nodiscard]] AtpWorkerOptions worker_options(const AtpNodeOptions& node);

class AtpWorkerDriver {
 public:
  // `member` outlives it.
  explicit AtpWorkerDriver(AtpMember& member);

  void start(AtpReduction reduction, Time now);
  // A parameter or abort packet that read well.
  void on_packet(const AtpHeader& header, std::span<const std::byte> packet, bool by_switch,
                 Time now);
  void fail(const std::string& cause, Time now);
  void on_timeout(Time now) { worker_.on_timeout(now); }
  // Sends what may leave and ends what is over. False: there is more to send, at the next turn.
  bool pump(Time now);
  [[nodiscard]] std::optional<Time> next_timeout() const { return worker_.next_timeout(); }

  [[nodiscard]] const AtpWorkerCounters& counters() const { return worker_.counters(); }
  [[nodiscard]] std::uint64_t sent_direct() const { return sent_direct_; }
  [[nodiscard]] bool switch_gone() const { return path_.gone(); }

 private:
  // A tensor in flight: the worker's cookie is its number.
  struct Flight {
    AtpReduction reduction;
    std::size_t misfits = 0;  // elements that their exponent does not hold
    bool over = false;
  };
  [[nodiscard]] Flight& flight(std::uint64_t cookie) { return flights_[cookie - first_flight_]; }
  void send(AtpTransmit& transmit, Time now);
  void place(const AtpBlock& block, std::span<const std::byte> elements);
  void end(const AtpOutcome& outcome);
  [[nodiscard]] int contributions() const {
    return static_cast<int>(member_.options().members.size());
  }

  AtpMember& member_;
  AtpWorker worker_;
  AtpWorkerPath path_;
  std::deque<Flight> flights_;
  std::uint64_t first_flight_ = 0;  // the cookie of the first
  std::uint64_t sent_direct_ = 0;
};

}  // namespace thalweg
