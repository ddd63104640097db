// PIAS: DCTCP whose packets lose priority as their flow sends more, so that short flows pass long
// ones without knowledge of flow sizes (Bai et al., NSDI 2015).
//
// A packet's priority follows from the bytes that its flow has sent so far, also for a
// retransmission. A flow that times out again and again may be starved by the queues above it; then
// it counts as new.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "sim/tcp/dctcp.h"
#include "sim/tcp/tcp_factory.h"

namespace thalweg::sim {
namespace {

class PiasSender final : public DctcpSender {
 public:
  static constexpr bool kLooksAtSize = true;

  PiasSender(const PiasParameters& parameters, std::uint64_t flow_bytes,
             std::optional<double> window)
      : DctcpSender(parameters, flow_bytes, window), parameters_(parameters) {}

 protected:
  void after_timeout(Time /*now*/) override {
    if (parameters_.promote_after != 0 && timeouts_in_a_row() >= parameters_.promote_after) {
      promoted_ = true;
      new_since_ = acked();
    }
  }

  void tag(SegmentToSend& segment) const override {
    DctcpSender::tag(segment);
    // After a promotion, data that is sent again counts from the promotion on, not from the flow's
    // start.
    const std::uint64_t reached = promoted_ ? segment.sequence : std::max(segment.sequence, sent());
    const Bytes bytes_sent(static_cast<std::int64_t>(reached - new_since_));
    const std::vector<Bytes>& thresholds = parameters_.thresholds;
    const auto above = std::upper_bound(thresholds.begin(), thresholds.end(), bytes_sent);
    segment.priority = static_cast<std::uint8_t>(above - thresholds.begin());
  }

 private:
  const PiasParameters& parameters_;
  std::uint64_t new_since_ = 0;
  bool promoted_ = false;
};

}  // namespace

void bind_parameters(ParameterBinder& binder, PiasParameters& parameters) {
  bind_parameters(binder, static_cast<DctcpParameters&>(parameters));
  binder.bind("thresholds", parameters.thresholds, kPriorities - 1,
              "bytes sent after which packets fall to the next priority");
  binder.bind("promote_after", parameters.promote_after, {0, 1000},
              "timeouts in a row after which a flow counts as new, 0 for never");
}

MadeTransport make_pias(PiasParameters parameters, const KeyValues& given) {
  return make_tcp<PiasSender>("pias", std::move(parameters), given);
}

std::vector<Bytes> pias_thresholds(std::vector<Bytes> sizes, std::size_t priorities) {
  CHECK(!sizes.empty() && priorities >= 2 && priorities <= kPriorities);
  std::sort(sizes.begin(), sizes.end());
  CHECK(sizes.front() > Bytes(0));
  Bytes total;
  for (const Bytes size : sizes) total += size;

  std::vector<Bytes> thresholds;
  // Σ min(s, a) is linear between sizes: `below` is its value at a = sizes[i - 1], and from there
  // on it rises by `longer`, the number of larger flows, per byte.
  std::size_t i = 0;
  Bytes below;
  Bytes previous;
  const auto share_count = static_cast<std::int64_t>(priorities);
  for (std::int64_t share = 1; share < share_count; ++share) {
    // share/priorities of the total, rounded up, without overflow.
    const std::int64_t quotient = total.count() / share_count * share;
    const std::int64_t remainder = total.count() % share_count * share;
    const Bytes wanted(quotient + (remainder + share_count - 1) / share_count);
    auto longer = static_cast<std::int64_t>(sizes.size() - i);
    while (below + (sizes[i] - previous) * longer < wanted) {
      below += (sizes[i] - previous) * longer;
      previous = sizes[i++];
      longer = static_cast<std::int64_t>(sizes.size() - i);
    }
    const Bytes threshold = previous + Bytes(((wanted - below).count() + longer - 1) / longer);
    if (thresholds.empty() || threshold > thresholds.back()) thresholds.push_back(threshold);
  }
  return thresholds;
}

}  // namespace thalweg::sim
