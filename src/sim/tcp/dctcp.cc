#include "sim/tcp/dctcp.h"

#include <algorithm>

#include "sim/tcp/tcp_factory.h"

namespace thalweg::sim {
namespace {

// As in Linux; a mark could not slow a flow with one segment anyway.
constexpr double kLeastWindowSegments = 2;

}  // namespace

DctcpSender::DctcpSender(const DctcpParameters& parameters, std::uint64_t flow_bytes,
                         std::optional<double> window)
    : TcpSender(parameters, flow_bytes, window), g_(parameters.g), alpha_(parameters.alpha) {}

void DctcpSender::observe(Time /*now*/, const Acknowledgement& ack) {
  if (window_end_ == 0) window_end_ = sent();
  ++answered_;
  if (ack.echo) ++marked_;
  if (acked() >= window_end_) {
    alpha_ = (1 - g_) * alpha_ + g_ * marked_ / answered_;
    window_end_ = sent();
    answered_ = 0;
    marked_ = 0;
  }
  if (ack.echo && acked() > cut_end_ && !in_recovery()) cut();
}

void DctcpSender::cut() {
  const double least = std::min(window(), kLeastWindowSegments * mss());
  set_window(std::max(window() * (1 - alpha_ / 2), least));
  set_slow_start_threshold(window());
  cut_end_ = sent();
}

void DctcpSender::grow(Time now, const Acknowledgement& ack, std::uint64_t bytes) {
  if (!ack.echo) TcpSender::grow(now, ack, bytes);
}

void DctcpSender::tag(SegmentToSend& segment) const { segment.ecn = Ecn::kCapable; }

void bind_parameters(ParameterBinder& binder, DctcpParameters& parameters) {
  bind_parameters(binder, static_cast<TcpParameters&>(parameters));
  binder.bind("g", parameters.g, {0.0001, 1}, "weight of a window's marks in alpha");
  binder.bind("alpha", parameters.alpha, {0, 1}, "alpha to start with");
}

MadeTransport make_dctcp(DctcpParameters parameters, const KeyValues& given) {
  return make_tcp<DctcpSender>("dctcp", parameters, given);
}

}  // namespace thalweg::sim
