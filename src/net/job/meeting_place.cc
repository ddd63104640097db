#include "net/job/meeting_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <string_view>

#include "net/auth/stream_key.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/job/environment.h"
#include "net/job/interfaces.h"
#include "net/store/rendezvous_store.h"

namespace thalweg {
namespace net {
namespace {

constexpr int kTokenBase = 16;

}  // namespace

Result<PlaceAddress> PlaceAddress::parse(const std::string& text) {
  const std::size_t first = text.find(' ');
  const std::size_t second = first == std::string::npos ? first : text.find(' ', first + 1);
  PlaceAddress place;
  if (second != std::string::npos) {
    const auto [at, error] =
        std::from_chars(text.data(), text.data() + first, place.token, kTokenBase);
    if (error == std::errc() && at == text.data() + first) {
      place.store = text.substr(first + 1, second - first - 1);
      place.streams = text.substr(second + 1);
    }
  }
  if (place.store.empty() || place.streams.empty()) {
    return Error(fmt::format(
        "'{}' is no address of a meeting place; what MeetingPlace::address() returns is allowed",
        text));
  }
  return place;
}

std::string PlaceAddress::to_string() const {
  return fmt::format("{:x} {} {}", token, store, streams);
}

std::string PlaceAddress::host() const {
  const Result<StreamAddress> address = StreamAddress::parse(streams);
  if (!address.ok()) return {};
  const Result<HostPort> first = HostPort::parse(address->host_ports.front());
  return first.ok() ? first->host : std::string();
}

}  // namespace net

Result<std::shared_ptr<MeetingPlace>> MeetingPlace::open(const std::string& towards) {
  THALWEG_TRY(const net::Environment environment,
              net::environment_from([outer = net::process_environment()](
                                        const std::string& name) -> std::optional<std::string> {
                // The launcher's rank has no meaning here.
                if (name == "THALWEG_RANK") return "0";
                if (name == "THALWEG_SIZE") return "1";
                return outer(name);
              }));
  THALWEG_TRY(std::optional<wire::JobKey> key, net::job_key_from(net::process_environment()));
  THALWEG_TRY(const net::SocketAddress own, net::address_towards(towards));
  THALWEG_TRY(std::vector<net::SocketAddress> addresses,
              net::rank_addresses(environment.interfaces, own));
  const wire::JobToken token = net::random_number();
  THALWEG_TRY(net::StoreServer store,
              net::StoreServer::start(addresses.front().to_string(), token, key));
  return std::shared_ptr<MeetingPlace>(new MeetingPlace(
      std::make_unique<Core>(std::move(addresses), token, std::move(key), std::move(store))));
}

MeetingPlace::MeetingPlace(std::unique_ptr<Core> core) : core_(std::move(core)) {}
MeetingPlace::~MeetingPlace() { net::abandon_unless_home(core_); }

Result<std::string> MeetingPlace::address() { return core_->address(); }

Result<std::string> MeetingPlace::Core::address() {
  THALWEG_TRY_STATUS(home_.check("the meeting place"));
  const std::lock_guard lock(mutex_);
  THALWEG_TRY_STATUS(prepare());
  return text();
}

std::string MeetingPlace::Core::text() const {
  return net::PlaceAddress{token_, store_.address(), next_->streams}.to_string();
}

Status MeetingPlace::Core::prepare() {
  if (next_) return ok_status();
  net::PlaceSockets next;
  next.addresses = addresses_;
  std::vector<std::string> host_ports;
  for (const net::SocketAddress& address : addresses_) {
    THALWEG_TRY(net::Fd socket, net::listen_tcp(address.to_string()));
    host_ports.push_back(net::SocketAddress::local_of(socket.get()).unmapped().to_string());
    next.sockets.push_back(std::move(socket));
  }
  next.streams = fmt::format("{}", fmt::join(host_ports, ","));
  if (key_) {
    next.challenge = net::random_number();
    // Addresses do not depend on the signature.
    next.streams = net::StreamKey(*key_, 0, next.challenge).address(next.streams);
  }
  next_ = std::move(next);
  return ok_status();
}

Result<net::PlaceSockets> MeetingPlace::Core::take(const std::string& address) {
  THALWEG_TRY_STATUS(home_.check("the meeting place"));
  const std::lock_guard lock(mutex_);
  if (!next_ || text() != address) {
    return Error(
        fmt::format("places: '{}' is not this process's address now; ask the meeting "
                    "place for its address before each communicator",
                    address));
  }
  net::PlaceSockets taken = *std::move(next_);
  next_.reset();
  return taken;
}

}  // namespace thalweg
