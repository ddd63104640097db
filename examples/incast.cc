// Many senders send one tensor each to one receiver at the same time, over and over: exactly or
// with a bounded loss over DLCP, with or without receiver grants, or over the kernel's TCP.
//
//   incast recv 127.0.0.1:7000 --senders 2            in one shell
//   incast send 127.0.0.1:7000                        in two others
//
// Options, the same at all ends: --over dlcp|grants|tcp, --floats N, --bound P, --rounds N,
// --line-rate GBPS (of each host's link). The receiver starts each round by a byte to every sender
// and prints when the tensor of each sender was complete, in ms since the round began, one line a
// round; the last line counts packets.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <thalweg/endpoint.h>

using namespace std::chrono_literals;
using thalweg::Endpoint;
using thalweg::EndpointOptions;
using thalweg::NetCounters;
using thalweg::Peer;
using thalweg::Result;
using thalweg::TensorSpan;
using thalweg::TensorView;
using thalweg::Transfer;

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = 30s;

struct Arguments {
  bool sending = false;
  std::string address;
  std::string over = "grants";
  std::size_t senders = 7;
  std::size_t floats = 1 << 18;
  double bound = 0;
  std::uint64_t rounds = 10;
  double line_rate = 0.1;
};

[[noreturn]] void fail(const std::string& text, int code) {
  std::fprintf(stderr, "incast: %s\n", text.c_str());
  std::exit(code);
}

Arguments parse(int argc, char** argv) {
  const char* usage =
      "usage: incast send|recv HOST:PORT [--over dlcp|grants|tcp] [--senders N] [--floats N] "
      "[--bound P] [--rounds N] [--line-rate GBPS]";
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2 || words.size() % 2 != 0) fail(usage, 2);
  if (words[0] != "send" && words[0] != "recv") fail(usage, 2);
  Arguments arguments;
  arguments.sending = words[0] == "send";
  arguments.address = words[1];
  for (std::size_t i = 2; i < words.size(); i += 2) {
    const char* value = words[i + 1].c_str();
    char* end = nullptr;
    if (words[i] == "--over") {
      arguments.over = value;
      if (arguments.over != "dlcp" && arguments.over != "grants" && arguments.over != "tcp") {
        fail("--over: '" + arguments.over + "'; dlcp, grants or tcp is allowed", 2);
      }
      continue;
    }
    if (words[i] == "--senders") {
      arguments.senders = std::strtoull(value, &end, 10);
    } else if (words[i] == "--floats") {
      arguments.floats = std::strtoull(value, &end, 10);
    } else if (words[i] == "--rounds") {
      arguments.rounds = std::strtoull(value, &end, 10);
    } else if (words[i] == "--bound") {
      arguments.bound = std::strtod(value, &end);
    } else if (words[i] == "--line-rate") {
      arguments.line_rate = std::strtod(value, &end);
    } else {
      fail(usage, 2);
    }
    if (*value == '\0' || *end != '\0') fail(words[i] + ": '" + value + "' is no number", 2);
  }
  return arguments;
}

// Returns the value, or ends the program and prints the error.
template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) fail(result.error().message(), 1);
  return std::move(result).value();
}

// Element i of round r, by which the receiver checks what it got.
float element(std::uint64_t round, std::size_t i) {
  return static_cast<float>(round) + static_cast<float>(i % 1000) * 0.001F;
}

void fill(std::vector<float>& tensor, std::uint64_t round) {
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = element(round, i);
}

// A stream of the kernel's TCP, which starts the rounds and, with --over tcp, carries the tensors.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const timeval limit{std::chrono::seconds(kPatience).count(), 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  Stream(Stream&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream() {
    if (fd_ >= 0) close(fd_);
  }
  void write_all(const void* data, std::size_t size) const {
    const auto* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t sent = send(fd_, bytes, size, MSG_NOSIGNAL);
      if (sent <= 0) fail("a stream broke while it was written", 1);
      bytes += sent;
      size -= static_cast<std::size_t>(sent);
    }
  }
  void read_all(void* data, std::size_t size) const {
    if (recv(fd_, data, size, MSG_WAITALL) != static_cast<ssize_t>(size)) {
      if (size > 0) fail("a stream broke while it was read", 1);
    }
  }

 private:
  int fd_;
};

struct Place {
  sockaddr_in address = {};
  static Place of(const std::string& text, std::uint16_t more) {
    const std::size_t colon = text.rfind(':');
    addrinfo hints{};
    hints.ai_family = AF_INET;
    addrinfo* found = nullptr;
    if (colon == std::string::npos ||
        getaddrinfo(text.substr(0, colon).c_str(), text.substr(colon + 1).c_str(), &hints,
                    &found) != 0) {
      fail("'" + text + "' is no address of IPv4 with a port", 2);
    }
    Place place;
    place.address = *reinterpret_cast<const sockaddr_in*>(found->ai_addr);
    freeaddrinfo(found);
    place.address.sin_port =
        htons(static_cast<std::uint16_t>(ntohs(place.address.sin_port) + more));
    return place;
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// The streams use the port above that of the endpoints.
std::vector<Stream> accept_streams(const Arguments& arguments) {
  const Place place = Place::of(arguments.address, 1);
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listening, place.get(), sizeof place.address) != 0 || listen(listening, 64) != 0) {
    fail("cannot listen above " + arguments.address, 1);
  }
  const timeval limit{std::chrono::seconds(kPatience).count(), 0};
  setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < arguments.senders; ++i) {
    const int fd = accept(listening, nullptr, nullptr);
    if (fd < 0) fail("not all senders connected", 1);
    streams.emplace_back(fd);
  }
  close(listening);
  return streams;
}

