// Messages through NCCL's own logger, so that they stand in its log beside its own.
#pragma once

#include <string>

#include <thalweg/result.h>

#include "nccl/abi.h"

namespace thalweg::nccl {

// The logger of the latest init(). Any thread may log; without a logger nothing is written.
void set_logger(NcclLogger logger);
void log_info(const std::string& text);
void log_warning(const std::string& text);

// Warns of the error and returns what NCCL is told.
NcclResult report(const Error& error);

}  // namespace thalweg::nccl
