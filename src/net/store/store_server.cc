#include "net/store/store_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <limits>
#include <thread>
#include <unordered_map>
#include <utility>

#include "net/auth/stream_key.h"
#include "net/dlcp/control_stream.h"
#include "net/io/address.h"
#include "net/io/event_loop.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/io/tcp_listener.h"
#include "net/store/store_cover.h"

namespace thalweg::net {
namespace {

constexpr Duration kStoreHelloTime = Duration::milliseconds(10'000);
// A client whose system does not answer for this long is closed.
constexpr int kClientTimeoutMs = 60'000;
// A client that does not exist: its replies are not sent.
constexpr auto kNobody = std::numeric_limits<StoreTable::Client>::max();
constexpr std::size_t kServerReadSize = std::size_t{1} << 16;
// The server does not read from a client that has more than this many bytes of replies to read.
constexpr std::size_t kMaxUnread = std::size_t{4} << 20;

void send_hello(int fd, HelloStatus status, std::uint64_t challenge = 0, bool checks = false) {
  const auto bytes = encode_store_hello({.status = status, .token = challenge, .checks = checks});
  // The hello fits the socket's buffer, which is empty. If the client is gone, the next read or
  // write fails.
  [[maybe_unused]] const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

struct Connection {
  Fd fd;
  StoreTable::Client id = 0;
  Time hello_by;
  bool greeted = false;
  std::optional<StreamKey> key = {};  // set while the client, after its hello, must prove its key
  bool blocked = false;               // the socket did not take all of `out`
  // Set as soon as all that follows is sealed or has checksums.
  std::optional<StoreCover> cover = {};
  std::vector<std::byte> covered = {};  // bytes that were read and not taken yet
  bool spoiled = false;  // its bytes changed on the way: what it sends is not looked at any more
  std::vector<std::byte> in;
  std::vector<std::byte> out;
  std::size_t sent = 0;  // bytes of `out` that the socket took

  [[nodiscard]] std::size_t unsent() const { return out.size() - sent; }
};

}  // namespace

class StoreServer::Core final : public EventLoop::Handler {
 public:
  Core(std::unique_ptr<EventLoop> loop, Fd listener, wire::JobToken token,
       const std::optional<wire::JobKey>& key, const StoreLimits& limits)
      : loop_(std::move(loop)),
        listener_(std::move(listener), kMaxStoreClients),
        address_(SocketAddress::local_of(listener_.fd()).to_string()),
        token_(token),
        key_(key),
        table_(limits) {}
  ~Core() override {
    loop_->stop();
    if (thread_.joinable()) thread_.join();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Status start() {
    THALWEG_TRY_STATUS(loop_->add(listener_.fd(), EPOLLIN, *this));
    thread_ = std::thread([this] { loop_->run([this] { return turn(); }); });
    return ok_status();
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  Counters counters() {
    std::promise<Counters> answer;
    loop_->post([&] {
      answer.set_value({connections_.size(), refused_, table_.keys(), table_.waiting()});
    });
    return answer.get_future().get();
  }

  void put(std::string key, std::string value) {
    loop_->post([this, key = std::move(key), value = std::move(value)] {
      StoreTable::Replies replies;
      table_.on_request(monotonic_now(), kNobody,
                        {.what = StoreRequest::What::kSet, .key = key, .value = value}, replies);
      deliver(replies);
    });
  }

  void on_ready(int fd, std::uint32_t events) override;

 private:
  std::optional<Time> turn();
  void add(Fd fd);
  // Tells a client that there is no room for it.
  void refuse(int fd);
  // These return false if the connection is over.
  bool receive(Connection& c);
  bool greet(Connection& c);
  bool check_key(Connection& c);
  bool uncover(Connection& c);
  // Tells the client that its bytes changed on the way.
  bool end_spoiled(Connection& c);
  bool serve(Connection& c);
  bool flush(Connection& c);
  void deliver(const StoreTable::Replies& replies);
  void drop(int fd);

  std::unique_ptr<EventLoop> loop_;
  TcpListener listener_;
  std::string address_;
  wire::JobToken token_;
  std::optional<wire::JobKey> key_;
  StoreTable table_;
  std::unordered_map<int, Connection> connections_;  // by descriptor
  std::unordered_map<StoreTable::Client, int> descriptors_;
  StoreTable::Client next_client_ = 0;
  std::size_t refused_ = 0;
  std::size_t greeting_ = 0;              // connections whose handshake is not complete
  std::vector<StoreTable::Client> over_;  // clients to close at the next turn
  std::thread thread_;
};

std::optional<Time> StoreServer::Core::turn() {
  const Time now = monotonic_now();
  StoreTable::Replies replies;
  table_.on_timeout(now, replies);
  deliver(replies);
  std::optional<Time> next = table_.next_timeout();
  if (greeting_ > 0) {
    for (const auto& [fd, c] : connections_) {
      if (c.greeted) continue;
      if (now >= c.hello_by) {
        over_.push_back(c.id);
        ++refused_;
      } else {
        next = next ? std::min(*next, c.hello_by) : c.hello_by;
      }
    }
  }
  for (const StoreTable::Client client : std::exchange(over_, {})) {
    if (const auto found = descriptors_.find(client); found != descriptors_.end()) {
      drop(found->second);
    }
  }
  return next;
}

void StoreServer::Core::on_ready(int fd, std::uint32_t events) {
  if (fd == listener_.fd()) {
    listener_.accept_all([this](Fd client) { add(std::move(client)); },
                         [this](int client) { refuse(client); });
    return;
  }
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  Connection& c = found->second;
  bool alive = (events & (EPOLLERR | EPOLLHUP)) == 0;
  if (alive && (events & EPOLLOUT) != 0) alive = flush(c) && serve(c);
  if (alive && (events & EPOLLIN) != 0) alive = receive(c);
  if (!alive) drop(fd);
}

void StoreServer::Core::refuse(int fd) {
  ++refused_;
  send_hello(fd, HelloStatus::kNoRoom);
}

void StoreServer::Core::add(Fd fd) {
  const int number = fd.get();
  if (connections_.size() >= kMaxStoreClients || !loop_->add(number, EPOLLIN, *this).ok()) {
    refuse(number);
    return;
  }
  set_signal_options(number, kClientTimeoutMs);
  Connection& c = connections_[number];
  c.fd = std::move(fd);
  c.id = next_client_++;
  c.hello_by = monotonic_now() + kStoreHelloTime;
  descriptors_[c.id] = number;
  ++greeting_;
}

bool StoreServer::Core::receive(Connection& c) {
  while (c.unsent() <= kMaxUnread) {
    std::vector<std::byte>& in = c.cover ? c.covered : c.in;
    const std::size_t had = in.size();
    in.resize(had + kServerReadSize);
    const ssize_t got = recv(c.fd.get(), &in[had], kServerReadSize, 0);
    in.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (c.cover && !uncover(c)) return false;
    if (!c.greeted && !greet(c)) return false;
    if (c.greeted && !serve(c)) return false;
    if (static_cast<std::size_t>(got) < kServerReadSize) return true;
  }
  return true;
}

bool StoreServer::Core::greet(Connection& c) {
  if (c.key) return check_key(c);
  if (c.in.size() < kStoreHelloSize) return true;
  StoreHello hello;
  const wire::WireError error =
      decode_store_hello(std::span<const std::byte>(c.in).first<kStoreHelloSize>(), hello);
  const bool same_key = hello.keyed == key_.has_value();
  if (error == wire::WireError::kNone && hello.token == token_ && same_key) {
    c.in.erase(c.in.begin(), c.in.begin() + kStoreHelloSize);
    const std::uint64_t challenge = key_ ? random_number() : 0;
    send_hello(c.fd.get(), HelloStatus::kHello, challenge, hello.checks);
    if (key_) {
      c.key.emplace(*key_, token_, challenge);
      return check_key(c);
    }
    c.greeted = true;
    --greeting_;
    if (!hello.checks) return true;
    c.cover.emplace();
    c.covered = std::exchange(c.in, {});
    return uncover(c);
  }
  ++refused_;
  if (error == wire::WireError::kVersion) send_hello(c.fd.get(), HelloStatus::kWrongVersion);
  if (error != wire::WireError::kNone) return false;
  send_hello(c.fd.get(), hello.token != token_ ? HelloStatus::kWrongToken
                         : key_                ? HelloStatus::kKeyNeeded
                                               : HelloStatus::kKeyless);
  return false;
}

bool StoreServer::Core::check_key(Connection& c) {
  if (c.in.size() < StreamKey::kOpeningSize) return true;
  const std::optional<StreamKey::Admission> admission =
      c.key->admit(std::span<const std::byte>(c.in).first<StreamKey::kOpeningSize>());
  if (!admission || !admission->secrets) {
    ++refused_;
    return false;
  }
  c.in.erase(c.in.begin(), c.in.begin() + StreamKey::kOpeningSize);
  c.key.reset();
  c.greeted = true;
  --greeting_;
  c.cover.emplace(*admission->secrets);
  c.covered = std::exchange(c.in, {});
  c.out.insert(c.out.end(), admission->answer.begin(), admission->answer.end());
  return flush(c) && uncover(c);
}

bool StoreServer::Core::uncover(Connection& c) {
  if (c.spoiled) {
    c.covered.clear();
    return true;
  }
  if (c.cover->take(c.covered, c.in)) return true;
  ++refused_;
  // Who changed sealed bytes learns nothing.
  return !c.cover->sealed() && end_spoiled(c);
}

bool StoreServer::Core::end_spoiled(Connection& c) {
  table_.on_gone(c.id);
  c.spoiled = true;
  c.covered.clear();
  c.in.clear();
  std::vector<std::byte> plain;
  encode_store(StoreReply{.outcome = StoreReply::Outcome::kChanged}, plain);
  c.cover->put(plain, c.out);
  if (!flush(c)) return false;
  // Closing a socket with bytes that were not read would take the reply back.
  if (c.unsent() == 0) shutdown(c.fd.get(), SHUT_WR);
  return true;
}

bool StoreServer::Core::serve(Connection& c) {
  std::span<const std::byte> left(c.in);
  StoreRequest request;
  StoreTable::Replies replies;
  wire::WireError error = wire::WireError::kNone;
  while (c.unsent() <= kMaxUnread) {
    error = take_store(left, request);
    if (error != wire::WireError::kNone) break;
    table_.on_request(monotonic_now(), c.id, std::move(request), replies);
    deliver(replies);
    replies.clear();
  }
  c.in.erase(c.in.begin(), c.in.end() - static_cast<std::ptrdiff_t>(left.size()));
  if (error == wire::WireError::kNone || error == wire::WireError::kShort) return true;
  ++refused_;
  return false;
}

void StoreServer::Core::deliver(const StoreTable::Replies& replies) {
  for (const auto& [client, reply] : replies) {
    const auto found = descriptors_.find(client);
    if (found == descriptors_.end()) continue;
    Connection& c = connections_.at(found->second);
    if (c.cover) {
      std::vector<std::byte> plain;
      encode_store(reply, plain);
      c.cover->put(plain, c.out);
    } else {
      encode_store(reply, c.out);
    }
    if (!c.blocked && !flush(c)) over_.push_back(client);
  }
}

bool StoreServer::Core::flush(Connection& c) {
  while (c.unsent() > 0) {
    const ssize_t sent = send(c.fd.get(), &c.out[c.sent], c.unsent(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent < 0) break;
    c.sent += static_cast<std::size_t>(sent);
  }
  if (c.unsent() == 0) {
    c.out.clear();
    c.sent = 0;
  }
  const bool blocked = c.unsent() > 0;
  if (blocked || c.blocked) {
    c.blocked = blocked;
    const bool listens = c.unsent() <= kMaxUnread;
    loop_->change(c.fd.get(), (blocked ? EPOLLOUT : 0U) | (listens ? EPOLLIN : 0U));
  }
  return true;
}

void StoreServer::Core::drop(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  table_.on_gone(found->second.id);
  descriptors_.erase(found->second.id);
  if (!found->second.greeted) --greeting_;
  loop_->remove(fd);
  connections_.erase(found);
}

StoreServer::StoreServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
StoreServer::~StoreServer() = default;
void StoreServer::put(std::string key, std::string value) {
  core_->put(std::move(key), std::move(value));
}
StoreServer::StoreServer(StoreServer&&) noexcept = default;
StoreServer& StoreServer::operator=(StoreServer&&) noexcept = default;

Result<StoreServer> StoreServer::start(const std::string& listen_address, wire::JobToken token,
                                       const std::optional<wire::JobKey>& key,
                                       const StoreLimits& limits) {
  THALWEG_TRY(Fd listener, listen_tcp(listen_address));
  THALWEG_TRY(std::unique_ptr<EventLoop> loop, EventLoop::make());
  auto core = std::make_unique<Core>(std::move(loop), std::move(listener), token, key, limits);
  THALWEG_TRY_STATUS(core->start());
  return StoreServer(std::move(core));
}

const std::string& StoreServer::address() const { return core_->address(); }
StoreServer::Counters StoreServer::counters() const { return core_->counters(); }

}  // namespace thalweg::net
