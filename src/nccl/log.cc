#include "nccl/log.h"

#include <atomic>

namespace thalweg::nccl {
namespace {

std::atomic<NcclLogger> logger_in_use = nullptr;

NcclResult result_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kPeerLost:
    case ErrorCode::kTimeout:
      return NcclResult::kRemoteError;
    case ErrorCode::kBadArgument:
    case ErrorCode::kMismatch:
      return NcclResult::kInvalidUsage;
    case ErrorCode::kNoResource:
      return NcclResult::kSystemError;
    case ErrorCode::kCancelled:
    case ErrorCode::kInternal:
      return NcclResult::kInternalError;
  }
  return NcclResult::kInternalError;
}

void log(int level, unsigned long flags, const std::string& text) {
  const NcclLogger logger = logger_in_use.load();
  if (logger != nullptr) logger(level, flags, "thalweg", 0, "NET/Thalweg : %s", text.c_str());
}

}  // namespace

void set_logger(NcclLogger logger) { logger_in_use.store(logger); }

void log_info(const std::string& text) { log(kNcclInfo, kNcclInitAndNet, text); }

void log_warning(const std::string& text) { log(kNcclWarn, kNcclAll, text); }

NcclResult report(const Error& error) {
  log_warning(error.message());
  return result_of(error.code());
}

}  // namespace thalweg::nccl
