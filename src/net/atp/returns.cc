#include "net/atp/returns.h"

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>

#include "net/atp/levels.h"
#include "net/atp/switch_client.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

// How long one look waits for a switch.
constexpr Duration kRoomTime = Duration::milliseconds(500);
// How long to wait until the next attempt after one that failed. It is doubled each time.
constexpr Duration kLeastPause = Duration::milliseconds(1'000);
constexpr Duration kMostPause = Duration::milliseconds(30'000);

bool has_room(const std::string& address, const SwitchSecrets& secrets) {
  const Time by = monotonic_now() + kRoomTime;
  Result<SwitchClient> client = SwitchClient::connect(address, secrets, by, true);
  if (!client.ok()) return false;
  const Result<nlohmann::json> answer = client->ask({{"op", "room"}}, by);
  return answer.ok() && answer->value("room", nlohmann::json()) == true;
}

}  // namespace

AtpReturns::AtpReturns(std::vector<ListedSwitch> all, std::vector<ListedSwitch> missing,
                       SwitchSecrets secrets, Make make)
    : all_(std::move(all)),
      missing_(std::move(missing)),
      secrets_(std::move(secrets)),
      make_(std::move(make)),
      pause_(kLeastPause) {}

void AtpReturns::miss(const std::string& address) {
  const auto found = std::ranges::find(all_, address, &ListedSwitch::address);
  if (found != all_.end() && std::ranges::find(missing_, *found) == missing_.end()) {
    missing_.push_back(*found);
  }
}

std::vector<std::string> AtpReturns::with_room() const {
  // All at once, so that none waits for a switch that is silent.
  std::vector<std::future<bool>> asked;
  for (const ListedSwitch& one : missing_) {
    asked.push_back(
        std::async(std::launch::async, [this, &one] { return has_room(one.address, secrets_); }));
  }
  std::vector<std::string> found;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i].get()) found.push_back(missing_[i].address);
  }
  return found;
}

std::optional<AtpLevels> AtpReturns::look(std::size_t held) {
  if (missing_.empty()) return std::nullopt;
  std::vector<std::string> found = with_room();
  // A switch that went away and comes back is another chance.
  std::erase_if(tried_, [&](const std::string& address) {
    return std::ranges::find(found, address) == found.end();
  });
  if (found.empty()) return std::nullopt;
  if (found.size() == tried_.size() && monotonic_now() < next_try_) return std::nullopt;
  pause_ = tried_.empty() ? kLeastPause : std::min(pause_ + pause_, kMostPause);
  std::optional<AtpLevels> next = make_(held);
  if (next) {
    missing_ = next->missing;
    tried_.clear();
  } else {
    tried_ = std::move(found);
    next_try_ = monotonic_now() + pause_;
  }
  return next;
}

}  // namespace thalweg::net