Stream connect_stream(const Arguments& arguments) {
  const Place place = Place::of(arguments.address, 1);
  for (const auto until = Clock::now() + kPatience; Clock::now() < until;) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, place.get(), sizeof place.address) == 0) return Stream(fd);
    close(fd);
    std::this_thread::sleep_for(10ms);
  }
  fail("nobody listens above " + arguments.address, 1);
}

EndpointOptions options_of(const Arguments& arguments) {
  EndpointOptions options;
  options.job_token = 7;
  options.grants = arguments.over == "grants";
  options.line_rate_gbps = arguments.line_rate;
  options.packet_payload = 1400;
  options.paths = 1;
  options.warn = [](const std::string&) {};
  return options;
}

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// One sender's round at the receiver. Returns when its tensor was complete.
double receive_one(const Arguments& arguments, const Stream& stream, const Peer* peer,
                   std::uint64_t round, std::vector<float>& tensor, Clock::time_point start) {
  double done = 0;
  if (peer == nullptr) {
    stream.read_all(tensor.data(), tensor.size() * sizeof(float));
    done = since(start);
  } else {
    const Transfer transfer =
        value_of(peer->recv(TensorSpan::of(tensor), {.key = round, .loss_bound = arguments.bound}));
    stream.write_all("g", 1);
    const auto report = value_of(transfer.wait());
    done = since(start);
    for (const auto& hole : report.missing) {
      for (auto i = hole.begin; i < hole.end; ++i) {
        tensor[static_cast<std::size_t>(i)] = element(round, static_cast<std::size_t>(i));
      }
    }
  }
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    if (tensor[i] != element(round, i)) fail("a value is wrong", 1);
  }
  return done;
}

void receive(const Arguments& arguments) {
  std::unique_ptr<Endpoint> endpoint;
  std::vector<Peer> peers;
  if (arguments.over != "tcp") {
    EndpointOptions options = options_of(arguments);
    options.listen = arguments.address;
    endpoint = std::make_unique<Endpoint>(value_of(Endpoint::create(options)));
    // A sender connects its stream after its peer, and the next sender may come between.
    for (std::size_t i = 0; i < arguments.senders; ++i) {
      peers.push_back(value_of(endpoint->accept(kPatience)));
    }
  }
  const std::vector<Stream> streams = accept_streams(arguments);
  std::vector<std::vector<float>> tensors(arguments.senders, std::vector<float>(arguments.floats));
  for (std::uint64_t round = 0; round < arguments.rounds; ++round) {
    const auto start = Clock::now();
    std::vector<double> done(arguments.senders);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < arguments.senders; ++i) {
      if (peers.empty()) streams[i].write_all("g", 1);
      threads.emplace_back([&, i] {
        const Peer* peer = peers.empty() ? nullptr : &peers[i];
        done[i] = receive_one(arguments, streams[i], peer, round, tensors[i], start);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const double time : done) std::printf("%.3f ", time);
    std::printf("\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(20ms);
  }
  NetCounters counters = endpoint ? endpoint->counters() : NetCounters();
  std::printf("received %llu unused %llu grants %llu\n",
              static_cast<unsigned long long>(counters.packets_received),
              static_cast<unsigned long long>(counters.packets_unused),
              static_cast<unsigned long long>(counters.grants_sent));
}

void send(const Arguments& arguments) {
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<Peer> peer;
  if (arguments.over != "tcp") {
    endpoint = std::make_unique<Endpoint>(value_of(Endpoint::create(options_of(arguments))));
    peer = std::make_unique<Peer>(value_of(endpoint->connect(arguments.address, kPatience)));
  }
  const Stream stream = connect_stream(arguments);
  std::vector<float> tensor(arguments.floats);
  for (std::uint64_t round = 0; round < arguments.rounds; ++round) {
    fill(tensor, round);
    char go = 0;
    stream.read_all(&go, 1);
    if (!peer) {
      stream.write_all(tensor.data(), tensor.size() * sizeof(float));
      continue;
    }
    const Transfer transfer =
        value_of(peer->send(TensorView::of(tensor), {.key = round, .loss_bound = arguments.bound}));
    value_of(transfer.wait());
  }
  const NetCounters counters = endpoint ? endpoint->counters() : NetCounters();
  std::printf("sent %llu again %llu\n", static_cast<unsigned long long>(counters.packets_sent),
              static_cast<unsigned long long>(counters.packets_retransmitted));
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  if (arguments.sending) {
    send(arguments);
  } else {
    receive(arguments);
  }
}
