#include "net/auth/atp_key.h"

namespace thalweg::net {

wire::JobKey atp_key(const wire::JobKey& job_key, std::uint64_t salt) {
  return derived_key(job_key, KeyPurpose::kAtpJob, salt);
}

}  // namespace thalweg::net
