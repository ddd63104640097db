// What the engine notes of an operation's transfers, for the timeline. Without a timeline no
// operation has notes, and each of these places costs one comparison.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstddef>

#include "net/group/drive/engine.h"
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

void Engine::note_stall(Rank peer) {
  if (options_.notes_steps) stalled_since_.try_emplace(peer, monotonic_now());
}

void Engine::note_resumed(Op& op, Rank peer) {
  const auto found = stalled_since_.find(peer);
  if (found == stalled_since_.end()) return;
  if (op.notes) op.notes->add_stall({found->second, monotonic_now(), peer});
  stalled_since_.erase(found);
}

void Engine::note_transfer(Op& op, bool sends, std::uint32_t index, const TransferReport& report) {
  const Time now = monotonic_now();
  const Time start = now - Duration::nanoseconds(report.time.count());
  const Rank peer = sends ? op.plan->sends()[index].target : op.plan->arrivals()[index].source;
  if (sends) {
    op.notes->add_send(index, start, now);
  } else {
    op.notes->add_arrival(index, start, now);
  }
  if (sends && report.retransmissions > 0) {
    op.notes->add_loss({.at = now,
                        .peer = peer,
                        .sends = true,
                        .again = true,
                        .count = static_cast<std::int64_t>(report.retransmissions)});
  }
  std::int64_t missing = 0;
  for (const ElementRange& range : report.missing) missing += range.end - range.begin;
  if (missing > 0) op.notes->add_loss({.at = now, .peer = peer, .count = missing});
}

void Engine::note_end(Op& op) {
  const Time now = monotonic_now();
  op.notes->close(now);
  if (op.dlcp) return;
  sent_again_.resize(connections_.size(), 0);
  for (const Rank peer : op.peers()) {
    Connection& connection = *connections_[peer.index()];
    if (!connection.connected()) continue;
    std::int64_t again = sent_again(connection.fd());
    for (const Lane& lane : connection.lanes()) {
      if (lane.fd.valid()) again += sent_again(lane.fd.get());
    }
    std::int64_t& before = sent_again_[peer.index()];
    if (again > before) {
      op.notes->add_loss(
          {.at = now, .peer = peer, .sends = true, .again = true, .count = again - before});
    }
    before = again;
  }
}

}  // namespace thalweg::net
