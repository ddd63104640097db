#include "proto/dlcp/send_order.h"

#include "proto/require.h"

namespace thalweg::proto {

Status TransferOrder::validate(const char* prefix) const {
  constexpr double kMostAgeing = 1000;
  return require_number(ageing >= 0 && ageing <= kMostAgeing,
                        fmt::format("{}.ageing", prefix).c_str(), ageing, "from 0 to 1000");
}

std::int64_t TransferOrder::score(std::int64_t bytes_left, Time since, Bandwidth line_rate) const {
  if (!by_size) return since.since_start().ps();
  const double aged = ageing * line_rate.bytes_per_second() * since.since_start().s();
  return bytes_left + static_cast<std::int64_t>(aged);
}

}  // namespace thalweg::proto
