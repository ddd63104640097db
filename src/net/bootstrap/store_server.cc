#include "net/bootstrap/store_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <thread>
#include <unordered_map>
#include <utility>

#include "net/address.h"
#include "net/control_stream.h"
#include "net/event_loop.h"
#include "net/stream_key.h"
#include "net/system.h"
#include "net/tcp.h"
#include "net/tcp_listener.h"

namespace thalweg {
namespace {

constexpr Duration kHelloTime = Duration::milliseconds(10'000);
// A client whose system does not answer for so long is gone.
constexpr int kClientTimeoutMs = 60'000;
constexpr std::size_t kReadSize = std::size_t{1} << 16;
// A client with so much to read is not listened to.
constexpr std::size_t kMaxUnread = std::size_t{4} << 20;

void send_hello(int fd, HelloStatus status, std::uint64_t challenge = 0) {
  const auto bytes = encode_store_hello({status, challenge});
  // It fits an empty buffer; if the client is gone, its socket says so next.
  [[maybe_unused]] const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

struct Connection {
  Fd fd;
  StoreTable::Client id = 0;
  Time hello_by;
  bool greeted = false;
  std::optional<StreamKey> key = {};  // it has said hello, and has to prove that it holds it
  bool blocked = false;               // there is something to send that the socket did not take
  std::vector<std::byte> in;
  std::vector<std::byte> out;
  std::size_t sent = 0;  // of out

  [[nodiscard]] std::size_t unsent() const { return out.size() - sent; }
};

}  // namespace

class StoreServer::Core final : public EventLoop::Handler {
 public:
  Core(std::unique_ptr<EventLoop> loop, Fd listener, JobToken token,
       const std::optional<JobKey>& key, const StoreLimits& limits)
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

  void on_ready(int fd, std::uint32_t events) override;

 private:
  std::optional<Time> turn();
  void add(Fd fd);
  // There is no room for it.
  void refuse(int fd);
  // False: the connection is over.
  bool receive(Connection& c);
  bool greet(Connection& c);
  bool check_key(Connection& c);
  bool serve(Connection& c);
  bool flush(Connection& c);
  void deliver(const StoreTable::Replies& replies);
  void drop(int fd);

  std::unique_ptr<EventLoop> loop_;
  TcpListener listener_;
  std::string address_;
  JobToken token_;
  std::optional<JobKey> key_;
  StoreTable table_;
  std::unordered_map<int, Connection> connections_;  // by descriptor
  std::unordered_map<StoreTable::Client, int> descriptors_;
  StoreTable::Client next_client_ = 0;
  std::size_t refused_ = 0;
  std::size_t greeting_ = 0;              // connections that have not said hello
  std::vector<StoreTable::Client> over_;  // broke while others were served
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
  c.hello_by = monotonic_now() + kHelloTime;
  descriptors_[c.id] = number;
  ++greeting_;
}

bool StoreServer::Core::receive(Connection& c) {
  while (c.unsent() <= kMaxUnread) {
    const std::size_t had = c.in.size();
    c.in.resize(had + kReadSize);
    const ssize_t got = recv(c.fd.get(), &c.in[had], kReadSize, 0);
    c.in.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (!c.greeted && !greet(c)) return false;
    if (c.greeted && !serve(c)) return false;
    if (static_cast<std::size_t>(got) < kReadSize) return true;
  }
  return true;
}

bool StoreServer::Core::greet(Connection& c) {
  if (c.key) return check_key(c);
  if (c.in.size() < kStoreHelloSize) return true;
  StoreHello hello;
  const WireError error =
      decode_store_hello(std::span<const std::byte>(c.in).first<kStoreHelloSize>(), hello);
  const bool same_key = hello.keyed == key_.has_value();
  if (error == WireError::kNone && hello.token == token_ && same_key) {
    c.in.erase(c.in.begin(), c.in.begin() + kStoreHelloSize);
    const std::uint64_t challenge = key_ ? random_number() : 0;
    send_hello(c.fd.get(), HelloStatus::kHello, challenge);
    if (key_) {
      c.key.emplace(*key_, token_, challenge);
      return check_key(c);
    }
    c.greeted = true;
    --greeting_;
    return true;
  }
  ++refused_;
  if (error == WireError::kVersion) send_hello(c.fd.get(), HelloStatus::kWrongVersion);
  if (error != WireError::kNone) return false;
  send_hello(c.fd.get(), hello.token != token_ ? HelloStatus::kWrongToken
                         : key_                ? HelloStatus::kKeyNeeded
                                               : HelloStatus::kKeyless);
  return false;
}

bool StoreServer::Core::check_key(Connection& c) {
  if (c.in.size() < StreamKey::kOpeningSize) return true;
  const std::optional<SessionProof> answer =
      c.key->admit(std::span<const std::byte>(c.in).first<StreamKey::kOpeningSize>());
  if (!answer) {
    ++refused_;
    return false;
  }
  c.in.erase(c.in.begin(), c.in.begin() + StreamKey::kOpeningSize);
  c.key.reset();
  c.greeted = true;
  --greeting_;
  c.out.insert(c.out.end(), answer->begin(), answer->end());
  return flush(c);
}

bool StoreServer::Core::serve(Connection& c) {
  std::span<const std::byte> left(c.in);
  StoreRequest request;
  StoreTable::Replies replies;
  WireError error = WireError::kNone;
  while (c.unsent() <= kMaxUnread) {
    error = take_store(left, request);
    if (error != WireError::kNone) break;
    table_.on_request(monotonic_now(), c.id, std::move(request), replies);
    deliver(replies);
    replies.clear();
  }
  c.in.erase(c.in.begin(), c.in.end() - static_cast<std::ptrdiff_t>(left.size()));
  if (error == WireError::kNone || error == WireError::kShort) return true;
  ++refused_;
  return false;
}

void StoreServer::Core::deliver(const StoreTable::Replies& replies) {
  for (const auto& [client, reply] : replies) {
    const auto found = descriptors_.find(client);
    if (found == descriptors_.end()) continue;
    Connection& c = connections_.at(found->second);
    encode_store(reply, c.out);
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
StoreServer::StoreServer(StoreServer&&) noexcept = default;
StoreServer& StoreServer::operator=(StoreServer&&) noexcept = default;

Result<StoreServer> StoreServer::start(const std::string& listen_address, JobToken token,
                                       const std::optional<JobKey>& key,
                                       const StoreLimits& limits) {
  THALWEG_TRY(Fd listener, listen_tcp(listen_address));
  THALWEG_TRY(std::unique_ptr<EventLoop> loop, EventLoop::make());
  auto core = std::make_unique<Core>(std::move(loop), std::move(listener), token, key, limits);
  THALWEG_TRY_STATUS(core->start());
  return StoreServer(std::move(core));
}

const std::string& StoreServer::address() const { return core_->address(); }
StoreServer::Counters StoreServer::counters() const { return core_->counters(); }

}  // namespace thalweg
