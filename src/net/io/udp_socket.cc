#include "net/io/udp_socket.h"

#include <fmt/core.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr std::uint8_t kEcnMask = 3;
constexpr std::uint8_t kCongestionExperienced = 3;
// The kernel never hands over more bytes at once.
constexpr std::size_t kReceiveBuffer = std::size_t{1} << 16;
using ControlBuffer = std::array<std::byte, CMSG_SPACE(sizeof(int)) * 2>;

// Sets a socket buffer to as much of `wanted` as the system gives. Returns the bytes it gave: half
// of what the kernel reports, which includes its own bookkeeping.
std::size_t grow_buffer(int fd, int force, int plain, std::size_t wanted) {
  const int value = static_cast<int>(std::min<std::size_t>(wanted, 1U << 30));
  if (!set_option(fd, SOL_SOCKET, force, value)) set_option(fd, SOL_SOCKET, plain, value);
  int given = 0;
  socklen_t size = sizeof(given);
  getsockopt(fd, SOL_SOCKET, plain, &given, &size);
  return static_cast<std::size_t>(given) / 2;
}

void set_buffers(int fd, const UdpOptions& options) {
  const auto grow = [&](const char* what, const char* sysctl, int force, int plain,
                        std::size_t wanted) {
    const std::size_t given = grow_buffer(fd, force, plain, wanted);
    if (given >= wanted || !options.warn) return;
    options.warn(
        fmt::format("the {} buffer of UDP sockets is {} bytes instead of {}: raise it with "
                    "'sysctl -w {}={}'",
                    what, given, wanted, sysctl, wanted));
  };
  grow("receive", "net.core.rmem_max", SO_RCVBUFFORCE, SO_RCVBUF, options.receive_buffer_bytes);
  grow("send", "net.core.wmem_max", SO_SNDBUFFORCE, SO_SNDBUF, options.send_buffer_bytes);
}

template <class T>
void put_control(msghdr& message, cmsghdr*& next, int level, int type, T value) {
  CHECK(next != nullptr);
  next->cmsg_level = level;
  next->cmsg_type = type;
  next->cmsg_len = CMSG_LEN(sizeof(value));
  std::memcpy(CMSG_DATA(next), &value, sizeof(value));
  next = CMSG_NXTHDR(&message, next);
}

template <class T>
T read_control(const cmsghdr* control) {
  T value{};
  std::memcpy(&value, CMSG_DATA(control), sizeof(value));
  return value;
}

void aim(msghdr& message, const SocketAddress* to) {
  if (to == nullptr) return;
  // The kernel only reads the address, but msghdr has no const.
  message.msg_name = const_cast<sockaddr*>(to->get());  // NOLINT
  message.msg_namelen = to->size();
}

iovec piece(std::span<const std::byte> bytes) {
  // The kernel only reads what is sent, but iovec has no const.
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // NOLINT
}

}  // namespace

UdpSocket::UdpSocket(Fd fd, int family, bool offload)
    : fd_(std::move(fd)),
      family_(family),
      offload_(offload),
      pieces_(2 * kMaxPackets),
      buffer_(kReceiveBuffer) {}

