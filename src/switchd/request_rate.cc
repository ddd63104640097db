#include "switchd/request_rate.h"

#include <algorithm>

namespace thalweg::switchd {

bool RequestRate::admit(const std::string& address, Time now) {
  const auto known = paid_.find(address);
  const Time paid = known == paid_.end() ? now : std::max(known->second, now);
  if (paid + cost_ > now + Duration::seconds(1)) return false;
  if (known != paid_.end()) {
    known->second = paid + cost_;
    return true;
  }
  if (paid_.size() >= kMostAddresses) forget_idle(now);
  if (paid_.size() >= kMostAddresses) return false;
  paid_.emplace(address, paid + cost_);
  return true;
}

void RequestRate::forget_idle(Time now) {
  std::erase_if(paid_, [now](const auto& item) { return item.second <= now; });
}

}  // namespace thalweg::switchd
