// The server's half of an AtpNode: gradient packets to slots, sums to parameter packets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net/atp/member.h"
#include "net/atp/paths.h"
#include "proto/atp/server.h"

namespace thalweg {

class AtpServerDriver {
 public:
  // `member` outlives it.
  explicit AtpServerDriver(AtpMember& member);

  // A gradient packet that read well.
  void on_packet(const AtpHeader& header, std::span<const std::byte> packet, bool by_switch,
                 Time now);
  void on_timeout(Time now) { server_.on_timeout(now); }
  // Sends what is complete.
  void pump();
  [[nodiscard]] std::optional<Time> next_timeout() const { return server_.next_timeout(); }

  [[nodiscard]] std::uint64_t packets() const { return packets_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  void send(const AtpServerTransmit& transmit);
  void put(const AtpMember::Slot& out, const AtpServerTransmit& transmit);
  [[nodiscard]] std::int32_t* slot(std::uint32_t index) {
    return &elements_[std::size_t{index} * server_.options().elements];
  }

  AtpMember& member_;
  AtpServer server_;
  AtpServerPath path_;
  std::vector<std::int32_t> elements_;  // of each slot
  std::uint64_t packets_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace thalweg
