#include "capi/endpoint_options.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "capi/arguments.h"

namespace thalweg::capi {
namespace {

static_assert(sizeof(thalweg_endpoint_options::dscp) == sizeof(DscpTable), "a DSCP for each queue");

// A queue that does not fit is one that the endpoint refuses.
PacketTag tag_of(const thalweg_packet_tag& tag) {
  constexpr int kMost = std::numeric_limits<std::uint8_t>::max();
  const bool fits = tag.queue >= 0 && tag.queue <= kMost;
  return {.priority = static_cast<std::uint8_t>(fits ? tag.queue : kMost),
          .important = tag.important != 0};
}

}  // namespace

Result<EndpointOptions> endpoint_options_of(const thalweg_endpoint_options* options) {
  if (options == nullptr) return EndpointOptions{};
  THALWEG_TRY_STATUS(
      initialized("thalweg_endpoint_options", options->struct_size, sizeof *options));
  THALWEG_TRY(const auto peer_timeout, duration_of("peer_timeout_s", options->peer_timeout_s));
  EndpointOptions made;
  THALWEG_TRY(made.grace.initial, duration_of("grace_initial_s", options->grace_initial_s));
  THALWEG_TRY(made.grace.least, duration_of("grace_least_s", options->grace_least_s));
  THALWEG_TRY(made.grace.most, duration_of("grace_most_s", options->grace_most_s));
  made.grants = options->grants != 0;
  if (options->grants_round_trip_s != 0) {
    THALWEG_TRY(made.grants_round_trip,
                duration_of("grants_round_trip_s", options->grants_round_trip_s));
  }
  made.listen = text_of(options->listen);
  made.connect_from = text_of(options->connect_from);
  made.job_token = options->job_token;
  made.job_key = text_of(options->job_key);
  made.name = text_of(options->name);
  made.packet_payload = options->packet_payload;
  made.line_rate_gbps = options->line_rate_gbps;
  made.paths = options->paths;
  made.receive_buffer_bytes = options->receive_buffer_bytes;
  made.send_buffer_bytes = options->send_buffer_bytes;
  made.peer_timeout = std::chrono::ceil<std::chrono::milliseconds>(peer_timeout);
  std::ranges::copy(options->dscp, made.dscp.begin());
  made.checksum = options->checksum != 0;
  made.offload = options->offload != 0;
  made.record_folder = text_of(options->record_folder);
  if (options->warn != nullptr) {
    made.warn = [warn = options->warn, context = options->warn_context](const std::string& text) {
      warn(text.c_str(), context);
    };
  }
  return made;
}

Result<SendOptions> send_options_of(const thalweg_peer_send_options* options) {
  if (options == nullptr) return SendOptions{};
  THALWEG_TRY_STATUS(
      initialized("thalweg_peer_send_options", options->struct_size, sizeof *options));
  SendOptions made;
  THALWEG_TRY(made.deadline, duration_of("timeout_s", options->timeout_s));
  made.key = options->key;
  made.loss_bound = options->loss_bound;
  made.tag = tag_of(options->tag);
  if (options->tag_of != nullptr) {
    made.tag_of = [ask = options->tag_of, context = options->tag_context](std::int64_t first,
                                                                          std::int64_t count) {
      return tag_of(ask(first, count, context));
    };
  }
  made.urgency = options->urgency;
  made.gradual = options->gradual != 0;
  return made;
}

Result<RecvOptions> recv_options_of(const thalweg_peer_recv_options* options) {
  if (options == nullptr) return RecvOptions{};
  THALWEG_TRY_STATUS(
      initialized("thalweg_peer_recv_options", options->struct_size, sizeof *options));
  RecvOptions made;
  THALWEG_TRY(made.deadline, duration_of("timeout_s", options->timeout_s));
  made.key = options->key;
  made.loss_bound = options->loss_bound;
  if (!(options->loss_target < 0)) made.loss_target = options->loss_target;
  made.urgency = options->urgency;
  if (options->on_arrival != nullptr) {
    made.on_arrival = [tell = options->on_arrival,
                       context = options->arrival_context](std::span<const ElementRange> arrived) {
      std::vector<thalweg_range> ranges;
      ranges.reserve(arrived.size());
      for (const ElementRange& range : arrived) ranges.push_back({range.begin, range.end});
      tell(ranges.data(), ranges.size(), context);
    };
  }
  return made;
}

}  // namespace thalweg::capi

using namespace thalweg;

void thalweg_endpoint_options_init(thalweg_endpoint_options* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof *options,
              .listen = nullptr,
              .connect_from = nullptr,
              .job_token = 0,
              .job_key = nullptr,
              .name = nullptr,
              .packet_payload = 0,
              .line_rate_gbps = 0,
              .paths = 0,
              .receive_buffer_bytes = std::size_t{32} << 20,
              .send_buffer_bytes = std::size_t{4} << 20,
              .peer_timeout_s = 10,
              .grace_initial_s = 1e-3,
              .grace_least_s = 20e-6,
              .grace_most_s = 0.1,
              .grants = 0,
              .grants_round_trip_s = 0,
              .dscp = {},
              .checksum = 1,
              .offload = 1,
              .record_folder = nullptr,
              .warn = nullptr,
              .warn_context = nullptr};
  std::ranges::copy(kDefaultDscp, options->dscp);
}

void thalweg_peer_send_options_init(thalweg_peer_send_options* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof *options,
              .key = 0,
              .loss_bound = 0,
              .tag = {.queue = 1, .important = 1},
              .tag_of = nullptr,
              .tag_context = nullptr,
              .urgency = 0,
              .gradual = 0,
              .timeout_s = 30};
}

void thalweg_peer_recv_options_init(thalweg_peer_recv_options* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof *options,
              .key = 0,
              .loss_bound = 0,
              .loss_target = -1,
              .urgency = 0,
              .on_arrival = nullptr,
              .arrival_context = nullptr,
              .timeout_s = 30};
}
