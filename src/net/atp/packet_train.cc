#include "net/atp/packet_train.h"

#include <utility>

#include "base/check.h"

namespace thalweg::net {
namespace {

// ECN-capable: switches mark these packets where they drop others.
constexpr std::uint8_t kTrafficClass = 2;

}  // namespace

PacketTrain::PacketTrain(UdpSocket& socket, std::vector<SocketAddress> ends)
    : socket_(socket), ends_(std::move(ends)), bytes_(UdpSocket::kMaxMessage) {}

std::span<std::byte> PacketTrain::add(std::size_t size) {
  CHECK(size > 0 && size <= bytes_.size());
  if (lose_packet_ && lose_packet_(offered_++)) {
    lost_room_.resize(bytes_.size());
    return std::span(lost_room_).first(size);
  }
  if (used_ > 0 && (closed_ || size > packet_size_ || packets_ == UdpSocket::kMaxPackets ||
                    used_ + size > bytes_.size())) {
    flush();
  }
  if (used_ == 0) packet_size_ = size;
  closed_ = size < packet_size_;
  const std::span<std::byte> room = std::span(bytes_).subspan(used_, size);
  used_ += size;
  ++packets_;
  return room;
}

void PacketTrain::flush() {
  if (used_ == 0) return;
  for (const SocketAddress& end : ends_) {
    const auto sent =
        socket_.send_run(std::span(bytes_).first(used_), packet_size_, kTrafficClass, &end);
    if (sent == UdpSocket::Sent::kAll) continue;
    socket_.abandon();
    counters_.lost += packets_;
  }
  counters_.packets += packets_;
  counters_.bytes += used_;
  used_ = 0;
  packets_ = 0;
  closed_ = false;
}

}  // namespace thalweg::net
