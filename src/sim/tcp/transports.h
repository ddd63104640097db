// The TCP-like transports: their parameters, and how to make them.
//
// A parameter struct is plain data with the defaults of the DLCP paper's set-up (TARGETS.md: IW 10,
// RTOmin 10 ms, 3 dupACKs). make_*() first overrides fields by `given`, whose keys are those of
// scenario files, and then validates the struct once; an error names the transport, the key, the
// value and what is allowed. A factory must outlive the senders it makes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/hosts/transport.h"

namespace thalweg::sim {

using KeyValues = std::map<std::string, std::string>;

// How a flow grows the window that its connection kept from the flow before. The connection does
// not know whether that window had reached the network's limit.
enum class WarmStart : std::uint8_t {
  kSlowStart,  // double from that window on: never slower than a cold start, may overshoot once
  kAvoidance,  // grow by one packet per round trip from that window on
};

// The parameters that all of them share. The key of each in scenario files is in parentheses.
struct TcpParameters {
  Bytes mss{1460};                    // payload of a full packet (mss)
  Bytes header{40};                   // bytes, in every packet, acknowledgements included (header)
  std::uint32_t initial_window = 10;  // packets (iw)
  Bytes max_window{1 << 30};          // how much the receiver's buffer would hold (max_window)
  std::uint32_t dup_acks = 3;         // duplicates that start a fast retransmit; 0: never (dupacks)
  bool limited_transmit = true;       // RFC 3042 (limited_transmit)
  bool sack = false;                  // selective acknowledgements, RFC 2018 and 6675 (sack)
  Duration rto_min = Duration::milliseconds(10);      // (rto_min)
  Duration rto_max = Duration::milliseconds(60'000);  // the doubling stops here (rto_max)
  // The timeout before the first round trip is measured; unset: rto_min, since a real connection
  // has measured its handshake (rto_initial).
  std::optional<Duration> rto_initial;
  WarmStart warm = WarmStart::kSlowStart;  // (warm)
};

struct NewRenoParameters : TcpParameters {};

// RFC 9438.
struct CubicParameters : TcpParameters {
  double c = 0.4;                // packets per second cubed (c)
  double beta = 0.7;             // share of the window that is kept at a loss (beta)
  bool fast_convergence = true;  // (fast_convergence)
  bool hystart = false;          // leave slow start before the buffer is full (hystart)
};

// RFC 8257.
struct DctcpParameters : TcpParameters {
  double g = 1.0 / 16;  // weight of one window's marks in alpha (g)
  double alpha = 1;     // initial value (alpha)
};

// DCTCP whose packets fall to priority i once the flow has sent thresholds[i - 1] bytes. The
// defaults double up to 4 MB, where DLCP's set-up splits tensors; for a known workload use
// pias_thresholds().
struct PiasParameters : DctcpParameters {
  std::vector<Bytes> thresholds{
      Bytes(62'500),    Bytes(125'000),   Bytes(250'000),  Bytes(500'000),
      Bytes(1'000'000), Bytes(2'000'000), Bytes(4'000'000)};  // (thresholds)
  // After this many timeouts in a row a flow counts as starved, and from then on as new; 0: never
  // (promote_after).
  std::uint32_t promote_after = 2;
};
inline constexpr std::size_t kPriorities = 8;

// pFabric scales with the network: its window is the bandwidth-delay product, and its timeout a
// fixed three round trips. Unset fields follow from rate and rtt.
struct PfabricParameters {
  enum class AfterTimeout : std::uint8_t {
    kSlowStart,  // one packet, doubling to half the old window, then one packet more per round trip
    kFullWindow,  // everything outstanding is sent again at once
  };
  Bytes mss{1460};                               // (mss)
  Bytes header{40};                              // (header)
  Bandwidth rate = Bandwidth::gbps(100);         // rate of a host's link (rate)
  Duration rtt = Duration::nanoseconds(85'200);  // without queueing (rtt)
  std::optional<std::uint32_t> initial_window;   // packets; also the largest window (iw)
  std::optional<Duration> rto;                   // (rto)
  std::uint32_t probe_after = 5;                 // timeouts in a row; 0: never (probe_after)
  AfterTimeout after_timeout = AfterTimeout::kSlowStart;  // (after_timeout)
};

// pFabric's scaling rules for a host link and a base round trip: IW = BDP, rounded up to packets of
// `packet` bytes on the wire; buffer per port = 2 BDP; RTO = 3 RTT.
struct PfabricScale {
  std::uint32_t initial_window = 0;
  Bytes port_buffer;
  Duration rto;
};
PfabricScale pfabric_scale(Bandwidth rate, Duration rtt, Bytes packet);

// Demotion thresholds for flows of these sizes: each of the `priorities` levels carries an equal
// share of all bytes. With sizes s, the bytes below threshold a are Σ min(s, a); the i-th threshold
// is the least whole a with Σ min(s, a) >= i/priorities of the total, so it follows the workload's
// size distribution and not its load. A threshold that would not be above the one before is left
// out: if all sizes are small there are fewer levels. Requires sizes above 0 and 2 <= priorities <=
// kPriorities.
std::vector<Bytes> pias_thresholds(std::vector<Bytes> sizes, std::size_t priorities = kPriorities);

using MadeTransport = Result<std::unique_ptr<TransportFactory>>;
MadeTransport make_newreno(NewRenoParameters parameters, const KeyValues& given = {});
MadeTransport make_cubic(CubicParameters parameters, const KeyValues& given = {});
MadeTransport make_dctcp(DctcpParameters parameters, const KeyValues& given = {});
MadeTransport make_pias(PiasParameters parameters, const KeyValues& given = {});
MadeTransport make_pfabric(PfabricParameters parameters, const KeyValues& given = {});

// Makes a transport by the name that scenario files use, with values as people write them:
// mss=1460B, rto_min=10ms, thresholds=64kB,1MB.
MadeTransport make_transport(std::string_view name, const KeyValues& parameters);

struct ParameterInfo {
  std::string key;
  std::string value;    // the default
  std::string meaning;  // includes which values are allowed
};
std::vector<std::string_view> transport_names();
// An error for an unknown name lists the names.
Result<std::vector<ParameterInfo>> transport_parameters(std::string_view name);

}  // namespace thalweg::sim
