// The border to NCCL: nothing is thrown into it. What the standard library throws is an error as
// others are.
#pragma once

#include <exception>

#include <thalweg/result.h>

#include "nccl/abi.h"
#include "nccl/log.h"

namespace thalweg::nccl {

// Calls `body`, which returns a Status; an error goes to NCCL's log.
template <class Body>
NcclResult guarded(Body body) {
  try {
    const Status status = body();
    return status.ok() ? NcclResult::kSuccess : report(status.error());
  } catch (const std::exception& thrown) {
    return report(Error(ErrorCode::kNoResource, thrown.what()));
  }
}

}  // namespace thalweg::nccl
