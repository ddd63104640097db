// Endpoints, peers and transfers of the C API.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/endpoint.h>
#include <thalweg/thalweg_endpoint.h>

#include "capi/arguments.h"
#include "capi/guarded.h"

extern "C" {

// NOLINTBEGIN(readability-identifier-naming): names of the C API
struct thalweg_endpoint {
  thalweg::Endpoint endpoint;
};
struct thalweg_peer {
  thalweg::Peer peer;
};
struct thalweg_transfer {
  thalweg::Transfer transfer;
};
// NOLINTEND(readability-identifier-naming)

}  // extern "C"

namespace thalweg::capi {
namespace {

Result<const Endpoint*> endpoint_of(const thalweg_endpoint* endpoint) {
  THALWEG_TRY_STATUS(needed("endpoint", endpoint != nullptr));
  return &endpoint->endpoint;
}

Result<const Peer*> peer_of(const thalweg_peer* peer) {
  THALWEG_TRY_STATUS(needed("peer", peer != nullptr));
  return &peer->peer;
}

Result<const Transfer*> transfer_of(const thalweg_transfer* transfer) {
  THALWEG_TRY_STATUS(needed("transfer", transfer != nullptr));
  return &transfer->transfer;
}

Result<EndpointOptions> endpoint_options_of(const thalweg_endpoint_options* options) {
  if (options == nullptr) return EndpointOptions{};
  THALWEG_TRY_STATUS(
      initialized("thalweg_endpoint_options", options->struct_size, sizeof *options));
  THALWEG_TRY(const auto peer_timeout, duration_of("peer_timeout_s", options->peer_timeout_s));
  EndpointOptions made;
  made.listen = text_of(options->listen);
  made.connect_from = text_of(options->connect_from);
  made.job_token = options->job_token;
  made.job_key = text_of(options->job_key);
  made.name = text_of(options->name);
  made.packet_payload = options->packet_payload;
  made.line_rate_gbps = options->line_rate_gbps;
  made.paths = options->paths;
  made.peer_timeout = std::chrono::ceil<std::chrono::milliseconds>(peer_timeout);
  made.checksum = options->checksum != 0;
  made.record_folder = text_of(options->record_folder);
  if (options->warn != nullptr) {
    made.warn = [warn = options->warn, context = options->warn_context](const std::string& text) {
      warn(text.c_str(), context);
    };
  }
  return made;
}

// A queue that does not fit is one that the endpoint refuses.
PacketTag tag_of(const thalweg_packet_tag& tag) {
  constexpr int kMost = std::numeric_limits<std::uint8_t>::max();
  const bool fits = tag.queue >= 0 && tag.queue <= kMost;
  return {.priority = static_cast<std::uint8_t>(fits ? tag.queue : kMost),
          .important = tag.important != 0};
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

std::int64_t missing_elements(const TransferReport& report) {
  std::int64_t missing = 0;
  for (const ElementRange& range : report.missing) missing += range.end - range.begin;
  return missing;
}

thalweg_report report_of(const TransferReport& report) {
  return {.fraction = report.fraction,
          .packets = report.packets,
          .bytes = report.bytes,
          .retransmissions = report.retransmissions,
          .time_s = std::chrono::duration<double>(report.time).count(),
          .missing = missing_elements(report)};
}

// Runs `make`, whose result becomes *made, in the struct of that name.
template <class Handle, class Make>
int made_by(const char* name, Handle** made, Make make) {
  return guarded([&]() -> Status {
    THALWEG_TRY_STATUS(needed(name, made != nullptr));
    *made = nullptr;
    auto result = make();
    if (!result.ok()) return result.error();
    *made = new Handle{std::move(*result)};
    return ok_status();
  });
}

}  // namespace
}  // namespace thalweg::capi

using namespace thalweg;
using namespace thalweg::capi;

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
              .peer_timeout_s = 10,
              .checksum = 1,
              .record_folder = nullptr,
              .warn = nullptr,
              .warn_context = nullptr};
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
              .on_arrival = nullptr,
              .arrival_context = nullptr,
              .timeout_s = 30};
}

int thalweg_endpoint_create(const thalweg_endpoint_options* options, thalweg_endpoint** made) {
  return made_by("made", made, [&]() -> Result<Endpoint> {
    THALWEG_TRY(const EndpointOptions checked, endpoint_options_of(options));
    return Endpoint::create(checked);
  });
}

void thalweg_endpoint_destroy(thalweg_endpoint* endpoint) { delete endpoint; }

int thalweg_endpoint_address(const thalweg_endpoint* endpoint, const char** address) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Endpoint* const known, endpoint_of(endpoint));
    THALWEG_TRY_STATUS(needed("address", address != nullptr));
    *address = known->address().c_str();
    return ok_status();
  });
}

