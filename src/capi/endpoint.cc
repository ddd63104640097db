// Endpoints, peers and transfers of the C API.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <thalweg/endpoint.h>
#include <thalweg/thalweg_endpoint.h>

#include "capi/arguments.h"
#include "capi/endpoint_options.h"
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

thalweg_counters counters_of(const NetCounters& counters) {
  return {.packets_sent = counters.packets_sent,
          .packets_retransmitted = counters.packets_retransmitted,
          .packets_received = counters.packets_received,
          .packets_marked = counters.packets_marked,
          .packets_unused = counters.packets_unused,
          .packets_bad = counters.packets_bad,
          .packets_corrupt = counters.packets_corrupt,
          .packets_forged = counters.packets_forged,
          .packets_replayed = counters.packets_replayed,
          .packets_stale = counters.packets_stale,
          .messages_bad = counters.messages_bad,
          .grants_sent = counters.grants_sent,
          .grants_received = counters.grants_received,
          .messages_forged = counters.messages_forged,
          .send_errors = counters.send_errors,
          .peers_refused = counters.peers_refused,
          .send_calls = counters.send_calls,
          .receive_calls = counters.receive_calls};
}
static_assert(sizeof(thalweg_counters) == sizeof(NetCounters), "the C API has every count");

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

int thalweg_endpoint_counters(const thalweg_endpoint* endpoint, thalweg_counters* counters) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Endpoint* const known, endpoint_of(endpoint));
    THALWEG_TRY_STATUS(needed("counters", counters != nullptr));
    *counters = counters_of(known->counters());
    return ok_status();
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

int thalweg_peer_packet_payload(const thalweg_peer* peer, size_t* bytes) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Peer* const known, peer_of(peer));
    THALWEG_TRY_STATUS(needed("bytes", bytes != nullptr));
    *bytes = known->packet_payload();
    return ok_status();
  });
}

int thalweg_peer_data_vanishes(const thalweg_peer* peer, int* vanishes) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Peer* const known, peer_of(peer));
    THALWEG_TRY_STATUS(needed("vanishes", vanishes != nullptr));
    *vanishes = known->data_vanishes() ? 1 : 0;
    return ok_status();
  });
}

int thalweg_peer_counters(const thalweg_peer* peer, thalweg_counters* counters) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Peer* const known, peer_of(peer));
    THALWEG_TRY_STATUS(needed("counters", counters != nullptr));
    *counters = counters_of(known->counters());
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

int thalweg_transfer_wait_for(const thalweg_transfer* transfer, double limit_s,
                              thalweg_report* report) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Transfer* const known, transfer_of(transfer));
    THALWEG_TRY(const std::chrono::nanoseconds limit, duration_of("limit_s", limit_s));
    THALWEG_TRY(const TransferReport found, known->wait(limit));
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
