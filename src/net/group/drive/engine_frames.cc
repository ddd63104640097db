// What the engine sends next on a connection, and what it does with a frame that arrived. The
// protocol (proto/collective) decides; shared memory is the streams' own business.
#include <algorithm>
#include <optional>
#include <utility>

#include "net/group/drive/engine.h"
#include "net/io/system.h"

namespace thalweg::net {

bool Engine::next_data(Connection& connection, wire::Frame& frame, Connection::Outgoing& out) {
  const auto unsent = [&](const Op& op, std::uint32_t send) {
    return op.executor->ready(send).subspan(connection.lent(&op, send));
  };
  const auto next = core_.next_data(connection.peer(),
                                    [&](const proto::CollectiveCall& call, std::uint32_t send) {
                                      return !unsent(static_cast<const Op&>(call), send).empty();
                                    });
  if (!next) return false;
  Op& op = static_cast<Op&>(*next->call);
  if (op.notes) op.notes->on_send(next->send, monotonic_now());
  const std::span<const std::byte> bytes = unsent(op, next->send);
  const exec::RankPlan::Send& send = op.plan->sends()[next->send];
  const std::size_t most = connection.longest_frame(op.plan->buffers()[send.buffer].bytes);
  out = {&op, next->send, bytes.first(std::min(bytes.size(), most))};
  frame =
      proto::wire_frame(core_.header(op, send.slot, static_cast<std::uint32_t>(out.bytes.size())));
  return true;
}

Engine::Op* Engine::on_data(Connection& connection, const wire::Frame& frame) {
  proto::CollectiveCall* call = nullptr;
  const proto::DataFrame header = proto::data_frame(frame);
  switch (core_.on_data(connection.peer(), header, call)) {
    case proto::DataVerdict::kTake: {
      Op& op = static_cast<Op&>(*call);
      if (op.notes) op.notes->on_arrival(header.slot, monotonic_now());
      return &op;
    }
    case proto::DataVerdict::kStall:
      note_stall(connection.peer());
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

void Engine::on_spoiled(Connection& connection) {
  if (options_.on_spoiled_frame) options_.on_spoiled_frame();
  core_.fail({ErrorCode::kInternal, words_of_spoiled(connection, options_.rank)});
}

void Engine::on_frame(Connection& connection, const wire::Frame& frame, const std::string& text) {
  if (frame.kind == wire::FrameKind::kOffer) {
    take_offer(connection, frame);
    return;
  }
  if (frame.kind == wire::FrameKind::kShared) {
    // The rank that offered the memory uses it second.
    if (connection.peer().value() > options_.rank) return;
    connection.shared()->close_offer();
    connection.use_shared();
    touch(connection);
    return;
  }
  const auto control = proto::control_frame(frame, text, options_.size);
  if (!control) {
    connection.break_off("it sent a frame that does not belong here");
    return;
  }
  const std::string why = core_.on_control(connection.peer(), frame.started, *control);
  if (!why.empty()) connection.break_off(why);
  // Data that waited for the peer to start its operation may leave now.
  if (frame.kind == wire::FrameKind::kStarted) touch(connection);
}

}  // namespace thalweg::net
