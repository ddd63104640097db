// pFabric: the network schedules by the bytes that a flow has left; the sender only keeps it busy
// (Alizadeh et al., SIGCOMM 2013, section 4.2).
//
// A flow starts with a window of the bandwidth-delay product and never has a larger one. Duplicates
// mean nothing, since every packet takes its own path. Only a fixed, short timeout detects a loss;
// after it the flow slow-starts towards half its window. A flow that times out `probe_after` times
// in a row stops wasting the links before the drop: on each timeout it sends a probe, the first
// missing byte alone, until something is acknowledged. The probe is real data, so the receiver
// needs no special case; the next segment is a byte shorter.
//
// The authors' receiver acknowledges selectively. Ours sends only the next byte expected, so below
// the threshold the window grows by all bytes that an acknowledgement covers: one that jumps over
// data that had already arrived reopens the window at once.
#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "sim/tcp/tcp_factory.h"
#include "sim/tcp/tcp_sender.h"

namespace thalweg::sim {
namespace {

using AfterTimeout = PfabricParameters::AfterTimeout;

// pFabric's parameters with all derived values, in the form that the shared sender takes.
struct PfabricSettings : TcpParameters {
  std::uint32_t probe_after = 0;
  AfterTimeout after_timeout = AfterTimeout::kSlowStart;
};

class PfabricSender final : public TcpSender {
 public:
  static constexpr bool kLooksAtSize = true;

  PfabricSender(const PfabricSettings& settings, std::uint64_t flow_bytes,
                std::optional<double> window)
      : TcpSender(settings, flow_bytes, window), settings_(settings) {}

 protected:
  void observe(Time /*now*/, const Acknowledgement& /*ack*/) override {
    if (!probing_ || timeouts_in_a_row() != 0) return;
    probing_ = false;
    set_segment_limit(static_cast<std::uint32_t>(settings_.mss.count()));
    set_window(mss());
  }

  void grow(Time now, const Acknowledgement& ack, std::uint64_t bytes) override {
    if (in_slow_start()) {
      set_window(window() + static_cast<double>(bytes));
    } else {
      TcpSender::grow(now, ack, bytes);
    }
  }

  void after_timeout(Time /*now*/) override {
    if (settings_.probe_after != 0 && timeouts_in_a_row() >= settings_.probe_after) {
      probing_ = true;
      set_segment_limit(1);
      set_window(1);
    } else if (settings_.after_timeout == AfterTimeout::kFullWindow) {
      set_window(static_cast<double>(settings_.max_window.count()));
    }
  }

  void tag(SegmentToSend& segment) const override {
    constexpr std::uint64_t kMostRank = std::numeric_limits<std::uint32_t>::max();
    segment.rank_in_queue = static_cast<std::uint32_t>(std::min(flow_bytes() - acked(), kMostRank));
  }

 private:
  const PfabricSettings& settings_;
  bool probing_ = false;
};

PfabricSettings settings_of(const PfabricParameters& parameters) {
  PfabricSettings settings;
  settings.mss = parameters.mss;
  settings.header = parameters.header;
  settings.initial_window = *parameters.initial_window;
  settings.max_window = parameters.mss * *parameters.initial_window;
  settings.dup_acks = 0;
  settings.limited_transmit = false;
  settings.rto_min = *parameters.rto;
  settings.rto_max = *parameters.rto;
  settings.probe_after = parameters.probe_after;
  settings.after_timeout = parameters.after_timeout;
  return settings;
}

constexpr std::array kAfterTimeoutChoices{
    Choice{"slow_start", static_cast<int>(AfterTimeout::kSlowStart)},
    Choice{"full_window", static_cast<int>(AfterTimeout::kFullWindow)}};

}  // namespace

PfabricScale pfabric_scale(Bandwidth rate, Duration rtt, Bytes packet) {
  CHECK(packet > Bytes(0));
  const auto bdp = static_cast<std::int64_t>(rate.bytes_per_second() * rtt.s());
  PfabricScale scale;
  const std::int64_t packets = (bdp + packet.count() - 1) / packet.count();
  constexpr std::int64_t kMostInWindow = std::numeric_limits<std::uint32_t>::max();
  scale.initial_window =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(packets, 1, kMostInWindow));
  scale.port_buffer = Bytes(2 * bdp);
  scale.rto = rtt * 3;
  return scale;
}

void bind_parameters(ParameterBinder& binder, PfabricParameters& parameters) {
  binder.bind("mss", parameters.mss, {Bytes(2), Bytes(65'000)}, "payload of a full packet");
  binder.bind("header", parameters.header, {Bytes(0), Bytes(500)}, "header of every packet");
  binder.bind("rate", parameters.rate, {Bandwidth::bits_per_second(1000), Bandwidth::gbps(100'000)},
              "rate of a host's link, for iw");
  binder.bind("rtt", parameters.rtt, {Duration::nanoseconds(1), Duration::milliseconds(10'000)},
              "round trip without queueing, for iw and rto");
  const Bytes packet = std::max(parameters.mss + parameters.header, Bytes(1));
  const PfabricScale scale = pfabric_scale(parameters.rate, parameters.rtt, packet);
  binder.bind("iw", parameters.initial_window, scale.initial_window, {1, 10'000'000},
              "packets of the window; the bandwidth-delay product if unset");
  binder.bind("rto", parameters.rto, scale.rto,
              {Duration::nanoseconds(1), Duration::milliseconds(100'000)},
              "fixed timeout; 3 rtt if unset");
  binder.bind("probe_after", parameters.probe_after, {0, 1000},
              "timeouts in a row after which a flow only probes, 0 for never");
  binder.bind_choice("after_timeout", parameters.after_timeout, kAfterTimeoutChoices,
                     "what a timeout does to the window");
}

MadeTransport make_pfabric(PfabricParameters parameters, const KeyValues& given) {
  ParameterBinder binder("pfabric", given);
  bind_parameters(binder, parameters);
  THALWEG_TRY_STATUS(binder.finish());
  return MadeTransport(std::make_unique<TcpFactory<PfabricSender, PfabricSettings>>(
      settings_of(parameters), binder.describe()));
}

}  // namespace thalweg::sim
