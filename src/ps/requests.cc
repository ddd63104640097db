// What a parameter server's clients ask for, and the answers.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "net/io/address.h"
#include "net/io/system.h"
#include "net/ps/words.h"
#include "ps/server_core.h"

namespace thalweg::ps {
namespace {

// How long a client may take to connect its DLCP endpoint after asking for a transfer.
constexpr Duration kPeerTime = Duration::milliseconds(5'000);
// The deadline of a transfer; it ends earlier if its client cancels it.
constexpr std::chrono::seconds kTransferTime(60);
constexpr std::size_t kSealAtOnce = std::size_t{1} << 18;  // bytes

}  // namespace

Status ParameterServer::Core::check(const Client& client) const {
  const wire::PsHeader& header = client.state.reader.header();
  const std::string& name = client.state.reader.text();
  if (!client.state.worker) return Error("a connection begins with a hello");
  switch (header.kind) {
    case wire::PsKind::kInit:
      return table_.may_init(name, header.elements);
    case wire::PsKind::kPush:
    case wire::PsKind::kPushTransfer:
      return table_.may_push(*client.state.worker, name, header.elements);
    case wire::PsKind::kPushSum:
      if (header.bytes > header.elements) return Error("more exponents than elements");
      return table_.may_push(*client.state.worker, name, header.elements);
    default:
      return ok_status();
  }
}

bool ParameterServer::Core::serve(Client& client) {
  const RequestReader& reader = client.state.reader;
  const wire::PsHeader& header = reader.header();
  if (header.kind == wire::PsKind::kHello) {
    greet(client);
    return true;
  }
  const Status may = reader.refusal() ? Status(*reader.refusal()) : check(client);
  if (!may.ok()) {
    refuse(client, may.error());
    return true;
  }
  const std::uint32_t worker = *client.state.worker;
  switch (header.kind) {
    case wire::PsKind::kInit: {
      const Result<ParameterTable::View> view = table_.init(reader.text(), reader.elements());
      view.ok() ? answer(client, *view) : refuse(client, view.error());
      return true;
    }
    case wire::PsKind::kPush: {
      const Status pushed = table_.push(worker, reader.text(), reader.elements());
      ++counters_.pushes;
      counters_.push_bytes += reader.body().size();
      pushed.ok() ? answer(client, {}) : refuse(client, pushed.error());
      retry();
      return true;
    }
    case wire::PsKind::kPull:
    case wire::PsKind::kPullTransfer:
      pull(client);
      return true;
    case wire::PsKind::kPushTransfer:
      push_transfer(client);
      return true;
    case wire::PsKind::kJoin:
    case wire::PsKind::kPushSum:
      if (config_.transport != Transport::kAtp) {
        refuse(client, Error("this server is not set up for atp"));
        return true;
      }
      client.state.waiting = Waiting::kOthers;
      deliver(
          header.kind == wire::PsKind::kJoin
              ? group_.join(worker, reader.text(), net::SocketAddress::local_of(client.fd.get()))
              : group_.push(worker, header, reader.text(), reader.body()));
      return true;
    default:
      return false;
  }
}

void ParameterServer::Core::greet(Client& client) {
  const std::uint32_t worker = client.state.reader.header().worker;
  if (worker >= static_cast<std::uint32_t>(config_.parameters.workers)) {
    refuse(client, Error(fmt::format("worker: {}; from 0 to {} are allowed", worker,
                                     config_.parameters.workers - 1)));
    return;
  }
  if (client.state.worker) {
    refuse(client, Error("a connection has one hello"));
    return;
  }
  client.state.worker = worker;
  const auto [own, first] = by_worker_.insert({worker, client.number});
  if (!first) {
    Client& earlier = streams_.clients().at(std::exchange(own->second, client.number));
    worker_left(worker);
    streams_.close(earlier);
  }
  table_.come(worker);
  net::PsWelcome welcome;
  welcome.transport = config_.transport;
  if (peers_) {
    client.state.peer_name = fmt::format("worker {} {:016x}", worker, net::random_number());
    welcome.name = client.state.peer_name;
    welcome.port = peers_->port();
    welcome.token = peers_->token();
    welcome.key = packet_key_;
    welcome.push_loss = config_.push_loss;
    welcome.pull_loss = config_.pull_loss;
  }
  const std::string text = net::to_text(welcome);
  reply(client, {.kind = wire::PsKind::kWelcome, .bytes = static_cast<std::uint32_t>(text.size())},
        std::as_bytes(std::span(text)));
}

void ParameterServer::Core::pull(Client& client) {
  const auto view = table_.pull(*client.state.worker, client.state.reader.text());
  if (!view.ok()) {
    refuse(client, view.error());
  } else if (!view->has_value()) {
    client.state.waiting = Waiting::kValue;
  } else if (client.state.reader.header().kind == wire::PsKind::kPullTransfer) {
    send_value(client, **view);
  } else {
    ++counters_.pulls;
    answer(client, **view);
  }
}

void ParameterServer::Core::send_value(Client& client, const ParameterTable::View& view) {
  const wire::PsHeader& header = client.state.reader.header();
  if (header.elements != view.values.size()) {
    refuse(client, Error(ErrorCode::kMismatch,
                         fmt::format("'{}' has {} elements, not {}", client.state.reader.text(),
                                     view.values.size(), header.elements)));
    return;
  }
  const std::optional<Peer> peer = peer_of(client);
  if (!peer) return;
  // Sends a copy, because the value may change before it has been sent.
  const auto copy = std::make_shared<std::vector<float>>(view.values.begin(), view.values.end());
  const Result<Transfer> transfer =
      peer->send(TensorView::of(*copy),
                 {.key = header.clock, .loss_bound = config_.pull_loss, .deadline = kTransferTime});
  if (!transfer.ok()) {
    refuse(client, transfer.error());
    return;
  }
  // The client's end of the transfer shows whether it arrived.
  transfer->on_done([copy](const Result<TransferReport>& /*report*/) {});
  ++counters_.pulls;
  answer(client, {.values = {}, .clock = view.clock});
}

void ParameterServer::Core::push_transfer(Client& client) {
  const std::optional<Peer> peer = peer_of(client);
  if (!peer) return;
  const wire::PsHeader& header = client.state.reader.header();
  // Elements that do not arrive stay 0.
  const auto gradient = std::make_shared<std::vector<float>>(header.elements);
  const Result<Transfer> transfer =
      peer->recv(TensorSpan::of(*gradient),
                 {.key = header.clock, .loss_bound = config_.push_loss, .deadline = kTransferTime});
  if (!transfer.ok()) {
    refuse(client, transfer.error());
    return;
  }
  client.state.waiting = Waiting::kTransfer;
  transfer->on_done([this, gradient, number = client.number](const Result<TransferReport>& report) {
    loop_->post([this, gradient, number, report] { end_push(number, *gradient, report); });
  });
}

void ParameterServer::Core::end_push(std::uint64_t number, std::span<const float> gradient,
                                     const Result<TransferReport>& report) {
  const auto found = streams_.clients().find(number);
  if (found == streams_.clients().end()) return;
  Client& client = found->second;
  if (!report.ok()) {
    refuse(client, report.error());
    return;
  }
  const Status pushed =
      table_.push(*client.state.worker, client.state.reader.text(), gradient, report->missing);
  std::uint64_t lost = 0;
  for (const ElementRange& range : report->missing) {
    lost += static_cast<std::uint64_t>(range.end - range.begin);
  }
  if (!pushed.ok()) {
    refuse(client, pushed.error());
    return;
  }
  ++counters_.pushes;
  counters_.lost_elements += lost;
  counters_.push_bytes += (gradient.size() - lost) * sizeof(float);
  answer(client, {});
  retry();
}

std::optional<Peer> ParameterServer::Core::peer_of(Client& client) {
  if (!peers_) {
    refuse(client, Error("this server is not set up for dlcp"));
    return std::nullopt;
  }
  std::optional<Peer> peer = peers_->find(client.state.peer_name);
  if (peer) return peer;
  if (client.state.waiting != Waiting::kPeer) {
    client.state.waiting = Waiting::kPeer;
    client.state.peer_by = net::monotonic_now() + kPeerTime;
  } else if (net::monotonic_now() >= client.state.peer_by) {
    refuse(client, Error(ErrorCode::kTimeout, "there is no connection for dlcp"));
  }
  return std::nullopt;
}

void ParameterServer::Core::retry() {
  for (auto& [number, client] : streams_.clients()) {
    if (client.state.waiting == Waiting::kValue) pull(client);
  }
}

void ParameterServer::Core::deliver(const AtpGroup::Replies& replies) {
  for (const AtpGroup::Reply& told : replies) {
    const auto found = by_worker_.find(told.worker);
    if (found == by_worker_.end()) continue;
    Client& client = streams_.clients().at(found->second);
    if (client.state.waiting != Waiting::kOthers) continue;
    if (told.kind == wire::PsKind::kError) {
      refuse(client, Error(told.code, told.text, told.rank));
      continue;
    }
    reply(client, {.kind = told.kind, .bytes = static_cast<std::uint32_t>(told.text.size())},
          std::as_bytes(std::span(told.text)));
    // The worker now waits for the sum.
    if (told.kind == wire::PsKind::kGo) client.state.waiting = Waiting::kOthers;
  }
}

void ParameterServer::Core::answer(Client& client, const ParameterTable::View& view) {
  reply(client, {.kind = wire::PsKind::kValue, .elements = view.values.size(), .clock = view.clock},
        std::as_bytes(view.values));
}

void ParameterServer::Core::refuse(Client& client, const Error& error) {
  ++counters_.refused;
  const std::string text = error.message().substr(0, wire::kMaxPsText);
  reply(client,
        {.kind = wire::PsKind::kError,
         .worker = error.rank() ? static_cast<std::uint32_t>(*error.rank()) : wire::kNoPsWorker,
         .text = static_cast<std::uint32_t>(text.size()),
         .clock = static_cast<std::uint64_t>(error.code())},
        std::as_bytes(std::span(text)));
}

// In parts, so that a client opens one while the next is sealed.
void ParameterServer::Core::send_sealed(Client& client, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kSealAtOnce));
    bytes = bytes.subspan(part.size());
    sealed_.clear();
    client.state.stream->put(part, sealed_);
    streams_.send(client, sealed_);
  }
}

void ParameterServer::Core::reply(Client& client, const wire::PsHeader& header,
                                  std::span<const std::byte> body) {
  const bool checked = client.state.reader.answer_checked();
  client.state.waiting = Waiting::kNothing;
  client.state.reader.next();
  const auto send = [&](std::span<const std::byte> head) {
    if (!client.state.has_proved()) {
      streams_.send(client, head, body);
      return;
    }
    send_sealed(client, head);
    send_sealed(client, body);
  };
  std::array<std::byte, wire::kCheckedPsHeaderSize> bytes;
  if (checked) {
    wire::encode_checked_ps_header(header, wire::crc32c(body), bytes);
    send(bytes);
  } else {
    const auto bare = std::span(bytes).first<wire::kPsHeaderSize>();
    wire::encode_ps_header(header, bare);
    send(bare);
  }
}

}  // namespace thalweg::ps
