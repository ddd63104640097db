#include "lab/bench/transport_rates.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/endpoint.h>

#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/udp_socket.h"

namespace thalweg::lab {
namespace {

constexpr std::chrono::seconds kLimit{10};
constexpr std::size_t kTensorsInFlight = 2;
constexpr std::size_t kTimesInFlight = 4;
constexpr std::uint32_t kWarmUp = 10;

template <class T>
T good(Result<T> result) {
  if (!result.ok()) fail_pair(result.error().message());
  return std::move(result).value();
}

// A clock that is the same in both processes.
std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// Adds the processor time that this process used since `before` to the result. The receiver adds
// first, then the sender.
void add_cpu(const PairProcess& process, double before, RateResult& result) {
  const double used = net::processor_seconds_of_process() - before;
  if (process.sender()) [[maybe_unused]]
    const std::uint64_t after_receiver = process.hear();
  result.cpu_seconds += used;
  if (!process.sender()) process.tell(0);
}

net::SocketAddress receiver_address(const PairProcess& process, std::uint16_t port) {
  return good(net::SocketAddress::resolve(fmt::format("{}:{}", process.receiver_host(), port)));
}

// A TCP connection from the sender to the receiver, blocking, with the system's settings.
net::Fd tcp_connection(const PairProcess& process) {
  net::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!process.sender()) {
    const net::SocketAddress any = receiver_address(process, 0);
    if (bind(fd.get(), any.get(), any.size()) != 0 || listen(fd.get(), 1) != 0) {
      fail_pair("cannot listen for TCP");
    }
    process.tell(net::SocketAddress::local_of(fd.get()).port());
    return net::Fd(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  const net::SocketAddress remote =
      receiver_address(process, static_cast<std::uint16_t>(process.hear()));
  if (connect(fd.get(), remote.get(), remote.size()) != 0) fail_pair("cannot connect by TCP");
  net::set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  return fd;
}

bool send_all(int fd, const std::vector<std::byte>& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t sent = send(fd, &bytes[done], bytes.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    done += static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, std::vector<std::byte>& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t got = recv(fd, &bytes[done], bytes.size() - done, 0);
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

// This process's DLCP endpoint, connected to that of the other process.
struct Connected {
  Endpoint endpoint;
  Peer peer;

  static Connected make(const PairProcess& process, std::size_t payload, double line_rate_gbps,
                        bool keyed = false) {
    EndpointOptions options;
    options.name = process.sender() ? "sender" : "receiver";
    options.job_token = 0x7468616c77656700;
    // The key protects nothing here. It only costs as much as any other key.
    if (keyed) options.job_key = "7468616c776567000123456789abcdef";
    options.packet_payload = static_cast<std::uint32_t>(payload);
    options.line_rate_gbps = line_rate_gbps;
    options.warn = [](const std::string&) {};
    if (!process.sender()) options.listen = fmt::format("{}:0", process.receiver_host());
    Endpoint endpoint = good(Endpoint::create(options));
    if (process.sender()) {
      const net::SocketAddress remote =
          receiver_address(process, static_cast<std::uint16_t>(process.hear()));
      Peer peer = good(endpoint.connect(remote.to_string(), kLimit));
      return {std::move(endpoint), std::move(peer)};
    }
    process.tell(good(net::SocketAddress::resolve(endpoint.address())).port());
    Peer peer = good(endpoint.accept(kLimit));
    return {std::move(endpoint), std::move(peer)};
  }
};

}  // namespace

void measure_raw_udp_rate(const PairProcess& process, const RateSettings& settings,
                          RateResult& result) {
  const net::SocketAddress local =
      process.sender() && process.own_network()
          ? good(net::SocketAddress::resolve(process.sender_host() + ":0"))
          : receiver_address(process, 0);
  net::UdpSocket socket =
      good(net::UdpSocket::bind(local, {std::size_t{32} << 20, std::size_t{4} << 20, true, {}}));
  process.tell(socket.port());
  good(socket.connect([&] {
    net::SocketAddress remote =
        process.sender() || !process.own_network()
            ? receiver_address(process, 0)
            : good(net::SocketAddress::resolve(process.sender_host() + ":0"));
    remote.set_port(static_cast<std::uint16_t>(process.hear()));
    return remote;
  }()));
  process.meet();
  const double cpu = net::processor_seconds_of_process();
  const auto limit = Duration::seconds(settings.seconds);
  if (process.sender()) {
    const std::size_t count = net::UdpSocket::kMaxMessage / settings.packet_payload;
    const std::vector<std::byte> bytes(count * settings.packet_payload);
    std::vector<net::UdpPacket> packets(std::min(count, net::UdpSocket::kMaxPackets));
    for (std::size_t i = 0; i < packets.size(); ++i) {
      const auto whole =
          std::span(bytes).subspan(i * settings.packet_payload, settings.packet_payload);
      packets[i] = {whole.first(1), whole.subspan(1)};
    }
    std::uint64_t sent = 0;
    for (const Time end = net::monotonic_now() + limit; net::monotonic_now() < end;) {
      if (socket.send(packets, 0) == net::UdpSocket::Sent::kAll) {
        sent += packets.size() * settings.packet_payload;
        continue;
      }
      pollfd item{socket.fd(), POLLOUT, 0};
      poll(&item, 1, 100);
    }
    process.tell(sent);
  } else {
    net::UdpSocket::Arrival arrival;
    std::uint64_t bytes = 0;
    Time first;
    Time last;
    // Ends when nothing has arrived for a while.
    for (pollfd item{socket.fd(), POLLIN, 0}; poll(&item, 1, bytes == 0 ? 5000 : 200) > 0;) {
      while (socket.receive(arrival) == net::UdpSocket::Received::kPackets) {
        last = net::monotonic_now();
        if (bytes == 0) first = last;
        bytes += arrival.bytes.size();
      }
    }
    const auto sent = static_cast<double>(process.hear());
    result.bytes = static_cast<double>(bytes);
    result.gbps = result.bytes * 8e-9 / std::max((last - first).s(), 1e-9);
    result.lost_fraction = sent > 0 ? 1 - result.bytes / sent : 0;
  }
  add_cpu(process, cpu, result);
}

void measure_tcp_rate(const PairProcess& process, const RateSettings& settings,
                      RateResult& result) {
  const net::Fd fd = tcp_connection(process);
  std::vector<std::byte> tensor(settings.tensor_bytes, std::byte{1});
  process.meet();
  const double cpu = net::processor_seconds_of_process();
  const Time start = net::monotonic_now();
  if (process.sender()) {
    const Time end = start + Duration::seconds(settings.seconds);
    while (net::monotonic_now() < end && send_all(fd.get(), tensor)) {
    }
    shutdown(fd.get(), SHUT_WR);
  } else {
    std::uint64_t tensors = 0;
    while (receive_all(fd.get(), tensor)) {
      ++tensors;
      result.bytes = static_cast<double>(tensors * tensor.size());
      result.gbps = result.bytes * 8e-9 / (net::monotonic_now() - start).s();
    }
  }
  add_cpu(process, cpu, result);
}

void measure_dlcp_rate(const PairProcess& process, const RateSettings& settings,
                       RateResult& result) {
  const Connected here = Connected::make(process, settings.packet_payload, 0, settings.keyed);
  std::vector<std::vector<float>> tensors(kTensorsInFlight);
  for (auto& tensor : tensors) tensor.assign(settings.tensor_bytes / sizeof(float), 1.0F);
  std::deque<Transfer> flying;
  std::uint64_t key = 0;
  const auto start_one = [&] {
    auto& tensor = tensors[key % kTensorsInFlight];
    const std::uint64_t this_key = key++;
    flying.push_back(process.sender()
                         ? good(here.peer.send(TensorView::of(tensor), {.key = this_key}))
                         : good(here.peer.recv(TensorSpan::of(tensor), {.key = this_key})));
  };
  const auto finish_one = [&] {
    good(flying.front().wait());
    flying.pop_front();
  };
  // The first tensor does not count: meanwhile memory is touched and the rate is found.
  start_one();
  finish_one();
  process.meet();
  const double cpu = net::processor_seconds_of_process();
  const Time start = net::monotonic_now();
  std::uint64_t done = 0;
  if (process.sender()) {
    const Time end = start + Duration::seconds(settings.seconds);
    while (flying.size() < kTensorsInFlight) start_one();
    while (!flying.empty()) {
      finish_one();
      const bool more = net::monotonic_now() < end;
      process.tell(more ? 1 : 0);
      if (more) start_one();
    }
  } else {
    while (flying.size() < kTensorsInFlight) start_one();
    while (!flying.empty()) {
      finish_one();
      ++done;
      result.bytes = static_cast<double>(done * settings.tensor_bytes);
      result.gbps = result.bytes * 8e-9 / (net::monotonic_now() - start).s();
      // The sender says whether another tensor follows.
      if (process.hear() != 0) start_one();
    }
  }
  add_cpu(process, cpu, result);
}

void measure_tcp_times(const PairProcess& process, const TimesSettings& settings,
                       TimesResult& result) {
  const net::Fd fd = tcp_connection(process);
  std::vector<std::byte> tensor(settings.tensor_bytes, std::byte{1});
  for (std::uint32_t i = 0; i < kWarmUp + settings.tensors; ++i) {
    if (process.sender()) {
      const std::uint64_t start = now_ns();
      if (!send_all(fd.get(), tensor)) fail_pair("the TCP connection broke");
      const std::uint64_t end = process.hear();
      if (i < kWarmUp) continue;
      result.ms[result.count++] = static_cast<double>(end - start) * 1e-6;
    } else {
      if (!receive_all(fd.get(), tensor)) fail_pair("the TCP connection broke");
      process.tell(now_ns());
    }
  }
}

void measure_dlcp_times(const PairProcess& process, const TimesSettings& settings,
                        TimesResult& result) {
  const Connected here = Connected::make(process, settings.packet_payload, settings.line_rate_gbps);
  std::vector<std::vector<float>> tensors(kTimesInFlight);
  for (auto& tensor : tensors) tensor.assign(settings.tensor_bytes / sizeof(float), 1.0F);
  const std::uint32_t count = kWarmUp + settings.tensors;
  std::deque<Transfer> flying;
  const auto receive = [&](std::uint64_t key) {
    if (key >= count) return;
    flying.push_back(good(here.peer.recv(TensorSpan::of(tensors[key % kTimesInFlight]),
                                         {.key = key, .loss_bound = settings.loss_bound})));
  };
  if (!process.sender()) {
    for (std::uint64_t key = 0; key + 1 < kTimesInFlight; ++key) receive(key);
  }
  for (std::uint64_t key = 0; key < count; ++key) {
    if (process.sender()) {
      const std::uint64_t start = now_ns();
      const Transfer sending = good(here.peer.send(
          TensorView::of(tensors[0]), {.key = key, .loss_bound = settings.loss_bound}));
      const std::uint64_t end = process.hear();
      const TransferReport report = good(sending.wait());
      if (key < kWarmUp) continue;
      result.ms[result.count++] = static_cast<double>(end - start) * 1e-6;
      result.arrived_fraction += report.fraction / settings.tensors;
      result.retransmitted_fraction += static_cast<double>(report.retransmissions) /
                                       static_cast<double>(report.packets) / settings.tensors;
    } else {
      good(flying.front().wait());
      process.tell(now_ns());
      flying.pop_front();
      receive(key + kTimesInFlight - 1);
    }
  }
  process.meet();
}

void measure_idle(const PairProcess& process, double seconds, double& cpu) {
  const Connected here = Connected::make(process, 1400, 0);
  process.meet();
  const double before = net::processor_seconds_of_process();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  if (process.sender()) cpu = (net::processor_seconds_of_process() - before) / seconds;
  process.meet();
}

}  // namespace thalweg::lab
