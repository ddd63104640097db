#include "net/group/streams/stream_notes.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

#include "net/io/system.h"

namespace thalweg::net {
namespace {

// Segments that the kernel has sent again on a TCP stream since its beginning.
std::int64_t sent_again(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  if (size < offsetof(tcp_info, tcpi_total_retrans) + sizeof(info.tcpi_total_retrans)) return 0;
  return info.tcpi_total_retrans;
}

}  // namespace

void StreamNotes::on_stall(Rank peer) {
  if (wanted_) stalled_since_.try_emplace(peer, monotonic_now());
}

void StreamNotes::on_resumed(const Operation::State& op, Rank peer) {
  const auto found = stalled_since_.find(peer);
  if (found == stalled_since_.end()) return;
  if (op.notes) op.notes->add_stall({found->second, monotonic_now(), peer});
  stalled_since_.erase(found);
}

void StreamNotes::on_end(const Operation::State& op, const Streams& streams, bool over_streams) {
  if (!op.notes) return;
  const Time now = monotonic_now();
  op.notes->close(now);
  if (!over_streams) return;
  for (const Rank peer : op.peers()) {
    const Connection& connection = streams.to(peer);
    if (!connection.connected()) continue;
    std::int64_t again = sent_again(connection.fd());
    for (const Lane& lane : connection.lanes()) {
      if (lane.fd.valid()) again += sent_again(lane.fd.get());
    }
    sent_again_.resize(std::max(sent_again_.size(), peer.index() + 1));
    std::int64_t& before = sent_again_[peer.index()];
    if (again > before) {
      op.notes->add_loss(
          {.at = now, .peer = peer, .sends = true, .again = true, .count = again - before});
    }
    before = again;
  }
}

}  // namespace thalweg::net