int thalweg_endpoint_connect(const thalweg_endpoint* endpoint, const char* address, double limit_s,
                             thalweg_peer** made) {
  return made_by("made", made, [&]() -> Result<Peer> {
    THALWEG_TRY(const Endpoint* const known, endpoint_of(endpoint));
    THALWEG_TRY(const std::chrono::nanoseconds limit, duration_of("limit_s", limit_s));
    return known->connect(text_of(address), limit);
  });
}

int thalweg_endpoint_accept(const thalweg_endpoint* endpoint, double limit_s, thalweg_peer** made) {
  return made_by("made", made, [&]() -> Result<Peer> {
    THALWEG_TRY(const Endpoint* const known, endpoint_of(endpoint));
    THALWEG_TRY(const std::chrono::nanoseconds limit, duration_of("limit_s", limit_s));
    return known->accept(limit);
  });
}

int thalweg_peer_name(const thalweg_peer* peer, const char** name) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Peer* const known, peer_of(peer));
    THALWEG_TRY_STATUS(needed("name", name != nullptr));
    *name = known->name().c_str();
    return ok_status();
  });
}

int thalweg_peer_connected(const thalweg_peer* peer, int* connected) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Peer* const known, peer_of(peer));
    THALWEG_TRY_STATUS(needed("connected", connected != nullptr));
    *connected = known->connected() ? 1 : 0;
    return ok_status();
  });
}

int thalweg_peer_close(const thalweg_peer* peer) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Peer* const known, peer_of(peer));
    known->close();
    return ok_status();
  });
}

void thalweg_peer_free(thalweg_peer* peer) { delete peer; }

int thalweg_read_job_key(const char* path, char* key, size_t size) {
  return guarded([&]() -> Status {
    THALWEG_TRY_STATUS(needed("path", path != nullptr));
    THALWEG_TRY_STATUS(needed("key", key != nullptr));
    THALWEG_TRY(const std::string found, read_job_key(path));
    if (size <= found.size()) {
      return Error(fmt::format("size: {}; a key needs {} bytes", size, found.size() + 1));
    }
    std::memcpy(key, found.c_str(), found.size() + 1);
    return ok_status();
  });
}

int thalweg_peer_send(const thalweg_peer* peer, const void* tensor, int64_t elements, int type,
                      const thalweg_peer_send_options* options, thalweg_transfer** started) {
  return made_by("started", started, [&]() -> Result<Transfer> {
    THALWEG_TRY(const Peer* const known, peer_of(peer));
    THALWEG_TRY(const TensorView view, view_of(tensor, elements, type));
    THALWEG_TRY(const SendOptions checked, send_options_of(options));
    return known->send(view, checked);
  });
}

int thalweg_peer_recv(const thalweg_peer* peer, void* tensor, int64_t elements, int type,
                      const thalweg_peer_recv_options* options, thalweg_transfer** started) {
  return made_by("started", started, [&]() -> Result<Transfer> {
    THALWEG_TRY(const Peer* const known, peer_of(peer));
    THALWEG_TRY(const TensorSpan span, span_of(tensor, elements, type));
    THALWEG_TRY(const RecvOptions checked, recv_options_of(options));
    return known->recv(span, checked);
  });
}

int thalweg_transfer_wait(const thalweg_transfer* transfer, thalweg_report* report) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Transfer* const known, transfer_of(transfer));
    THALWEG_TRY(const TransferReport found, known->wait());
    if (report != nullptr) *report = report_of(found);
    return ok_status();
  });
}

int thalweg_transfer_test(const thalweg_transfer* transfer, int* done) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Transfer* const known, transfer_of(transfer));
    THALWEG_TRY_STATUS(needed("done", done != nullptr));
    *done = known->done() ? 1 : 0;
    return ok_status();
  });
}

int thalweg_transfer_missing(const thalweg_transfer* transfer, thalweg_range* ranges, size_t most,
                             size_t* count) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Transfer* const known, transfer_of(transfer));
    THALWEG_TRY_STATUS(needed("ranges", ranges != nullptr || most == 0));
    THALWEG_TRY_STATUS(needed("count", count != nullptr));
    if (!known->done()) return Error("the transfer is not over: what is missing is not known");
    THALWEG_TRY(const TransferReport found, known->wait());
    *count = found.missing.size();
    for (std::size_t i = 0; i < std::min(most, *count); ++i) {
      ranges[i] = {found.missing[i].begin, found.missing[i].end};
    }
    return ok_status();
  });
}

int thalweg_transfer_offer(const thalweg_transfer* transfer, int64_t begin, int64_t end) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Transfer* const known, transfer_of(transfer));
    return known->offer({.begin = begin, .end = end});
  });
}

int thalweg_transfer_cancel(const thalweg_transfer* transfer) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Transfer* const known, transfer_of(transfer));
    known->cancel();
    return ok_status();
  });
}

void thalweg_transfer_free(thalweg_transfer* transfer) { delete transfer; }
