#include "net/group/streams/exchange.h"

#include <algorithm>
#include <utility>

#include "net/io/system.h"

namespace thalweg::net {
namespace {

// Finding out for which stream an operation waits takes longer than a look at all, in plans of more
// arrivals.
constexpr std::size_t kFewArrivals = 64;

}  // namespace

Exchange::Exchange(const StreamsOptions& options, bool notes_steps, std::vector<Fd> listeners,
                   Fd epoll, std::mutex& mutex, Owner& owner)
    : options_(options),
      owner_(owner),
      core_(Rank(options.joiner.rank), options.joiner.size),
      streams_(options, std::move(listeners), std::move(epoll), mutex, core_, *this),
      notes_(notes_steps) {}

void Exchange::begin(StreamOperation& op) {
  if (spare_.empty()) spare_.push_back(std::make_unique<exec::StreamExecutor>());
  op.executor = std::move(spare_.back());
  spare_.pop_back();
  op.executor->start(*op.plan, op.type, op.op, op.memory);
  on_progress(op);
  for (const Rank peer : op.plan->peers()) {
    if (!streams_.to(peer).stalled()) continue;
    notes_.on_resumed(op, peer);
    streams_.resume(peer);
  }
  settle();
}

void Exchange::end(PlannedOperation& op) {
  notes_.on_end(op, streams_, !op.is_dlcp);
  if (op.is_dlcp) return;
  auto& executor = static_cast<StreamOperation&>(op).executor;
  if (executor) spare_.push_back(std::move(executor));
}

void Exchange::settle() {
  proto::CollectiveCall* over = nullptr;
  Status status = ok_status();
  do {
    notice_break();
    send_control();
    streams_.flush();
    // If the communicator broke just now, the protocol ends all operations itself.
    for (std::size_t i = 0; !core_.broken() && i < core_.running().size();) {
      proto::CollectiveCall& call = *core_.running()[i];
      if (call.done()) {
        core_.finish(call);
      } else {
        ++i;
      }
    }
    notice_break();
    while (core_.poll_over(over, status)) owner_.on_over(*over, std::move(status));
  } while (core_.has_control() || streams_.has_dirty());
}

bool Exchange::poll() {
  bool moved = false;
  bool ended = false;
  const bool few = !misses_streams() && streams_.few();
  for (std::size_t i = 0; i < streams_.open().size(); ++i) {
    StreamPeer& peer = *streams_.open()[i];
    const Connection& connection = peer.connection;
    if (!few && !connection.reads_shared() && !connection.has_early()) continue;
    if (streams_.read(peer)) {
      moved = true;
      settle();  // what follows from it leaves before others are read
    }
    if (connection.blocked()) streams_.touch(peer);
    ended = ended || !connection.connected();
  }
  if (ended) streams_.forget_closed();
  if (!few) moved = streams_.handle_events(0) || moved;
  settle();
  return moved;
}

bool Exchange::poll_for(const PlannedOperation& op) {
  if (core_.running().size() != 1 || op.is_dlcp || !op.plan ||
      op.plan->arrivals().size() > kFewArrivals) {
    return poll();
  }
  const std::optional<Rank> rank = op.waits_for();
  if (!rank) return poll();
  const Connection& connection = streams_.to(*rank);
  if (connection.reads_shared() || connection.blocked() || !connection.connected()) return poll();
  if (!streams_.read(*rank)) return false;
  settle();
  return true;
}

// Higher ranks connect to this one.
bool Exchange::misses_streams() {
  const auto missing = [&](const Rank peer) { return !streams_.to(peer).connected(); };
  for (proto::CollectiveCall* call : core_.running()) {
    auto& op = static_cast<PlannedOperation&>(*call);
    if (op.has_streams) continue;
    if (std::ranges::any_of(op.peers(), missing)) return true;
    op.has_streams = true;
  }
  return false;
}

void Exchange::leave() {
  if (!core_.broken()) {
    core_.leave();
    noticed_ = true;
    streams_.drop_data();
  }
  settle();
}

void Exchange::notice_break() {
  if (!core_.broken() || std::exchange(noticed_, true)) return;
  if (core_.broken()->code() == ErrorCode::kCancelled) {
    options_.log.trace("leaves: {}", core_.broken()->message());
  } else {
    options_.log.warn("the communicator is broken: {}", core_.broken()->message());
  }
  owner_.on_broken(*core_.broken());
  streams_.drop_data();
}

void Exchange::send_control() {
  Rank peer{0};
  proto::ControlFrame frame;
  std::string text;
  while (core_.poll_control(peer, frame)) {
    Connection& connection = streams_.to(peer);
    if (!connection.connected()) continue;
    const wire::Frame header = proto::wire_frame(frame, core_.started(), text);
    connection.queue(header, text);
    streams_.touch(peer);
  }
}

bool Exchange::next_data(Connection& connection, wire::Frame& frame, Connection::Outgoing& out) {
  const auto unsent = [&](const proto::CollectiveCall& call, std::uint32_t send) {
    const auto& op = static_cast<const StreamOperation&>(call);
    return op.executor->ready(send).subspan(connection.lent(&op, send));
  };
  const auto next = core_.next_data(
      connection.peer(), [&](const auto& call, auto send) { return !unsent(call, send).empty(); });
  if (!next) return false;
  auto& op = static_cast<StreamOperation&>(*next->call);
  if (op.notes) op.notes->on_send(next->send, monotonic_now());
  const std::span<const std::byte> bytes = unsent(op, next->send);
  const exec::RankPlan::Send& send = op.plan->sends()[next->send];
  const std::size_t most = connection.longest_frame(op.plan->buffers()[send.buffer].bytes);
  out = {&op, next->send, bytes.first(std::min(bytes.size(), most))};
  frame = proto::wire_frame(
      core_.header(op, send.arrival, static_cast<std::uint32_t>(out.bytes.size())));
  return true;
}

Streamed* Exchange::on_data(Connection& connection, const wire::Frame& frame) {
  proto::CollectiveCall* call = nullptr;
  const proto::DataFrame header = proto::data_frame(frame);
  switch (core_.on_data(connection.peer(), header, call)) {
    case proto::DataVerdict::kTake: {
      auto& op = static_cast<StreamOperation&>(*call);
      if (op.notes) op.notes->on_arrival(header.arrival, monotonic_now());
      return &op;
    }
    case proto::DataVerdict::kStall:
      notes_.on_stall(connection.peer());
      core_.on_stall(connection.peer(), frame.operation, monotonic_now());
      break;
    case proto::DataVerdict::kDrop:
      connection.drop_arrivals();
      break;
    case proto::DataVerdict::kNonsense:
      connection.break_off("it sent data that no operation waits for");
      break;
  }
  return nullptr;
}

void Exchange::on_frame(Connection& connection, const wire::Frame& frame, const std::string& text) {
  // Shared memory is the streams' own business.
  if (streams_.on_frame(connection, frame)) return;
  const auto control = proto::control_frame(frame, text, options_.joiner.size);
  if (!control) {
    connection.break_off("it sent a frame that does not belong here");
    return;
  }
  const std::string why = core_.on_control(connection.peer(), frame.started, *control);
  if (!why.empty()) connection.break_off(why);
  // Data that waited for the peer to start its operation may leave now.
  if (frame.kind == wire::FrameKind::kStarted) streams_.touch(connection.peer());
}

void Exchange::on_progress(Streamed& streamed) {
  auto& op = static_cast<StreamOperation&>(streamed);
  if (op.notes) op.notes->look(*op.executor, monotonic_now());
  std::uint32_t send = 0;
  while (op.executor->poll_ready(send)) {
    const Rank target = op.plan->sends()[send].target;
    core_.add_ready(op, send, target);
    streams_.touch(target);
  }
}

void Exchange::on_spoiled(Connection& connection) {
  if (options_.joiner.on_spoiled_frame) options_.joiner.on_spoiled_frame();
  core_.fail({ErrorCode::kInternal, words_of_spoiled(connection, options_.joiner.rank)});
}

}  // namespace thalweg::net
