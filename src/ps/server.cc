#include "ps/server.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <utility>

#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "ps/server_core.h"

namespace thalweg::ps {
namespace {

// A limit, so that a client that sends much does not make the others wait.
constexpr std::size_t kBytesPerTurn = std::size_t{8} << 20;
// What is read at once of a stream that is sealed, or may come to be.
constexpr std::size_t kGreetedRead = std::size_t{1} << 18;
// The interval between two looks for a client's DLCP connection.
constexpr Duration kLook = Duration::milliseconds(1);

Error changed_request(const char* what) {
  return {ErrorCode::kInternal,
          fmt::format("{} changed on the way from the worker: its CRC-32C is wrong", what)};
}

Error other_version() {
  return Error(
      fmt::format("the first byte from the worker is not {}: its Thalweg is of another "
                  "version, or the byte changed on the way",
                  wire::kPsVersion));
}

}  // namespace

ParameterServer::Core::Core(const PsConfig& config, std::unique_ptr<net::EventLoop> loop,
                            net::Fd listener, std::string packet_key,
                            std::optional<DlcpPeers> peers)
    : config_(config),
      packet_key_(std::move(packet_key)),
      loop_(std::move(loop)),
      streams_(*loop_, std::move(listener), kMaxClients, *this),
      address_(net::SocketAddress::local_of(streams_.listener()).unmapped().to_string()),
      table_(config.parameters),
      group_(
          config_, table_, [this](std::function<void()> work) { loop_->post(std::move(work)); },
          [this](const AtpGroup::Replies& replies) {
            if (replies.front().kind == wire::PsKind::kValue) ++counters_.pushes;
            deliver(replies);
            retry();
          }),
      peers_(std::move(peers)) {
  if (config.key) key_ = net::derived_key(*config.key, net::KeyPurpose::kParameterServer);
}

ParameterServer::Core::~Core() {
  // Transfers and the ATP node may end later; the stopped loop does not run the work they post.
  loop_->stop();
  if (thread_.joinable()) thread_.join();
}

Status ParameterServer::Core::start() {
  THALWEG_TRY_STATUS(streams_.start());
  thread_ = std::thread([this] { loop_->run([this] { return turn(); }); });
  return ok_status();
}

ParameterServer::Counters ParameterServer::Core::counters() {
  std::promise<Counters> answer;
  loop_->post([&] {
    Counters counters = counters_;
    counters.push_bytes += group_.bytes();
    answer.set_value(counters);
  });
  return answer.get_future().get();
}

bool ParameterServer::Core::on_readable(Client& client) {
  if (client.state.spoiled) {
    std::array<std::byte, std::size_t{64} << 10> ignored;
    const ssize_t got = recv(client.fd.get(), ignored.data(), ignored.size(), 0);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }
  const auto& stream = client.state.stream;
  if (!stream || stream->state() != net::KeyedStream::State::kPlain) return read_greeted(client);
  RequestReader& reader = client.state.reader;
  for (std::size_t read = 0; read < kBytesPerTurn;) {
    const std::span<std::byte> room = reader.room();
    const ssize_t got = recv(client.fd.get(), room.data(), room.size(), 0);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    // A client must wait for the answer before its next request; otherwise it is closed.
    if (client.state.waiting != Waiting::kNothing || client.unsent() > 0) return false;
    read += static_cast<std::size_t>(got);
    if (!on_received(client, static_cast<std::size_t>(got))) return false;
    if (client.state.spoiled) return true;
  }
  return true;
}

bool ParameterServer::Core::read_greeted(Client& client) {
  auto& stream = client.state.stream;
  if (!stream) stream = std::make_unique<net::KeyedStream>(key_, net::random_number());
  received_.resize(kGreetedRead);
  std::vector<std::byte> out;
  for (std::size_t read = 0; read < kBytesPerTurn;) {
    const ssize_t got = recv(client.fd.get(), received_.data(), received_.size(), 0);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    read += static_cast<std::size_t>(got);
    plain_.clear();
    out.clear();
    stream->on_received(std::span(received_).first(static_cast<std::size_t>(got)), plain_, out);
    if (!out.empty()) streams_.send(client, out);
    if (stream->over()) {
      end_refused(client);
      return true;
    }
    for (std::span<const std::byte> left(plain_); !left.empty();) {
      // As in on_readable().
      if (client.state.waiting != Waiting::kNothing || client.unsent() > 0) return false;
      const std::span<std::byte> room = client.state.reader.room();
      const std::size_t size = std::min(room.size(), left.size());
      std::ranges::copy(left.first(size), room.begin());
      left = left.subspan(size);
      if (!on_received(client, size)) return false;
      if (client.state.spoiled) return true;
    }
    if (stream->state() == net::KeyedStream::State::kPlain) return true;
  }
  return true;
}

void ParameterServer::Core::end_refused(Client& client) {
  if (client.state.stream->state() == net::KeyedStream::State::kKeyNeeded) {
    refuse(client, Error(ErrorCode::kMismatch,
                         "wrong key: the server holds a key, and this worker holds none "
                         "(THALWEG_KEY_FILE)"));
  }
  shutdown(client.fd.get(), SHUT_WR);
  client.state.spoiled = true;
}

bool ParameterServer::Core::on_received(Client& client, std::size_t bytes) {
  RequestReader& reader = client.state.reader;
  const RequestReader::Progress progress = reader.on_received(bytes);
  switch (progress) {
    case RequestReader::Progress::kMore:
      return true;
    case RequestReader::Progress::kNamed:
      if (const Status may = check(client); !may.ok()) reader.refuse(may.error());
      return true;
    case RequestReader::Progress::kComplete:
      return serve(client);
    case RequestReader::Progress::kChanged:
      ++counters_.changed;
      refuse(client, changed_request("the payload of a request"));
      return true;
    case RequestReader::Progress::kSpoiled:
    case RequestReader::Progress::kVersion:
      ++counters_.changed;
      end_spoiled(client, progress);
      return true;  // what comes now is not looked at
    case RequestReader::Progress::kBad:
      return false;
  }
  return false;
}

void ParameterServer::Core::end_spoiled(Client& client, RequestReader::Progress why) {
  refuse(client, why == RequestReader::Progress::kVersion
                     ? other_version()
                     : changed_request("the header of a request"));
  // Closing a socket with bytes that were not read would take the answer back.
  shutdown(client.fd.get(), SHUT_WR);
  client.state.spoiled = true;
}

void ParameterServer::Core::on_closed(Client& client) {
  if (peers_) peers_->forget(client.state.peer_name);
  if (!client.state.worker) return;
  const auto own = by_worker_.find(*client.state.worker);
  // If the worker has come back, it has another connection already.
  if (own == by_worker_.end() || own->second != client.number) return;
  by_worker_.erase(own);
  worker_left(*client.state.worker);
}

void ParameterServer::Core::worker_left(std::uint32_t worker) {
  table_.leave(worker);
  deliver(group_.leave(worker));
  retry();
}

std::optional<Time> ParameterServer::Core::turn() {
  std::optional<Time> late;
  if (key_) late = net::close_late(streams_, net::monotonic_now(), config_.greeting_time);
  if (!peers_) return late;
  bool waits = false;
  for (auto& [number, client] : streams_.clients()) {
    if (client.state.waiting != Waiting::kPeer) continue;
    if (client.state.reader.header().kind == wire::PsKind::kPushTransfer) {
      push_transfer(client);
    } else {
      pull(client);
    }
    waits |= client.state.waiting == Waiting::kPeer;
  }
  return waits ? std::optional(net::monotonic_now() + kLook) : late;
}

ParameterServer::ParameterServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ParameterServer::~ParameterServer() = default;
const std::string& ParameterServer::address() const { return core_->address(); }
ParameterServer::Counters ParameterServer::counters() { return core_->counters(); }

Result<std::unique_ptr<ParameterServer>> ParameterServer::start(const PsConfig& config) {
  THALWEG_TRY_STATUS(config.validate());
  THALWEG_TRY(net::Fd listener, net::listen_tcp(config.listen));
  THALWEG_TRY(std::unique_ptr<net::EventLoop> loop, net::EventLoop::make());
  const std::string packet_key =
      config.key ? fmt::format("{:016x}{:016x}", net::random_number(), net::random_number()) : "";
  std::optional<DlcpPeers> peers;
  if (config.transport == Transport::kDlcp) {
    THALWEG_TRY(const net::HostPort at, net::HostPort::parse(config.listen));
    THALWEG_TRY(peers, DlcpPeers::listen(at.host, packet_key));
  }
  auto core = std::make_unique<Core>(config, std::move(loop), std::move(listener), packet_key,
                                     std::move(peers));
  THALWEG_TRY_STATUS(core->start());
  return std::unique_ptr<ParameterServer>(new ParameterServer(std::move(core)));
}

}  // namespace thalweg::ps
