#include "lab/testbed/capacity.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "lab/testbed/frame.h"
#include "lab/testbed/live_fabric.h"
#include "net/io/system.h"

namespace thalweg::lab {
namespace {

constexpr int kBatches = 50;
constexpr int kBatch = 32;
constexpr int kPatienceMs = 1'000;
constexpr std::size_t kIpAndUdpHeader = 28;
// The time between batches in the fabric. It is more than a batch takes on the slowest link.
constexpr Duration kBetweenBatches = Duration::milliseconds(100'000);

// Gives every frame back to the host that sent it, as if the other host had sent it.
class Mirror final : public LiveFabric::Sink {
 public:
  explicit Mirror(int device) : device_(device) {}
  void deliver(Rank, std::span<const std::uint8_t> frame) override {
    std::copy(frame.begin(), frame.end(), frame_.begin());
    // Swaps the two link-layer addresses and the two IP addresses. Checksums stay the same.
    std::swap_ranges(frame_.begin(), frame_.begin() + 6, frame_.begin() + 6);
    std::swap_ranges(frame_.begin() + 26, frame_.begin() + 30, frame_.begin() + 30);
    if (write(device_, frame_.data(), frame.size()) > 0) ++delivered;
  }
  void crossed(Time, topology::ArcId, std::span<const std::uint8_t>) override {}
  int delivered = 0;

 private:
  int device_;
  std::array<std::uint8_t, 1 << 16> frame_{};
};

class Measurement {
 public:
  Measurement(const topology::Topology& topology, const sim::NetworkOptions& options,
              std::size_t mtu, int device, int socket)
      : topology_(topology),
        network_(topology, options, mtu),
        mirror_(device),
        device_(device),
        socket_(socket),
        payload_(mtu - kIpAndUdpHeader),
        frame_(mtu + 2 * kEthernetHeader) {}

  // Carries one batch and returns the seconds per frame.
  Result<double> batch() {
    for (int i = 0; i < kBatch; ++i) THALWEG_TRY_STATUS(send_one());
    now_ += kBetweenBatches;
    const int before = mirror_.delivered;
    const Time start = net::monotonic_now();
    THALWEG_TRY(const int carried, carry());
    const Duration took = net::monotonic_now() - start;
    while (recv(socket_, payload_.data(), payload_.size(), MSG_DONTWAIT) >= 0) continue;
    if (carried == 0 || mirror_.delivered == before) {
      return Error("the testbed's network carries no frames");
    }
    return took.s() / carried;
  }

 private:
  Status send_one() {
    sockaddr_in target{};
    target.sin_family = AF_INET;
    const auto ip = ip_of(Rank(1));
    std::memcpy(&target.sin_addr, ip.data(), ip.size());
    socklen_t length = sizeof(target);
    // The target is the same port at another host.
    sockaddr_in own{};
    getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &length);
    target.sin_port = own.sin_port;
    if (sendto(socket_, payload_.data(), payload_.size(), 0,
               reinterpret_cast<const sockaddr*>(&target), sizeof(target)) < 0) {
      return net::system_error("cannot send through the testbed's network", errno);
    }
    return ok_status();
  }

  // Waits for the first frame, and carries all that have arrived. Returns how many.
  Result<int> carry() {
    pollfd ready{.fd = device_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPatienceMs) <= 0) return Error("a testbed's device gives no frames");
    int carried = 0;
    for (;;) {
      const ssize_t got = read(device_, frame_.data(), frame_.size());
      if (got <= 0) break;
      const std::span<const std::uint8_t> frame(frame_.data(), static_cast<std::size_t>(got));
      if (const auto answer = answer_arp(frame, topology_.host_count())) {
        if (write(device_, answer->data(), answer->size()) < 0) break;
        continue;
      }
      if (network_.send(now_, Rank(0), frame)) ++carried;
    }
    network_.run(now_ + kBetweenBatches, mirror_);
    return carried;
  }

  const topology::Topology& topology_;
  LiveFabric network_;
  Mirror mirror_;
  int device_;
  int socket_;
  Time now_;
  std::vector<std::uint8_t> payload_;
  std::vector<std::uint8_t> frame_;
};

}  // namespace

Result<double> measure_frames_per_second(const topology::Topology& topology,
                                         const sim::NetworkOptions& options, std::size_t mtu,
                                         int device, int socket) {
  Measurement measurement(topology, options, mtu, device, socket);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kBatches; ++i) {
    THALWEG_TRY(const double seconds, measurement.batch());
    best = std::min(best, seconds);
  }
  return 1 / best;
}

double frames_needed(const topology::Topology& topology, std::span<const Bandwidth> rates,
                     std::size_t mtu) {
  double bytes = 0;
  for (Rank rank(0); rank.value() < topology.host_count(); ++rank) {
    for (const topology::ArcId arc : topology.arcs_from(topology.host(rank))) {
      bytes += rates[arc.index() / 2].bytes_per_second();
    }
  }
  return bytes / static_cast<double>(mtu) * 1.5;
}

}  // namespace thalweg::lab
