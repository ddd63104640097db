#include "proto/dlcp/options.h"

#include "proto/require.h"

namespace thalweg::proto {
namespace {

constexpr Duration kLongestWait = Duration::milliseconds(3'600'000);

Status validate_rate(const RateControlOptions& rate) {
  THALWEG_TRY_STATUS(require(rate.line_rate > Bandwidth(), "rate.line_rate",
                             to_string(rate.line_rate), "above 0"));
  THALWEG_TRY_STATUS(require_positive(rate.report_period, "rate.report_period"));
  THALWEG_TRY_STATUS(require_number(rate.least_report_packets >= 1, "rate.least_report_packets",
                                    rate.least_report_packets, "at least 1"));
  THALWEG_TRY_STATUS(require_number(rate.congestion_factor >= 1, "rate.congestion_factor",
                                    rate.congestion_factor, "at least 1"));
  THALWEG_TRY_STATUS(require_number(rate.decrease_factor > 0 && rate.decrease_factor < 1,
                                    "rate.decrease_factor", rate.decrease_factor,
                                    "between 0 and 1"));
  THALWEG_TRY_STATUS(require_number(rate.increase_step > 0 && rate.increase_step <= 1,
                                    "rate.increase_step", rate.increase_step,
                                    "above 0 and at most 1"));
  THALWEG_TRY_STATUS(require_number(rate.least_rate > 0 && rate.least_rate <= 1, "rate.least_rate",
                                    rate.least_rate, "above 0 and at most 1"));
  return require_number(rate.capacity_headroom > 0, "rate.capacity_headroom",
                        rate.capacity_headroom, "above 0");
}

Status validate_waits(const GraceOptions& grace, const PatienceOptions& patience) {
  THALWEG_TRY_STATUS(require_positive(grace.initial, "grace.initial"));
  THALWEG_TRY_STATUS(require_positive(grace.least, "grace.least"));
  THALWEG_TRY_STATUS(require(
      grace.most >= grace.least && grace.most >= grace.initial && grace.most <= kLongestWait,
      "grace.most", to_string(grace.most), "at least grace.least and grace.initial, at most 1h"));
  THALWEG_TRY_STATUS(require_positive(grace.memory, "grace.memory"));
  THALWEG_TRY_STATUS(
      require_number(patience.factor > 0, "patience.factor", patience.factor, "above 0"));
  THALWEG_TRY_STATUS(require_positive(patience.least, "patience.least"));
  THALWEG_TRY_STATUS(require(patience.most >= patience.least && patience.most <= kLongestWait,
                             "patience.most", to_string(patience.most),
                             "at least patience.least, at most 1h"));
  return require_positive(patience.initial_round_trip, "patience.initial_round_trip");
}

Status validate_paths(const PathOptions& paths) {
  THALWEG_TRY_STATUS(require_number(paths.tolerated > 0 && paths.tolerated < 1, "paths.tolerated",
                                    paths.tolerated, "between 0 and 1"));
  THALWEG_TRY_STATUS(require_number(paths.growth > 1, "paths.growth", paths.growth, "above 1"));
  THALWEG_TRY_STATUS(require_number(paths.least_weight > 0 && paths.least_weight <= 1,
                                    "paths.least_weight", paths.least_weight,
                                    "above 0 and at most 1"));
  THALWEG_TRY_STATUS(require_positive(paths.retry, "paths.retry"));
  THALWEG_TRY_STATUS(require(paths.pace >= Duration() && paths.pace <= kLongestWait, "paths.pace",
                             to_string(paths.pace), "0 to 1h"));
  THALWEG_TRY_STATUS(require_number(paths.packets_per_path >= 1, "paths.packets_per_path",
                                    paths.packets_per_path, "at least 1"));
  return require_number(paths.least_packets >= 1, "paths.least_packets", paths.least_packets,
                        "at least 1");
}

}  // namespace

Status DlcpOptions::validate() const {
  THALWEG_TRY_STATUS(validate_rate(rate));
  THALWEG_TRY_STATUS(validate_waits(grace, patience));
  THALWEG_TRY_STATUS(validate_paths(paths));
  THALWEG_TRY_STATUS(require_positive(want.after, "want.after"));
  THALWEG_TRY_STATUS(require(want.most >= want.after && want.most <= kLongestWait, "want.most",
                             to_string(want.most), "at least want.after, at most 1h"));
  THALWEG_TRY_STATUS(order.validate("order"));
  THALWEG_TRY_STATUS(
      require_number(burst_segments >= 1, "burst_segments", burst_segments, "at least 1"));
  THALWEG_TRY_STATUS(require(packet_overhead >= Bytes(0), "packet_overhead",
                             to_string(packet_overhead), "at least 0"));
  constexpr std::uint32_t kMostTransfers = 1U << 20;
  return require_number(max_transfers >= 1 && max_transfers <= kMostTransfers, "max_transfers",
                        max_transfers, "from 1 to 1048576");
}

}  // namespace thalweg::proto
