#include "capi/arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capi/handles.h"

namespace thalweg::capi {
namespace {

constexpr double kMostSeconds = 1e9;
// Elements of a tensor. With this limit no count of bytes overflows.
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
constexpr int kTransportCount = static_cast<int>(Transport::kAuto) + 1;

static_assert(static_cast<int>(DType::kFloat32) == THALWEG_FLOAT32);
static_assert(static_cast<int>(DType::kFloat64) == THALWEG_FLOAT64);
static_assert(static_cast<int>(DType::kFloat16) == THALWEG_FLOAT16);
static_assert(static_cast<int>(DType::kBFloat16) == THALWEG_BFLOAT16);
static_assert(static_cast<int>(DType::kInt8) == THALWEG_INT8);
static_assert(static_cast<int>(DType::kInt16) == THALWEG_INT16);
static_assert(static_cast<int>(DType::kInt32) == THALWEG_INT32);
static_assert(static_cast<int>(DType::kInt64) == THALWEG_INT64);
static_assert(static_cast<int>(DType::kFloat8E4m3fn) == THALWEG_FLOAT8_E4M3FN);
static_assert(static_cast<int>(DType::kFloat8E5m2) == THALWEG_FLOAT8_E5M2);
static_assert(kDTypeCount == THALWEG_FLOAT8_E5M2 + 1, "the C API has every type");
static_assert(static_cast<int>(ReduceOp::kSum) == THALWEG_SUM);
static_assert(static_cast<int>(ReduceOp::kProduct) == THALWEG_PRODUCT);
static_assert(static_cast<int>(ReduceOp::kMin) == THALWEG_MIN);
static_assert(static_cast<int>(ReduceOp::kMax) == THALWEG_MAX);
static_assert(static_cast<int>(ReduceOp::kMean) == THALWEG_MEAN);
static_assert(kReduceOpCount == THALWEG_MEAN + 1, "the C API has every reduction");
static_assert(static_cast<int>(Transport::kTcp) == THALWEG_TCP);
static_assert(static_cast<int>(Transport::kDlcp) == THALWEG_DLCP);
static_assert(static_cast<int>(Transport::kAtp) == THALWEG_ATP);
static_assert(static_cast<int>(Transport::kAuto) == THALWEG_AUTO);
static_assert(Communicator::kAnySource == THALWEG_ANY_SOURCE);
static_assert(Communicator::kNoColor == THALWEG_NO_COLOR);

template <class Enum>
Result<Enum> one_of(const char* name, int value, int count) {
  if (value >= 0 && value < count) return static_cast<Enum>(value);
  return Error(fmt::format("{}: {}; from 0 to {} are allowed", name, value, count - 1));
}

// None for -1.
Result<std::optional<int>> optional_number(const char* name, int value) {
  if (value < -1) return Error(fmt::format("{}: {}; -1, 0 or more are allowed", name, value));
  return value == -1 ? std::nullopt : std::optional(value);
}

Result<std::optional<std::uint32_t>> optional_count(const char* name, int value) {
  THALWEG_TRY(const std::optional<int> number, optional_number(name, value));
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

std::vector<std::string> names_of(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    names.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

Status check_elements(std::int64_t elements, int parts) {
  if (elements >= 0 && elements <= kMostElements / parts) return ok_status();
  return Error(
      fmt::format("elements: {}; from 0 to {} are allowed", elements, kMostElements / parts));
}

}  // namespace

Result<const Communicator*> communicator_of(const thalweg_communicator* communicator) {
  THALWEG_TRY_STATUS(needed("communicator", communicator != nullptr));
  return &communicator->all;
}

Result<const Operation*> operation_of(const thalweg_operation* operation) {
  THALWEG_TRY_STATUS(needed("operation", operation != nullptr));
  return &operation->operation;
}

Status needed(const char* name, bool given) {
  if (given) return ok_status();
  return Error(fmt::format("{}: a null pointer is not allowed", name));
}

Status initialized(const char* name, std::size_t found, std::size_t expected) {
  if (found == expected) return ok_status();
  return Error(
      fmt::format("{0}: struct_size is {1} instead of {2}: {0}_init() was not called, or "
                  "the program was compiled with another version of the header",
                  name, found, expected));
}

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

Result<CommunicatorOptions> options_of(const thalweg_options* options) {
  if (options == nullptr) return CommunicatorOptions{};
  THALWEG_TRY_STATUS(initialized("thalweg_options", options->struct_size, sizeof *options));
  CommunicatorOptions made;
  THALWEG_TRY(made.rank, optional_number("rank", options->rank));
  THALWEG_TRY(made.size, optional_number("size", options->size));
  THALWEG_TRY(made.timeout, duration_of("timeout_s", options->timeout_s));
  THALWEG_TRY(made.transport, one_of<Transport>("transport", options->transport, kTransportCount));
  THALWEG_TRY(made.streams, optional_number("streams", options->streams));
  THALWEG_TRY(made.channels, optional_number("channels", options->channels));
  THALWEG_TRY(made.dlcp_payload, optional_count("dlcp_payload", options->dlcp_payload));
  THALWEG_TRY(made.dlcp_paths, optional_count("dlcp_paths", options->dlcp_paths));
  made.store = text_of(options->store);
  if (!text_of(options->group).empty()) made.group = options->group;
  made.join = options->join != 0;
  made.scheme = text_of(options->scheme);
  made.topology = text_of(options->topology);
  made.shared_memory = options->shared_memory != 0;
  made.interfaces = names_of(text_of(options->interfaces));
  made.channel_bytes = options->channel_bytes;
  made.dlcp_line_rate_gbps = options->dlcp_line_rate_gbps;
  made.atp_switch = text_of(options->atp_switch);
  made.atp_servers = options->atp_servers;
  made.atp_elements = options->atp_elements;
  return made;
}

Result<CallOptions> call_of(const thalweg_call_options* options) {
  if (options == nullptr) return CallOptions{};
  THALWEG_TRY_STATUS(initialized("thalweg_call_options", options->struct_size, sizeof *options));
  CallOptions made;
  THALWEG_TRY(made.deadline, duration_of("timeout_s", options->timeout_s));
  made.scheme = text_of(options->scheme);
  made.priority = options->priority;
  if (options->transport != THALWEG_DEFAULT) {
    THALWEG_TRY(made.transport,
                one_of<Transport>("transport", options->transport, kTransportCount));
  }
  made.loss_bound = options->loss_bound;
  if (options->result_loss_bound >= 0) made.result_loss_bound = options->result_loss_bound;
  if (options->dlcp_queue < 0 || options->dlcp_queue > std::numeric_limits<std::uint8_t>::max()) {
    return Error(fmt::format("dlcp_queue: {}; from 1 to 7 are allowed", options->dlcp_queue));
  }
  made.dlcp_queue = static_cast<std::uint8_t>(options->dlcp_queue);
  made.residual = options->residual;
  return made;
}

Result<CallOptions> call_of(const thalweg_call_options* options, int op) {
  THALWEG_TRY(CallOptions made, call_of(options));
  THALWEG_TRY(made.op, one_of<ReduceOp>("op", op, kReduceOpCount));
  return made;
}

Result<TensorSpan> span_of(void* data, std::int64_t elements, int type, int parts) {
  THALWEG_TRY(const DType known, one_of<DType>("type", type, kDTypeCount));
  THALWEG_TRY_STATUS(check_elements(elements, parts));
  return TensorSpan{data, elements * parts, known};
}

Result<TensorView> view_of(const void* data, std::int64_t elements, int type, int parts) {
  THALWEG_TRY(const DType known, one_of<DType>("type", type, kDTypeCount));
  THALWEG_TRY_STATUS(check_elements(elements, parts));
  return TensorView{data, elements * parts, known};
}

Result<std::chrono::nanoseconds> duration_of(const char* name, double seconds) {
  if (!(seconds > 0 && seconds <= kMostSeconds)) {
    return Error(fmt::format("{}: {}; seconds above 0, up to 1e9, are allowed", name, seconds));
  }
  return std::chrono::round<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace thalweg::capi

void thalweg_options_init(thalweg_options* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof *options,
              .rank = THALWEG_FROM_ENVIRONMENT,
              .size = THALWEG_FROM_ENVIRONMENT,
              .store = nullptr,
              .group = nullptr,
              .join = 0,
              .timeout_s = 60,
              .scheme = nullptr,
              .topology = nullptr,
              .transport = THALWEG_TCP,
              .shared_memory = 1,
              .interfaces = nullptr,
              .streams = THALWEG_DEFAULT,
              .channels = THALWEG_DEFAULT,
              .channel_bytes = std::size_t{512} << 10,
              .dlcp_payload = THALWEG_DEFAULT,
              .dlcp_paths = THALWEG_DEFAULT,
              .dlcp_line_rate_gbps = 0,
              .atp_switch = nullptr,
              .atp_servers = 0,
              .atp_elements = 256};
}

void thalweg_call_options_init(thalweg_call_options* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof *options,
              .timeout_s = 60,
              .scheme = nullptr,
              .priority = 0,
              .transport = THALWEG_DEFAULT,
              .loss_bound = 0,
              .result_loss_bound = THALWEG_DEFAULT,
              .dlcp_queue = 1,
              .residual = nullptr};
}
