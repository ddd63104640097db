#include "net/probe/probe.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/job/environment.h"
#include "net/job/interfaces.h"
#include "net/job/job.h"
#include "net/store/store_client.h"

namespace thalweg::net {
namespace {

// Sent first, to estimate how many bytes to measure with.
constexpr std::uint64_t kFirstBytes = 256 << 10;
constexpr std::uint64_t kMostBytes = 256 << 20;
constexpr std::size_t kPiece = 256 << 10;

// A blocking stream to a partner. Every system call ends within the limit.
class PairStream {
 public:
  static Result<PairStream> make(Fd fd, Duration limit) {
    fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
    set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    const auto us = static_cast<std::int64_t>(limit.us());
    const timeval time{us / 1'000'000, us % 1'000'000};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
    return PairStream(std::move(fd));
  }

  Status send(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const char*>(data);
    for (std::size_t done = 0; done < size;) {
      const ssize_t sent = ::send(fd_.get(), bytes + done, size - done, MSG_NOSIGNAL);
      if (sent <= 0) return system_error("cannot send to the partner", sent < 0 ? errno : EPIPE);
      done += static_cast<std::size_t>(sent);
    }
    return ok_status();
  }
  Status receive(void* data, std::size_t size) {
    auto* bytes = static_cast<char*>(data);
    for (std::size_t done = 0; done < size;) {
      const ssize_t got = recv(fd_.get(), bytes + done, size - done, 0);
      if (got == 0) return Error(ErrorCode::kPeerLost, "the partner closed its connection");
      if (got < 0) return system_error("cannot receive from the partner", errno);
      done += static_cast<std::size_t>(got);
    }
    return ok_status();
  }

 private:
  explicit PairStream(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// Sends the number of bytes, then the bytes, and waits until the partner confirms that it has all.
// Returns the time from the first byte to the confirmation.
Result<Duration> send_bulk(PairStream& stream, std::uint64_t bytes, std::vector<char>& buffer) {
  THALWEG_TRY_STATUS(stream.send(&bytes, sizeof(bytes)));
  const Time start = monotonic_now();
  for (std::uint64_t left = bytes; left > 0;) {
    const std::size_t size = static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer.size()));
    THALWEG_TRY_STATUS(stream.send(buffer.data(), size));
    left -= size;
  }
  char word = 0;
  THALWEG_TRY_STATUS(stream.receive(&word, 1));
  return std::max(monotonic_now() - start, Duration::nanoseconds(1));
}

Status receive_bulk(PairStream& stream, std::vector<char>& buffer) {
  std::uint64_t left = 0;
  THALWEG_TRY_STATUS(stream.receive(&left, sizeof(left)));
  if (left > kMostBytes) {
    return Error(ErrorCode::kInternal, "the partner sends more than was agreed");
  }
  while (left > 0) {
    const std::size_t size = static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer.size()));
    THALWEG_TRY_STATUS(stream.receive(buffer.data(), size));
    left -= size;
  }
  const char word = 1;
  return stream.send(&word, 1);
}

Result<Bandwidth> measure_rate(PairStream& stream, Duration each, std::vector<char>& buffer) {
  THALWEG_TRY(const Duration first, send_bulk(stream, kFirstBytes, buffer));
  const double wanted = static_cast<double>(kFirstBytes) / first.s() * each.s();
  const auto bytes = static_cast<std::uint64_t>(
      std::clamp(wanted, static_cast<double>(kFirstBytes), static_cast<double>(kMostBytes)));
  THALWEG_TRY(const Duration taken, send_bulk(stream, bytes, buffer));
  return Bandwidth::bits_per_second(std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(bytes) * 8 / taken.s())));
}

Result<Duration> measure_round_trip(PairStream& stream, int pings) {
  Duration least = Duration::milliseconds(1'000'000);
  for (int i = 0; i < pings; ++i) {
    char word = 0;
    const Time start = monotonic_now();
    THALWEG_TRY_STATUS(stream.send(&word, 1));
    THALWEG_TRY_STATUS(stream.receive(&word, 1));
    least = std::min(least, monotonic_now() - start);
  }
  return std::max(least, Duration::nanoseconds(1));
}

Status echo(PairStream& stream, int pings) {
  for (int i = 0; i < pings; ++i) {
    char word = 0;
    THALWEG_TRY_STATUS(stream.receive(&word, 1));
    THALWEG_TRY_STATUS(stream.send(&word, 1));
  }
  return ok_status();
}