Result<UdpSocket> UdpSocket::bind(SocketAddress local, const UdpOptions& options) {
  const int family = local.family();
  Fd fd(socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return system_error("cannot make a UDP socket", errno);
  if (!options.keep_port) local.set_port(0);
  if (::bind(fd.get(), local.get(), local.size()) != 0) {
    return system_error(fmt::format("cannot bind a UDP socket to {}", local.to_string()), errno);
  }
  set_buffers(fd.get(), options);
  if (family == AF_INET) {
    set_option(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    set_option(fd.get(), IPPROTO_IP, IP_RECVTOS, 1);
  } else {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    set_option(fd.get(), IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  }
  bool offload = options.offload;
  if (offload) {
    set_option(fd.get(), IPPROTO_UDP, UDP_GRO, 1);
    // 0: a message is not cut unless it says so. Kernels before Linux 4.18 do not know the option.
    offload = set_option(fd.get(), IPPROTO_UDP, UDP_SEGMENT, 0);
  }
  return UdpSocket(std::move(fd), family, offload);
}

Result<std::vector<UdpSocket>> UdpSocket::bind_row(SocketAddress local, std::size_t count,
                                                   const UdpOptions& options) {
  constexpr int kTries = 8;
  constexpr int kMostPort = 65'535;
  CHECK(count > 0);
  UdpOptions any = options;
  any.keep_port = false;
  UdpOptions next = options;
  next.keep_port = true;
  std::vector<UdpSocket> longest;
  for (int i = 0; i < kTries && longest.size() < count; ++i) {
    Result<UdpSocket> first = bind(local, any);
    if (!first.ok()) {
      if (longest.empty()) return first.error();
      break;
    }
    std::vector<UdpSocket> row;
    int port = first->port();
    row.push_back(std::move(*first));
    while (row.size() < count && ++port <= kMostPort) {
      local.set_port(static_cast<std::uint16_t>(port));
      Result<UdpSocket> socket = bind(local, next);
      if (!socket.ok()) break;
      row.push_back(std::move(*socket));
    }
    if (row.size() > longest.size()) longest = std::move(row);
  }
  return longest;
}

Status UdpSocket::connect(const SocketAddress& remote) {
  if (::connect(fd(), remote.get(), remote.size()) == 0) return ok_status();
  return system_error(fmt::format("cannot send UDP to {}", remote.to_string()), errno);
}

std::size_t UdpSocket::mtu() const {
  int value = 0;
  socklen_t size = sizeof(value);
  const bool v4 = family_ == AF_INET;
  const int known =
      getsockopt(fd(), v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &value, &size);
  constexpr std::size_t kEthernet = 1500;
  return known == 0 && value > 0 ? static_cast<std::size_t>(value) : kEthernet;
}

std::size_t UdpSocket::fill_control(std::span<std::byte> control, std::uint8_t traffic_class,
                                    std::size_t packet_size) const {
  msghdr message{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* next = CMSG_FIRSTHDR(&message);
  const bool v4 = family_ == AF_INET;
  put_control(message, next, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS,
              int{traffic_class});
  if (packet_size == 0) return CMSG_SPACE(sizeof(int));
  put_control(message, next, IPPROTO_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(packet_size));
  return CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(std::uint16_t));
}

UdpSocket::Sent UdpSocket::send(std::span<const UdpPacket> packets, std::uint8_t traffic_class,
                                const SocketAddress* to) {
  CHECK(!packets.empty() && packets.size() <= kMaxPackets);
  // If part of a busy batch has left already, send_each() sends the rest.
  if (offload_ && sent_of_batch_ == 0) {
    std::size_t count = 0;
    for (const UdpPacket& packet : packets) {
      pieces_[count++] = piece(packet.header);
      pieces_[count++] = piece(packet.payload);
    }
    const std::optional<Sent> sent =
        send_pieces(count, packets.front().size(), packets.size() > 1, traffic_class, to);
    if (sent) return *sent;
  }
  return send_each(packets, traffic_class, to);
}

UdpSocket::Sent UdpSocket::send_run(std::span<const std::byte> bytes, std::size_t packet_size,
                                    std::uint8_t traffic_class, const SocketAddress* to) {
  CHECK(!bytes.empty() && packet_size > 0 && bytes.size() <= packet_size * kMaxPackets);
  // If part of a busy batch has left already, send_each() sends the rest.
  if (offload_ && sent_of_batch_ == 0) {
    pieces_[0] = piece(bytes);
    const std::optional<Sent> sent =
        send_pieces(1, packet_size, bytes.size() > packet_size, traffic_class, to);
    if (sent) return *sent;
  }
  std::array<UdpPacket, kMaxPackets> packets;
  std::size_t count = 0;
  for (; !bytes.empty(); bytes = bytes.subspan(packets[count++].header.size())) {
    packets[count].header = bytes.first(std::min(packet_size, bytes.size()));
  }
  return send_each(std::span(packets).first(count), traffic_class, to);
}

// The outcome that stands for this errno of a failed send.
static UdpSocket::Sent sent_of(int error_number) {
  if (error_number == EAGAIN || error_number == EWOULDBLOCK) return UdpSocket::Sent::kBusy;
  return error_number == EMSGSIZE ? UdpSocket::Sent::kTooBig : UdpSocket::Sent::kLost;
}

std::optional<UdpSocket::Sent> UdpSocket::send_pieces(std::size_t pieces, std::size_t packet_size,
                                                      bool several, std::uint8_t traffic_class,
                                                      const SocketAddress* to) {
  alignas(cmsghdr) ControlBuffer control{};
  msghdr message{};
  aim(message, to);
  message.msg_iov = pieces_.data();
  message.msg_iovlen = pieces;
  message.msg_control = control.data();
  message.msg_controllen = fill_control(control, traffic_class, several ? packet_size : 0);
  ++send_calls_;
  ssize_t sent = sendmsg(fd(), &message, 0);
  // The kernel reports an earlier packet's fate (a closed port, say) once, at the next call.
  if (sent < 0 && errno == ECONNREFUSED) sent = sendmsg(fd(), &message, 0);
  if (sent >= 0) return Sent::kAll;
  // The path has no checksum offload, or does not allow cutting.
  if (several && (errno == EIO || errno == EINVAL || errno == EOPNOTSUPP)) {
    // An unconnected socket keeps trying: the paths to other ends may allow it.
    if (to == nullptr) offload_ = false;
    return std::nullopt;
  }
  return sent_of(errno);
}

UdpSocket::Sent UdpSocket::send_each(std::span<const UdpPacket> packets, std::uint8_t traffic_class,
                                     const SocketAddress* to) {
  alignas(cmsghdr) ControlBuffer control{};
  const std::size_t control_size = fill_control(control, traffic_class, 0);
  std::array<mmsghdr, kMaxPackets> messages{};
  for (std::size_t i = 0; i < packets.size(); ++i) {
    pieces_[2 * i] = piece(packets[i].header);
    pieces_[2 * i + 1] = piece(packets[i].payload);
    msghdr& message = messages[i].msg_hdr;
    aim(message, to);
    message.msg_iov = &pieces_[2 * i];
    message.msg_iovlen = 2;
    message.msg_control = control.data();
    message.msg_controllen = control_size;
  }
  while (sent_of_batch_ < packets.size()) {
    ++send_calls_;
    const int sent = sendmmsg(fd(), &messages[sent_of_batch_],
                              static_cast<unsigned>(packets.size() - sent_of_batch_), 0);
    if (sent > 0) {
      sent_of_batch_ += static_cast<std::size_t>(sent);
      continue;
    }
    const Sent outcome = sent_of(errno);
    if (outcome == Sent::kBusy || outcome == Sent::kTooBig) return outcome;
    // This packet is lost; go on with the next.
    ++sent_of_batch_;
  }
  sent_of_batch_ = 0;
  return Sent::kAll;
}

UdpSocket::Received UdpSocket::receive(Arrival& out, SocketAddress* from) {
  iovec whole{buffer_.data(), buffer_.size()};
  alignas(cmsghdr) std::array<std::byte, 128> control;
  sockaddr_storage source{};
  msghdr message{};
  if (from != nullptr) {
    message.msg_name = &source;
    message.msg_namelen = sizeof(source);
  }
  message.msg_iov = &whole;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ++receive_calls_;
  ssize_t size = recvmsg(fd(), &message, 0);
  if (size < 0 && errno == ECONNREFUSED) size = recvmsg(fd(), &message, 0);
  if (size < 0) return Received::kNothing;
  out.bytes = std::span<const std::byte>(buffer_).first(static_cast<std::size_t>(size));
  out.packet_size = out.bytes.size();
  out.marked = false;
  if (from != nullptr) *from = SocketAddress::from(reinterpret_cast<const sockaddr&>(source));
  for (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(&message, const_cast<cmsghdr*>(c))) {  // NOLINT
    if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
      out.packet_size = static_cast<std::size_t>(std::max(1, read_control<int>(c)));
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
      out.marked = (read_control<std::uint8_t>(c) & kEcnMask) == kCongestionExperienced;
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
      out.marked = (read_control<int>(c) & kEcnMask) == kCongestionExperienced;
    }
  }
  if (change_) change_packets(out.bytes.size(), out.packet_size);
  return Received::kPackets;
}

void UdpSocket::change_packets(std::size_t size, std::size_t packet_size) {
  for (std::size_t at = 0; at < size; at += packet_size) {
    change_(std::span(buffer_).subspan(at, std::min(packet_size, size - at)));
  }
}

}  // namespace thalweg::net
