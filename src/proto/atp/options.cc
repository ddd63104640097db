#include "proto/atp/options.h"

#include <bit>

#include "proto/require.h"

namespace thalweg::proto {
namespace {

// Checks the fields on which workers and servers must agree.
Status validate_shape(std::uint32_t servers, std::uint32_t elements, std::uint32_t window) {
  THALWEG_TRY_STATUS(require_number(servers >= 1, "servers", servers, "at least 1"));
  THALWEG_TRY_STATUS(require(elements >= 1 && elements <= wire::kAtpMostElements, "elements",
                             std::to_string(elements), "from 1 to 2048"));
  return require(std::has_single_bit(window) && window <= AtpWorkerOptions::kMostWindow, "window",
                 std::to_string(window), "a power of two up to 1048576");
}

// The upper limit keeps sums of such values from overflowing.
Status require_bytes(Bytes value, Bytes least, const char* field, const char* allowed) {
  constexpr Bytes kMost = Bytes(std::int64_t{1} << 40);
  return require(value >= least && value <= kMost, field, to_string(value), allowed);
}

Status validate_congestion(const AtpCongestionOptions& congestion) {
  THALWEG_TRY_STATUS(require_number(congestion.initial_packets >= 1, "congestion.initial_packets",
                                    congestion.initial_packets, "at least 1"));
  THALWEG_TRY_STATUS(
      require_bytes(congestion.step, Bytes(1), "congestion.step", "from 1B to 1TiB"));
  THALWEG_TRY_STATUS(
      require_bytes(congestion.threshold, Bytes(1), "congestion.threshold", "from 1B to 1TiB"));
  return require_positive(congestion.queue, "congestion.queue");
}

Status validate_recovery(const AtpRecoveryOptions& recovery) {
  THALWEG_TRY_STATUS(require(recovery.factor >= 1 && recovery.factor <= 1000, "recovery.factor",
                             std::to_string(recovery.factor), "from 1 to 1000"));
  THALWEG_TRY_STATUS(require_positive(recovery.least, "recovery.least"));
  THALWEG_TRY_STATUS(require(recovery.initial >= recovery.least, "recovery.initial",
                             to_string(recovery.initial), "at least recovery.least"));
  THALWEG_TRY_STATUS(require_number(recovery.most_bad_sums >= 1, "recovery.most_bad_sums",
                                    recovery.most_bad_sums, "at least 1"));
  return require(recovery.most >= recovery.initial, "recovery.most", to_string(recovery.most),
                 "at least recovery.initial");
}

Status validate_prediction(const AtpPredictionOptions& prediction) {
  THALWEG_TRY_STATUS(require_number(prediction.lag_sequences >= 1, "prediction.lag_sequences",
                                    prediction.lag_sequences, "at least 1"));
  THALWEG_TRY_STATUS(require_number(prediction.lag_calls >= 1, "prediction.lag_calls",
                                    prediction.lag_calls, "at least 1"));
  return require_number(prediction.most_kinds >= 1, "prediction.most_kinds", prediction.most_kinds,
                        "at least 1");
}

bool in_range(std::uint32_t value, std::size_t most) { return value >= 1 && value <= most; }

}  // namespace

Status AtpWorkerOptions::validate() const {
  THALWEG_TRY_STATUS(validate_shape(servers, elements, window));
  THALWEG_TRY_STATUS(require(in_range(group_count, wire::kAtpMostGroups), "group_count",
                             std::to_string(group_count), "from 1 to 32"));
  THALWEG_TRY_STATUS(require(in_range(fan_in, wire::kAtpMostWorkersPerGroup), "fan_in",
                             std::to_string(fan_in), "from 1 to 32"));
  THALWEG_TRY_STATUS(
      require(group < group_count, "group", std::to_string(group), "below group_count"));
  THALWEG_TRY_STATUS(require(index < fan_in, "index", std::to_string(index), "below fan_in"));
  THALWEG_TRY_STATUS(
      require(level <= wire::kAtpServerLevel, "level", std::to_string(level), "0, 1 or 2"));
  THALWEG_TRY_STATUS(require(level != wire::kAtpSecondLevel || fan_in == 1, "level",
                             std::to_string(level), "0 or 2 where fan_in is above 1"));
  THALWEG_TRY_STATUS(require(seats.empty() || seats.size() == servers, "seats",
                             std::to_string(seats.size()), "none, or one for each server"));
  for (const std::optional<AtpSeat>& seat : seats) {
    THALWEG_TRY_STATUS(
        require(!seat || (seat->group < group_count &&
                          (seat->group != group || (fan_in >= 2 && seat->index < fan_in))),
                "seats", seat ? std::to_string(seat->index) : "",
                "workers of the job, in groups of two or more"));
  }
  THALWEG_TRY_STATUS(require(in_range(paths, wire::kAtpMostPaths), "paths", std::to_string(paths),
                             "from 1 to 32"));
  THALWEG_TRY_STATUS(require_bytes(frame_overhead, Bytes(), "frame_overhead", "from 0B to 1TiB"));
  THALWEG_TRY_STATUS(require_number(most_tensors >= 1, "most_tensors", most_tensors, "at least 1"));
  THALWEG_TRY_STATUS(validate_congestion(congestion));
  THALWEG_TRY_STATUS(validate_prediction(prediction));
  return validate_recovery(recovery);
}

Bytes AtpWorkerOptions::packet_bytes() const {
  wire::AtpHeader header;
  header.keyed = keyed;
  header.elements = static_cast<std::uint16_t>(elements);
  return frame_overhead + Bytes(static_cast<std::int64_t>(wire::atp_packet_size(header)));
}

Status AtpServerOptions::validate() const {
  THALWEG_TRY_STATUS(validate_shape(servers, elements, window));
  THALWEG_TRY_STATUS(
      require(in_range(static_cast<std::uint32_t>(groups.size()), wire::kAtpMostGroups), "groups",
              std::to_string(groups.size()), "from 1 to 32 groups"));
  for (const std::uint8_t workers : groups) {
    THALWEG_TRY_STATUS(require(in_range(workers, wire::kAtpMostWorkersPerGroup), "groups",
                               std::to_string(workers), "from 1 to 32 workers each"));
  }
  THALWEG_TRY_STATUS(require(index < servers, "index", std::to_string(index), "below servers"));
  THALWEG_TRY_STATUS(require(!seat || (seat->group < groups.size() && groups[seat->group] >= 2 &&
                                       seat->index < groups[seat->group]),
                             "seat", seat ? std::to_string(seat->index) : "",
                             "a worker of the job, in a group of two or more"));
  THALWEG_TRY_STATUS(require(!repetitions || servers <= wire::kAtpMostServersOfRepetitions,
                             "servers", std::to_string(servers), "at most 32 with repetitions"));
  return require_positive(deadline, "deadline");
}

}  // namespace thalweg::proto
