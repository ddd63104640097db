// Asks a switch to admit an ATP job; the job lasts as long as its lease. Without a switch the job
// runs on its servers alone.
#pragma once

#include <memory>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/atp/job_message.h"
#include "net/atp/switch_client.h"

namespace thalweg::net {

struct AtpAdmission {
  JobGrant grant;                       // `data` is empty if there is no switch
  std::unique_ptr<SwitchClient> lease;  // the job ends with this connection; null without a switch
  std::string without_room;             // what a switch said that has no room; empty: none did
};

// Asks the switch at this address; an empty address means no switch. If the switch cannot be
// reached, does not answer in time or has no room, the job has no switch, and packets of `elements`
// elements. Any other refusal by the switch is an error.
[[nodiscard]] Result<AtpAdmission> admit_atp_job(const std::string& switch_address,
                                                 const SwitchSecrets& secrets, JobRequest request,
                                                 std::uint32_t elements, Time until);

}  // namespace thalweg::net
