#include "net/atp/packet_train.h"

#include <utility>

#include "base/check.h"

namespace thalweg::net {
namespace {

// ECN-capable: switches mark these packets where they drop others.
constexpr std::uint8_t kTrafficClass = 2;

std::vector<PacketTrain::End> ends_with_one_path(std::vector<SocketAddress> addresses) {
  std::vector<PacketTrain::End> ends;
  for (SocketAddress& address : addresses) ends.push_back({std::move(address), 1});
  return ends;
}

}  // namespace

PacketTrain::PacketTrain(UdpSocket& socket, std::vector<SocketAddress> ends)
    : PacketTrain(std::vector{&socket}, ends_with_one_path(std::move(ends))) {}

PacketTrain::PacketTrain(std::vector<UdpSocket*> sockets, std::vector<End> ends)
    : sockets_(std::move(sockets)), ends_(std::move(ends)) {
  for (const End& end : ends_) {
    CHECK(end.paths >= 1 && end.paths <= sockets_.size());
    spread_ |= end.paths > 1;
  }
}

std::span<std::byte> PacketTrain::add(std::size_t size, std::uint32_t path) {
  CHECK(size > 0 && size <= UdpSocket::kMaxMessage);
  if (bytes_.empty()) bytes_.resize(UdpSocket::kMaxMessage);
  if (lose_packet_ && lose_packet_(offered_++)) {
    lost_room_.resize(bytes_.size());
    return std::span(lost_room_).first(size);
  }
  if (used_ > 0 && (closed_ || size > packet_size_ || packets_ == UdpSocket::kMaxPackets ||
                    used_ + size > bytes_.size() || (spread_ && path != path_))) {
    flush();
  }
  path_ = path;
  if (used_ == 0) packet_size_ = size;
  closed_ = size < packet_size_;
  const std::span<std::byte> room = std::span(bytes_).subspan(used_, size);
  used_ += size;
  ++packets_;
  return room;
}

void PacketTrain::redirect(const End& end) {
  CHECK(used_ == 0 && end.paths >= 1 && end.paths <= sockets_.size());
  ends_.assign(1, end);
  spread_ = end.paths > 1;
}

void PacketTrain::flush() {
  if (used_ == 0) return;
  for (const End& end : ends_) {
    UdpSocket& socket = *sockets_[end.paths > 1 ? path_ : 0];
    const auto sent =
        socket.send_run(std::span(bytes_).first(used_), packet_size_, kTrafficClass, &end.address);
    if (sent == UdpSocket::Sent::kAll) continue;
    socket.abandon();
    counters_.lost += packets_;
  }
  counters_.packets += packets_;
  counters_.bytes += used_;
  used_ = 0;
  packets_ = 0;
  closed_ = false;
}

}  // namespace thalweg::net
