// The state of a world as a string, by which a search knows states that it has seen.
#include "base/encode.h"
#include "collective/world.h"

namespace thalweg::proto::collective_test {
namespace {

void encode_frame(std::string& out, const ControlFrame& frame) {
  encode(out, frame.index());
  std::string text;
  const wire::Frame bytes = wire_frame(frame, 0, text);
  encode(out, bytes.operation);
  encode(out, bytes.rank);
  encode(out, bytes.index);
  encode(out, bytes.signature);
  encode(out, text);
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void WorldCall::encode_state(std::string& out) const {
  encode(out, began);
  encode(out, result.has_value());
  if (result) {
    encode(out, result->ok());
    encode(out, result->ok() ? -1 : result->error().rank().value_or(-1));
    encode(out, result->ok() ? std::string_view() : std::string_view(result->error().message()));
    return;
  }
  executor.encode_state(out);
  encode(out, std::string_view(reinterpret_cast<const char*>(tensor_.data()),
                               tensor_.size() * sizeof(std::int64_t)));
}

void World::encode_state(std::string& out) const {
  for (const RankState& state : ranks_) {
    encode(out, (state.dead ? 1 : 0) + (state.frozen ? 2 : 0) + (state.left ? 4 : 0));
    if (state.dead) continue;
    state.core->encode_state(out);
    encode(out, state.calls_until);
    encode(out, state.calls.size());
    for (const auto& call : state.calls) call->encode_state(out);
    encode(out, state.dial_until.has_value());
    if (state.dial_until) encode(out, *state.dial_until);
  }
  for (const Stream& in : streams_) {
    encode(out,
           (in.stalled ? 1 : 0) + (in.drops ? 2 : 0) + (in.closed ? 4 : 0) + (in.writable ? 8 : 0));
    encode(out, in.items.size());
    for (const Item& item : in.items) {
      encode(out, item.what.index());
      if (const auto* data = std::get_if<Data>(&item.what)) {
        encode(out, data->frame.operation);
        encode(out, data->frame.arrival);
        encode(out, data->frame.signature);
        encode(out, data->frame.started);
        encode(out, text_of(data->bytes));
      } else if (const auto* control = std::get_if<Control>(&item.what)) {
        encode(out, control->started);
        encode_frame(out, control->frame);
      }
    }
  }
}

}  // namespace thalweg::proto::collective_test
