#include "net/atp/packet_train.h"

#include <algorithm>
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

std::span<std::byte> PacketTrain::add(std::size_t size, std::uint32_t path,
                                      std::optional<std::size_t> except) {
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
  except_[packets_++] = except.value_or(kNone);
  excepts_ |= except.has_value();
  return room;
}

void PacketTrain::redirect(const End& end) {
  CHECK(used_ == 0 && end.paths >= 1 && end.paths <= sockets_.size());
  ends_.assign(1, end);
  spread_ = end.paths > 1;
}

void PacketTrain::flush() {
  if (used_ == 0) return;
  for (std::size_t end = 0; end < ends_.size(); ++end) {
    if (send_to(end) == UdpSocket::Sent::kAll) continue;
    sockets_[ends_[end].paths > 1 ? path_ : 0]->abandon();
    counters_.lost += packets_;
  }
  counters_.packets += packets_;
  counters_.bytes += used_;
  used_ = 0;
  packets_ = 0;
  excepts_ = false;
  closed_ = false;
}

UdpSocket::Sent PacketTrain::send_to(std::size_t end) {
  const SocketAddress& to = ends_[end].address;
  UdpSocket& socket = *sockets_[ends_[end].paths > 1 ? path_ : 0];
  const auto waiting = std::span<const std::byte>(bytes_).first(used_);
  if (!excepts_) return socket.send_run(waiting, packet_size_, kTrafficClass, &to);
  std::array<UdpPacket, UdpSocket::kMaxPackets> packets;
  std::size_t count = 0;
  for (std::size_t i = 0; i < packets_; ++i) {
    if (except_[i] == end) continue;
    const auto rest = waiting.subspan(i * packet_size_);
    packets[count++].header = rest.first(std::min(packet_size_, rest.size()));
  }
  if (count == 0) return UdpSocket::Sent::kAll;
  return socket.send(std::span(packets).first(count), kTrafficClass, &to);
}

}  // namespace thalweg::net
