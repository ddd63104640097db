#include "net/atp/leases.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <utility>

#include "net/atp/levels.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

// How often the thread looks at the connections, and asks a switch that is away.
constexpr auto kLookEvery = std::chrono::milliseconds(200);
// How long one look waits for a switch. An answer that comes later is read at a later look.
constexpr Duration kLookTime = Duration::milliseconds(200);
// A connection to a switch with a key takes three round trips, and cannot go on at a later look.
constexpr Duration kGreetTime = Duration::milliseconds(1'000);

void warn_refused(const std::string& address, const Error& error) {
  fmt::print(stderr, "thalweg: warning: the switch at {} does not take the job again: {}\n",
             address, error.message());
}

}  // namespace

AtpLeases::AtpLeases(std::vector<AtpLease> leases, SwitchSecrets secrets,
                     std::unique_ptr<AtpReturns> returns)
    : leases_(std::move(leases)), secrets_(std::move(secrets)), returns_(std::move(returns)) {
  if (!leases_.empty() || returns_) thread_ = std::thread([this] { watch(); });
}

AtpLeases::~AtpLeases() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void AtpLeases::end_earlier() {
  const std::lock_guard lock(mutex_);
  gone_over_ = true;
}

void AtpLeases::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [this] { return ending_; })) {
    if (std::exchange(gone_over_, false)) {
      goes_over_ = false;
      earlier_.clear();
    }
    lock.unlock();
    keep(leases_);
    keep(earlier_);
    if (returns_ && !goes_over_) find_better();
    lock.lock();
  }
}

void AtpLeases::keep(std::vector<AtpLease>& leases) {
  // All at once, so that none waits for a switch that is silent.
  std::vector<std::future<bool>> renewed(leases.size());
  for (std::size_t i = 0; i < leases.size(); ++i) {
    AtpLease& lease = leases[i];
    if (lease.client && lease.client->ended()) lease.client.reset();
    if (lease.client) continue;
    renewed[i] = std::async(std::launch::async, [this, &lease] { return renew(lease); });
  }
  std::vector<AtpLease> kept;
  for (std::size_t i = 0; i < leases.size(); ++i) {
    if (!renewed[i].valid() || renewed[i].get()) {
      kept.push_back(std::move(leases[i]));
    } else if (returns_ && &leases == &leases_) {
      returns_->miss(leases[i].address);
    }
  }
  leases = std::move(kept);
}

bool AtpLeases::renew(AtpLease& lease) const {
  if (!lease.asked) {
    const Time reached = monotonic_now() + (secrets_.key ? kGreetTime : kLookTime);
    Result<SwitchClient> client = SwitchClient::connect(lease.address, secrets_, reached, true);
    if (!client.ok() && client.error().code() == ErrorCode::kMismatch) {
      warn_refused(lease.address, client.error());
      return false;
    }
    if (!client.ok()) return true;
    if (!client->send_create(lease.request, monotonic_now() + kLookTime).ok()) return true;
    lease.asked = std::make_unique<SwitchClient>(std::move(*client));
  }
  const Time by = monotonic_now() + kLookTime;
  const Result<JobGrant> grant = lease.asked->created(lease.request, by);
  const bool answered = lease.asked->answered();
  if (!answered && grant.error().code() == ErrorCode::kTimeout) return true;
  std::unique_ptr<SwitchClient> client = std::move(lease.asked);
  if (!grant.ok() && answered && grant.error().code() != ErrorCode::kNoResource) {
    warn_refused(lease.address, grant.error());
    return false;
  }
  if (!grant.ok()) return true;
  // The ranks send to the addresses that the switch had, in packets of the size that it took.
  if (grant->data != lease.grant.data || grant->elements < lease.grant.elements) return false;
  lease.client = std::move(client);
  return true;
}

void AtpLeases::find_better() {
  const auto held = static_cast<std::size_t>(std::ranges::count_if(
      leases_, [](const AtpLease& lease) { return lease.client != nullptr; }));
  std::optional<AtpLevels> next = returns_->look(held);
  if (!next) return;
  earlier_ = std::exchange(leases_, std::move(next->leases));
  goes_over_ = true;
}

}  // namespace thalweg::net
