// The server's half of an AtpNode: adds gradient packets to slots and sends the sums as parameter
// packets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net/atp/member.h"
#include "proto/atp/paths.h"
#include "proto/atp/server.h"

namespace thalweg::net {

class AtpWorkerDriver;

class AtpServerDriver {
 public:
  // `member` outlives this.
  explicit AtpServerDriver(AtpMember& member);

  // Handles a gradient packet that AtpMember::read() accepted. `by_switch`: a switch sent it.
  void on_packet(const wire::AtpHeader& header, std::span<const std::byte> packet, bool by_switch,
                 Time now);
  // From now on sums for the worker in the same process go to it at once, and its gradients come by
  // on_own(). It outlives this.
  void keep_own(AtpWorkerDriver& worker) { own_worker_ = &worker; }
  void on_own(const wire::AtpHeader& header, std::span<const std::byte> elements, Time now);
  void on_timeout(Time now) {
    now_ = now;
    server_.on_timeout(now);
  }
  // Sends the sums that are complete.
  void pump();
  [[nodiscard]] std::optional<Time> next_timeout() const { return server_.next_timeout(); }

  [[nodiscard]] std::uint64_t packets() const { return packets_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Gradients dropped because their check words were wrong.
  [[nodiscard]] std::uint64_t corrupt() const { return corrupt_; }

 private:
  // Adds a gradient whose check word holds, and sends what is complete then.
  void add(const wire::AtpHeader& header, std::span<const std::byte> elements, Time now);
  void send(const proto::AtpServerTransmit& transmit);
  void put(const AtpMember::Slot& out, const proto::AtpServerTransmit& transmit);
  [[nodiscard]] std::int32_t* slot(std::uint32_t index) {
    return &elements_[std::size_t{index} * server_.options().elements];
  }

  AtpMember& member_;
  proto::AtpServer server_;
  proto::AtpServerPath path_;
  std::vector<std::int32_t> elements_;  // of all slots, one slot after the other
  AtpWorkerDriver* own_worker_ = nullptr;
  Time now_;  // of the last call
  std::uint64_t packets_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t corrupt_ = 0;
};

}  // namespace thalweg::net