// Connects this rank with its partners. The lower rank of a pair connects; the other accepts.
class Meeting {
 public:
  static Result<Meeting> make(const Communicator& all, Time until) {
    THALWEG_TRY(Environment environment, environment_from(process_environment()));
    THALWEG_TRY(const std::optional<wire::JobKey> key, job_key_from(process_environment()));
    THALWEG_TRY(StoreClient store, connect_store(environment, until, key));
    THALWEG_TRY(const std::vector<SocketAddress> addresses,
                rank_addresses(environment.interfaces, store.local_address()));
    SocketAddress own = addresses.front();
    own.set_port(0);
    THALWEG_TRY(Fd listener, listen_tcp(own.to_string()));
    THALWEG_TRY_STATUS(store.set(
        key_of(all.rank()), SocketAddress::local_of(listener.get()).unmapped().to_string(), until));
    return Meeting(std::move(store), std::move(listener), all.rank());
  }

  Result<PairStream> with(int partner, Duration limit) {
    const Time until = monotonic_now() + limit;
    if (partner < rank_) {
      if (!wait_for_socket(listener_.get(), POLLIN, until)) {
        return Error(ErrorCode::kTimeout, fmt::format("rank {} did not connect in time", partner),
                     partner);
      }
      Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.valid()) return system_error("cannot accept a connection", errno);
      return PairStream::make(std::move(fd), limit);
    }
    THALWEG_TRY(const std::string address, store_.get(key_of(partner), until));
    THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(address));
    THALWEG_TRY(Fd fd, connect_tcp(remote, address, until));
    return PairStream::make(std::move(fd), limit);
  }

 private:
  Meeting(StoreClient store, Fd listener, int rank)
      : store_(std::move(store)), listener_(std::move(listener)), rank_(rank) {}
  static std::string key_of(int rank) { return fmt::format("probe/{}", rank); }

  StoreClient store_;
  Fd listener_;
  int rank_;
};

}  // namespace

int probe_rounds(int ranks) { return ranks < 2 ? 0 : ranks - 1 + ranks % 2; }

// The circle method: the last place stays fixed (or empty, if the number of ranks is odd) while the
// others rotate.
int probe_partner(int ranks, int rank, int round) {
  const int places = ranks + ranks % 2;
  const int turning = places - 1;
  if (rank == places - 1) {
    // The last place meets the rank that would meet itself in this round.
    for (int r = 0; r < turning; ++r) {
      if ((2 * r) % turning == round % turning) return r;
    }
  }
  const int partner = ((round - rank) % turning + turning) % turning;
  if (partner != rank) return partner;
  return places == ranks ? places - 1 : -1;
}

Result<std::vector<topology::ProbeSample>> probe_network(const Communicator& all,
                                                         const ProbeOptions& options) {
  const int ranks = all.size();
  if (ranks == 1) return std::vector<topology::ProbeSample>();
  const CallOptions call{.deadline = std::chrono::nanoseconds(options.limit.ps() / 1000)};
  THALWEG_TRY(Meeting meeting, Meeting::make(all, monotonic_now() + options.limit));
  std::vector<char> buffer(kPiece);
  // Three numbers per partner: round, round trip in nanoseconds, rate in bits per second.
  std::vector<std::int64_t> own(static_cast<std::size_t>(ranks) * 3, 0);
  for (int round = 0; round < probe_rounds(ranks); ++round) {
    const int partner = probe_partner(ranks, all.rank(), round);
    const bool first = all.rank() < partner;
    std::optional<PairStream> stream;
    Duration round_trip;
    if (partner >= 0) {
      THALWEG_TRY(stream, meeting.with(partner, options.limit));
    }
    THALWEG_TRY_STATUS(all.barrier(call));
    if (stream) {
      if (!first) THALWEG_TRY_STATUS(echo(*stream, options.pings));
      THALWEG_TRY(round_trip, measure_round_trip(*stream, options.pings));
      if (first) THALWEG_TRY_STATUS(echo(*stream, options.pings));
    }
    for (const bool sends : {first, !first}) {
      THALWEG_TRY_STATUS(all.barrier(call));
      if (!stream) continue;
      if (!sends) {
        THALWEG_TRY_STATUS(receive_bulk(*stream, buffer));
        THALWEG_TRY_STATUS(receive_bulk(*stream, buffer));
        continue;
      }
      THALWEG_TRY(const Bandwidth rate, measure_rate(*stream, options.each, buffer));
      const auto place = static_cast<std::size_t>(partner) * 3;
      own[place] = round;
      own[place + 1] = std::max<std::int64_t>(1, round_trip.ps() / 1000);
      own[place + 2] = rate.bps();
    }
  }
  std::vector<std::int64_t> table(own.size() * static_cast<std::size_t>(ranks));
  THALWEG_TRY(const Operation gathered,
              all.all_gather_async(TensorView::of(own), TensorSpan::of(table), call));
  THALWEG_TRY_STATUS(gathered.wait());
  std::vector<topology::ProbeSample> samples;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      const auto place = static_cast<std::size_t>(from * ranks + to) * 3;
      samples.push_back({static_cast<int>(table[place]), from, to,
                         Duration::nanoseconds(table[place + 1]),
                         Bandwidth::bits_per_second(table[place + 2])});
    }
  }
  return samples;
}

}  // namespace thalweg::net
