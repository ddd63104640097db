// What ns3_peer runs: the flows of a .flows file over a topology, under one transport.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg {

// Limits of a .flows file. A TCP sequence number has 32 bits; every flow has a port of its own.
inline constexpr std::int64_t kMaxFlowBytes = std::int64_t{1} << 30;
inline constexpr std::size_t kMaxFlows = 50'000;
inline constexpr int kMaxPaths = 64;

struct PeerFlow {
  Rank source;
  Rank target;
  std::int64_t bytes = 0;
  Duration start;
  // Which of the equal shortest paths: in a leaf-spine, the number of the spine. Data and
  // acknowledgements take the same one.
  int path = 0;
};

// Reads "src dst bytes start_us [spine]", one flow a line; # starts a comment. Errors name the
// line.
Result<std::vector<PeerFlow>> parse_flows(std::string_view text, std::string_view source,
                                          int host_count);

enum class PeerTransport : std::uint8_t { kNewReno, kDctcp };

// What of ns-3 3.37 is mended; peer_socket.h explains each.
enum class Mend : std::uint8_t {
  kAlphaOnLoss,
  kNoFloor,
  kLossInCwr,
  kEchoInRecovery,
  kStaleGuesses,
  kRaisingCut,
  kBurstAfterRecovery,
};
inline constexpr std::array<std::string_view, 7> kMendNames{
    "alpha-on-loss", "no-floor",    "loss-in-cwr",          "echo-in-recovery",
    "stale-guesses", "raising-cut", "burst-after-recovery",
};

class Mends {
 public:
  void add(Mend mend) { bits_ |= bit(mend); }
  [[nodiscard]] bool contains(Mend mend) const { return (bits_ & bit(mend)) != 0; }

 private:
  static constexpr std::uint32_t bit(Mend mend) { return 1U << static_cast<unsigned>(mend); }
  std::uint32_t bits_ = 0;
};
// "all", "none" or names from kMendNames with commas between.
Result<Mends> parse_mends(std::string_view text);

// A length of a queue, in packets or in bytes.
struct QueueLength {
  std::int64_t count = 0;
  bool in_bytes = false;
};
// "65p" or "97500B".
Result<QueueLength> parse_queue_length(std::string_view text);
std::string to_string(QueueLength length);

// Defaults: the scenario of `thalweg bench sim`.
struct PeerOptions {
  PeerTransport transport = PeerTransport::kDctcp;
  Mends mended;
  std::uint32_t mss = 1460;           // payload bytes of a full segment
  std::uint32_t initial_window = 10;  // segments
  Duration rto_min = Duration::milliseconds(10);
  std::uint32_t ack_every = 1;   // segments an acknowledgement covers
  bool timestamps = false;       // 12 more bytes a packet, and RTT samples of 1 ms
  bool limited_transmit = true;  // RFC 3042
  double dctcp_g = 1.0 / 16;
  // A switch port: what may wait there, the packet on the wire not counted. In bytes a packet
  // counts with IP's and TCP's headers, not with PPP's.
  QueueLength buffer{.count = 512'000, .in_bytes = true};
  // DCTCP: an arrival that finds more than this waiting is marked.
  QueueLength mark{.count = 97'500, .in_bytes = true};
  Duration until;          // stop this long after time 0 of the flows; 0: when all are done
  Duration sample_period;  // look at the queues this often; 0: never

  // Bytes that IP and TCP add to a segment. The wire adds 2 more, PPP's.
  [[nodiscard]] std::uint32_t header_bytes() const { return timestamps ? 52 : 40; }
};

}  // namespace thalweg
