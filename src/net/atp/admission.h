// How a job comes to a switch: admitted by it for as long as the lease lasts, or without one.
#pragma once

#include <memory>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/atp/job_message.h"
#include "net/atp/switch_client.h"

namespace thalweg {

struct AtpAdmission {
  JobGrant grant;                       // data: none if there is no switch
  std::unique_ptr<SwitchClient> lease;  // the job lasts as long as this connection; or none
};

// Asks the switch at this address, if there is one. One that is not there or does not answer soon
// means a job without switch, of `elements` a packet; its refusal is an error.
[[nodiscard]] Result<AtpAdmission> admit_atp_job(const std::string& switch_address,
                                                 const std::string& token, JobRequest request,
                                                 std::uint32_t elements, Time until);

}  // namespace thalweg
