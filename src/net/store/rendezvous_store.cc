#include "net/store/rendezvous_store.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "net/io/fd.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

constexpr Duration kFirstPause = Duration::microseconds(200);
constexpr Duration kLongestPause = Duration::milliseconds(20);

}  // namespace

Status RendezvousStore::set(const std::string& key, const std::string& value, Time /*deadline*/) {
  return rendezvous_->set(key, value);
}

Result<std::optional<std::string>> RendezvousStore::find(const std::string& key, Time patience,
                                                         Time /*deadline*/) {
  for (Duration pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    THALWEG_TRY(std::optional<std::string> value, rendezvous_->get(key));
    const Time now = monotonic_now();
    if (value || now >= patience) return value;
    const Duration turn = std::min(pause, patience - now);
    std::this_thread::sleep_for(std::chrono::nanoseconds(turn.ps() / 1000));
  }
}

Result<std::string> RendezvousStore::get(const std::string& key, Time deadline) {
  THALWEG_TRY(std::optional<std::string> value, find(key, deadline, deadline));
  if (value) return *std::move(value);
  return Error(ErrorCode::kTimeout, fmt::format("nobody has set '{}' in the store in time", key));
}

Status RendezvousStore::wait(const std::string& key, Time deadline) {
  const Result<std::string> found = get(key, deadline);
  return found.ok() ? ok_status() : found.error();
}

Result<std::int64_t> RendezvousStore::add(const std::string& key, std::int64_t delta,
                                          Time /*deadline*/) {
  return rendezvous_->add(key, delta);
}

Result<bool> RendezvousStore::compare_and_set(const std::string& key,
                                              const std::optional<std::string>& expected,
                                              const std::string& value, Time /*deadline*/) {
  return rendezvous_->compare_and_set(key, expected, value);
}

Result<SocketAddress> address_towards(const std::string& remote) {
  THALWEG_TRY(const SocketAddress address, SocketAddress::resolve(remote));
  const Fd fd(socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return system_error("cannot make a socket", errno);
  if (connect(fd.get(), address.get(), address.size()) != 0) {
    return system_error(fmt::format("no way to {}", remote), errno);
  }
  SocketAddress own = SocketAddress::local_of(fd.get()).unmapped();
  own.set_port(0);
  return own;
}

}  // namespace thalweg::net
