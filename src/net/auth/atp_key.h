// The key of an ATP job, made from the job key of all ranks (THALWEG_KEY_FILE). The switches of the
// job get it, and the job key itself stays with the ranks.
#pragma once

#include <cstdint>

#include "net/auth/derived_key.h"
#include "wire/authenticate.h"

namespace thalweg::net {

// `salt`: a number that rank 0 draws for each job and tells the others, so that no two jobs have
// the same key.
[[nodiscard]] wire::JobKey atp_key(const wire::JobKey& job_key, std::uint64_t salt);

}  // namespace thalweg::net
