#include "net/atp/leases.h"

#include <chrono>
#include <utility>

#include "net/io/system.h"

namespace thalweg::net {
namespace {

// How often the thread looks at the connections, and asks a switch that is away.
constexpr auto kLookEvery = std::chrono::milliseconds(200);
// How long it waits for one switch, and the destructor for it. A switch that creates the job and is
// not heard in time has given the job's number away, and never gives it again: this must be long.
constexpr Duration kAskTime = Duration::milliseconds(2'000);

}  // namespace

AtpLeases::AtpLeases(std::vector<AtpLease> leases, std::string token)
    : leases_(std::move(leases)), token_(std::move(token)) {
  if (!leases_.empty()) thread_ = std::thread([this] { watch(); });
}

AtpLeases::~AtpLeases() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void AtpLeases::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [this] { return ending_; })) {
    lock.unlock();
    std::erase_if(leases_, [this](AtpLease& lease) {
      if (lease.client && lease.client->ended()) lease.client.reset();
      return !lease.client && !renew(lease);
    });
    lock.lock();
  }
}

bool AtpLeases::renew(AtpLease& lease) const {
  const Time by = monotonic_now() + kAskTime;
  Result<SwitchClient> client = SwitchClient::connect(lease.address, token_, by);
  if (!client.ok()) return true;
  const Result<JobGrant> grant = client->create(lease.request, by);
  if (!grant.ok()) {
    return !client->answered() || grant.error().code() == ErrorCode::kNoResource;
  }
  // The ranks send to the addresses that the switch had, in packets of the size that it took.
  if (grant->data != lease.grant.data || grant->elements < lease.grant.elements) return false;
  lease.client = std::make_unique<SwitchClient>(std::move(*client));
  return true;
}

}  // namespace thalweg::net
