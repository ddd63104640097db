#include "lab/bench/allreduce/bare.h"

#include <fmt/core.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/job/environment.h"
#include "net/store/store_client.h"
#include "tensor/reduce.h"

namespace thalweg::lab::allreduce {
namespace {

// The most bytes of one call of send() or recv(), so that they stay in the caches.
constexpr std::size_t kMost = std::size_t{512} << 10;
static_assert(kMost >= static_cast<std::size_t>(most_doubled(2).count()));

// Connects two partners: the lower rank listens, and the other connects. Every pair has a listener
// of its own, so that the connecting rank need not say who it is.
Result<net::Fd> connect_pair(net::StoreClient& store, int rank, int partner, Time until) {
  const std::string key =
      fmt::format("bare/{}-{}", std::min(rank, partner), std::max(rank, partner));
  const std::string name = fmt::format("rank {}", partner);
  net::Fd stream;
  if (rank < partner) {
    net::SocketAddress local = store.local_address();
    local.set_port(0);
    THALWEG_TRY(const net::Fd listener, net::listen_tcp(local.to_string()));
    THALWEG_TRY_STATUS(
        store.set(key, net::SocketAddress::local_of(listener.get()).to_string(), until));
    if (!net::wait_for_socket(listener.get(), POLLIN, until))
      return Error(name + " did not connect");
    stream = net::Fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!stream.valid()) return net::system_error("accept from " + name, errno);
  } else {
    THALWEG_TRY(const std::string address, store.get(key, until));
    THALWEG_TRY(const net::SocketAddress remote, net::SocketAddress::numeric(address));
    THALWEG_TRY(stream, net::connect_tcp(remote, name, until));
  }
  net::prepare_stream(stream.get());
  return stream;
}

// The number of bytes that a send() or recv() moved, from its `result`; 0 if nothing can be moved
// now.
Result<std::size_t> moved(ssize_t result, int partner) {
  if (result > 0) return static_cast<std::size_t>(result);
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) return std::size_t{0};
  if (result == 0) return Error(fmt::format("rank {} has ended", partner));
  return net::system_error(fmt::format("the stream of rank {}", partner), errno);
}

}  // namespace

BareRank::BareRank(DType type, ReduceOp op) : type_(type), op_(op), received_(kMost) {}

Result<BareRank> BareRank::meet(DType type, ReduceOp op, Time until) {
  THALWEG_TRY(const net::Environment environment,
              net::environment_from(net::process_environment()));
  THALWEG_TRY(const std::optional<wire::JobKey> key, net::job_key_from(net::process_environment()));
  THALWEG_TRY(net::StoreClient store,
              net::StoreClient::connect(environment.store, environment.token, until, key));
  BareRank bare(type, op);
  bare.rank_ = environment.rank;
  bare.ranks_ = environment.size;
  // All ranks take the distances in the same order, so that they never wait for each other in a
  // circle.
  for (int distance = 1; distance < bare.ranks_; distance *= 2) {
    const int partner = bare.rank_ ^ distance;
    THALWEG_TRY(net::Fd stream, connect_pair(store, bare.rank_, partner, until));
    bare.partners_.push_back({.rank = partner, .stream = std::move(stream)});
  }
  return bare;
}

Status BareRank::allreduce(void* data, std::int64_t elements) {
  const std::span<std::byte> tensor(static_cast<std::byte*>(data),
                                    static_cast<std::size_t>(elements) * size_of(type_));
  const bool small = tensor.size() <= static_cast<std::size_t>(most_doubled(ranks_).count());
  return small ? double_whole(tensor) : halve_and_double(tensor, 0);
}

Status BareRank::double_whole(std::span<std::byte> tensor) {
  for (const Partner& partner : partners_) {
    THALWEG_TRY_STATUS(exchange(partner, tensor, std::span(received_).first(tensor.size()), false));
    tensor::reduce(type_, op_, tensor.data(), tensor.data(), received_.data(),
                   tensor.size() / size_of(type_));
  }
  return ok_status();
}

Status BareRank::halve_and_double(std::span<std::byte> block, std::size_t step) {
  if (step == partners_.size()) return ok_status();
  const Partner& partner = partners_[step];
  const std::size_t half = block.size() / size_of(type_) / 2 * size_of(type_);
  std::span<std::byte> own = block.first(half);
  std::span<std::byte> other = block.subspan(half);
  if (rank_ > partner.rank) std::swap(own, other);
  THALWEG_TRY_STATUS(exchange(partner, other, own, true));
  THALWEG_TRY_STATUS(halve_and_double(own, step + 1));
  return exchange(partner, own, other, false);
}

Status BareRank::exchange(const Partner& partner, std::span<const std::byte> out,
                          std::span<std::byte> in, bool reduces) {
  const int stream = partner.stream.get();
  const std::size_t element = size_of(type_);
  std::size_t begun = 0;  // bytes at the front of received_ that are not a whole element yet
  while (!out.empty() || !in.empty()) {
    std::size_t sent = 0;
    std::size_t got = 0;
    if (!out.empty()) {
      THALWEG_TRY(sent, moved(send(stream, out.data(), std::min(out.size(), kMost), MSG_NOSIGNAL),
                              partner.rank));
      out = out.subspan(sent);
    }
    if (!in.empty()) {
      std::byte* const to = reduces ? received_.data() + begun : in.data();
      THALWEG_TRY(got,
                  moved(recv(stream, to, std::min(in.size(), kMost) - begun, 0), partner.rank));
      std::size_t done = got;
      if (reduces) {
        const std::size_t whole = (begun + got) / element;
        done = whole * element;
        tensor::reduce(type_, op_, in.data(), in.data(), received_.data(), whole);
        begun = begun + got - done;
        std::memmove(received_.data(), received_.data() + done, begun);
      }
      in = in.subspan(done);
    }
    if (sent == 0 && got == 0) sched_yield();
  }
  return ok_status();
}

}  // namespace thalweg::lab::allreduce
