// Reads the metrics of running ranks, as `thalweg top` shows them: Prometheus' text, from the
// addresses that the ranks' THALWEG_METRICS named.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/units.h"

namespace thalweg::lab {

// The metrics of one rank at one time, or why there are none.
struct RankMetrics {
  // By name, without prefix, suffix and labels; each is the sum over all labels.
  std::map<std::string, double> values;
  std::string rank;
  std::string error;  // empty: the rank answered
  Time when;          // of the answer
};

// Asks the rank whose metrics are at `place`, "host:port". Waits two seconds at most. `token`: of a
// job with a key (net::metrics_token()); empty: none is sent.
[[nodiscard]] RankMetrics read_rank_metrics(const std::string& place, const std::string& token);

// One object per place, in order.
[[nodiscard]] nlohmann::json metrics_json(const std::vector<std::string>& places,
                                          const std::vector<RankMetrics>& metrics);

// One row per place: rates since `before`, or counts since the start of the ranks if that is empty.
// There is no rate for a rank that did not answer before, or counts less than before, which means
// that it was started anew. Errors follow the table.
[[nodiscard]] std::string metrics_table(const std::vector<std::string>& places,
                                        const std::vector<RankMetrics>& metrics,
                                        const std::vector<RankMetrics>& before);

}  // namespace thalweg::lab
