#include "net/atp/admission.h"

#include <algorithm>
#include <utility>

#include "net/io/system.h"

namespace thalweg::net {
namespace {

// A switch that does not answer within this time counts as absent.
constexpr Duration kSwitchTime = Duration::milliseconds(2'000);

}  // namespace

Result<AtpAdmission> admit_atp_job(const std::string& switch_address, const SwitchSecrets& secrets,
                                   JobRequest request, std::uint32_t elements, Time until) {
  // Without a switch the job gets a random number, so that stray packets of other jobs do not
  // match.
  constexpr std::uint32_t kMostId = 0x7fff'ffff;
  AtpAdmission admission;
  admission.grant.id = static_cast<std::uint32_t>(random_number() & kMostId);
  admission.grant.elements = elements;
  if (switch_address.empty()) return admission;
  const Time by = std::min(until, monotonic_now() + kSwitchTime);
  Result<SwitchClient> client = SwitchClient::connect(switch_address, secrets, by);
  // The switch is there, but one of us has another key or none.
  if (!client.ok() && client.error().code() == ErrorCode::kMismatch) return client.error();
  // The switch cannot be reached: the servers add everything.
  if (!client.ok()) return admission;
  request.lease = true;
  Result<JobGrant> grant = client->create(request, by);
  // The switch is gone or hangs.
  if (!grant.ok() && !client->answered()) return admission;
  // The switch has no room: the servers add everything, and the sum is the same.
  if (!grant.ok() && grant.error().code() == ErrorCode::kNoResource) {
    admission.without_room = grant.error().message();
    return admission;
  }
  if (!grant.ok()) return grant.error();
  admission.grant = std::move(*grant);
  admission.grant.elements = std::min(admission.grant.elements, elements);
  admission.lease = std::make_unique<SwitchClient>(std::move(*client));
  return admission;
}

}  // namespace thalweg::net
