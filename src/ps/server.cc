#include "ps/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/address.h"
#include "net/event_loop.h"
#include "net/fd.h"
#include "net/tcp.h"
#include "wire/ps_message.h"

namespace thalweg {
namespace {

struct Client {
  Fd fd;
  std::array<std::byte, kPsHeaderSize> head;
  std::vector<std::byte> body;
  std::size_t received = 0;  // of head and body
  PsHeader request;
  std::optional<std::uint32_t> worker;  // once it has said so
  bool waiting = false;                 // its pull has no answer yet
  std::vector<std::byte> out;
  std::size_t sent = 0;

  [[nodiscard]] std::string name() const {
    return {reinterpret_cast<const char*>(body.data()), request.text};
  }
};

}  // namespace

class ParameterServer::Core final : public EventLoop::Handler {
 public:
  Core(const PsConfig& config, std::unique_ptr<EventLoop> loop, Fd listener)
      : loop_(std::move(loop)),
        listener_(std::move(listener)),
        address_(SocketAddress::local_of(listener_.get()).unmapped().to_string()),
        config_(config),
        table_(config.parameters) {}
  ~Core() override {
    loop_->stop();
    if (thread_.joinable()) thread_.join();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Status start() {
    THALWEG_TRY_STATUS(loop_->add(listener_.get(), EPOLLIN, *this));
    thread_ = std::thread([this] { loop_->run([] { return std::optional<Time>(); }); });
    return ok_status();
  }
  [[nodiscard]] const std::string& address() const { return address_; }

  void on_ready(int fd, std::uint32_t events) override {
    if (fd == listener_.get()) {
      accept_all();
      return;
    }
    const auto found = clients_.find(fd);
    if (found == clients_.end()) return;
    bool alive = (events & (EPOLLERR | EPOLLHUP)) == 0;
    if (alive && (events & EPOLLOUT) != 0) alive = flush(found->second);
    if (alive && (events & EPOLLIN) != 0) alive = receive(found->second);
    if (!alive) gone_.push_back(fd);
    drop_gone();
  }

 private:
  void accept_all() {
    while (true) {
      Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) return;
      const int number = fd.get();
      if (clients_.size() >= kMaxClients || !loop_->add(number, EPOLLIN, *this).ok()) continue;
      prepare_stream(number);
      clients_[number].fd = std::move(fd);
    }
  }

  // False: the connection is over.
  bool receive(Client& client) {
    while (true) {
      const bool in_head = client.received < kPsHeaderSize;
      std::byte* const to = in_head ? &client.head[client.received]
                                    : client.body.data() + (client.received - kPsHeaderSize);
      const std::size_t room = in_head ? kPsHeaderSize - client.received
                                       : kPsHeaderSize + client.body.size() - client.received;
      const ssize_t got = recv(client.fd.get(), to, room, 0);
      if (got == 0) return false;
      if (got < 0) return errno == EAGAIN;
      client.received += static_cast<std::size_t>(got);
      if (client.received < kPsHeaderSize) continue;
      if (in_head && !begin(client)) return false;
      if (client.received < kPsHeaderSize + client.body.size()) continue;
      // A client asks one thing at a time: more before the answer is not listened to.
      if (client.waiting || !serve(client)) return false;
    }
  }

  // The header is there.
  bool begin(Client& client) {
    if (decode_ps_header(client.head, client.request) != WireError::kNone) return false;
    const PsKind kind = client.request.kind;
    if (kind != PsKind::kInit && kind != PsKind::kPush && kind != PsKind::kPull) return false;
    if (client.request.elements > config_.parameters.max_elements) return false;
    client.body.resize(client.request.body());
    return true;
  }

  // The request is complete.
  bool serve(Client& client) {
    client.received = 0;
    client.worker = client.request.worker;
    const std::string name = client.name();
    std::vector<float> elements(client.request.elements);
    if (!elements.empty()) {
      std::memcpy(elements.data(), client.body.data() + client.request.text,
                  elements.size() * sizeof(float));
    }
    if (client.request.kind == PsKind::kPull) return pull(client);
    if (client.request.kind == PsKind::kInit) {
      const Result<ParameterTable::View> view = table_.init(name, elements);
      return view.ok() ? answer(client, *view) : refuse(client, view.error());
    }
    const Status pushed = table_.push(client.request.worker, name, elements);
    const bool alive = pushed.ok() ? answer(client, {}) : refuse(client, pushed.error());
    retry();
    return alive;
  }

  bool pull(Client& client) {
    const auto view = table_.pull(client.request.worker, client.name());
    client.waiting = view.ok() && !view->has_value();
    if (!view.ok()) return refuse(client, view.error());
    return client.waiting || answer(client, **view);
  }

  // Pulls that wait may be answered now.
  void retry() {
    for (auto& [fd, client] : clients_) {
      if (client.waiting && !pull(client)) gone_.push_back(fd);
    }
  }

  bool answer(Client& client, const ParameterTable::View& view) {
    PsHeader header;
    header.elements = view.values.size();
    header.clock = view.clock;
    return reply(client, header, std::as_bytes(view.values));
  }
  bool refuse(Client& client, const Error& error) {
    const std::string text = error.message().substr(0, kMaxPsText);
    PsHeader header;
    header.kind = PsKind::kError;
    header.text = static_cast<std::uint32_t>(text.size());
    return reply(client, header, std::as_bytes(std::span(text)));
  }
  bool reply(Client& client, const PsHeader& header, std::span<const std::byte> body) {
    client.out.resize(kPsHeaderSize + body.size());
    encode_ps_header(header, std::span(client.out).first<kPsHeaderSize>());
    std::ranges::copy(body, client.out.begin() + kPsHeaderSize);
    client.sent = 0;
    return flush(client);
  }

  bool flush(Client& client) {
    while (client.sent < client.out.size()) {
      const ssize_t sent = send(client.fd.get(), client.out.data() + client.sent,
                                client.out.size() - client.sent, MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent < 0) break;
      client.sent += static_cast<std::size_t>(sent);
    }
    const bool blocked = client.sent < client.out.size();
    loop_->change(client.fd.get(), blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return true;
  }

  void drop_gone() {
    // Whoever waits for a worker that is gone is told, and may be gone too.
    while (!gone_.empty()) {
      const int next = gone_.back();
      gone_.pop_back();
      const auto found = clients_.find(next);
      if (found == clients_.end()) continue;
      const std::optional<std::uint32_t> worker = found->second.worker;
      loop_->remove(next);
      clients_.erase(found);
      if (!worker) continue;
      table_.leave(*worker);
      retry();
    }
  }

  std::unique_ptr<EventLoop> loop_;
  Fd listener_;
  std::string address_;
  PsConfig config_;
  ParameterTable table_;
  std::unordered_map<int, Client> clients_;  // by descriptor
  std::vector<int> gone_;                    // to be dropped
  std::thread thread_;
};

ParameterServer::ParameterServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ParameterServer::~ParameterServer() = default;
const std::string& ParameterServer::address() const { return core_->address(); }

Result<std::unique_ptr<ParameterServer>> ParameterServer::start(const PsConfig& config) {
  THALWEG_TRY(Fd listener, listen_tcp(config.listen));
  THALWEG_TRY(std::unique_ptr<EventLoop> loop, EventLoop::make());
  auto core = std::make_unique<Core>(config, std::move(loop), std::move(listener));
  THALWEG_TRY_STATUS(core->start());
  return std::unique_ptr<ParameterServer>(new ParameterServer(std::move(core)));
}

}  // namespace thalweg
