#include "sim/hosts/streams.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/prng.h"

namespace thalweg::sim {

std::size_t Streams::EndsHash::operator()(const Ends& ends) const {
  return mix_bits(reinterpret_cast<std::uintptr_t>(ends.transport) ^ (ends.source.index() << 40) ^
                  (ends.target.index() << 16) ^ (ends.tag << 56));
}

std::optional<std::uint32_t> Streams::find(const FlowSpec& spec) const {
  const auto found = index_.find(ends_of(spec));
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

std::uint32_t Streams::make(const FlowSpec& spec, FlowId carrier) {
  const auto stream = static_cast<std::uint32_t>(streams_.size());
  streams_.emplace_back().carrier = carrier;
  index_.emplace(ends_of(spec), stream);
  return stream;
}

void Streams::add(FlowId id, const FlowSpec& spec, std::uint32_t stream, Time now) {
  auto message = std::make_unique<Message>();
  message->id = id;
  message->spec = spec;
  message->start = now;
  message->stream = stream;
  message->pieces = spec.transport->pieces_of(spec.bytes);
  messages_.emplace(id, std::move(message));
}

std::optional<std::uint32_t> Streams::offer(FlowId id, exec::Run pieces) {
  const auto found = messages_.find(id);
  if (found == messages_.end()) return std::nullopt;
  Message& message = *found->second;
  const std::uint64_t piece = message.spec.transport->piece_bytes();
  CHECK(pieces.begin * piece == message.offered && pieces.end <= message.pieces,
        "pieces {} to {} are offered behind {} bytes", pieces.begin, pieces.end, message.offered);
  message.offered = std::min(pieces.end * piece, message.spec.bytes);
  streams_[message.stream].line.insert(place_of(message));
  return message.stream;
}

std::uint64_t Streams::next_frame(std::uint32_t stream) {
  Stream& s = streams_[stream];
  if (s.line.empty()) return 0;
  Message& message = *messages_.at(std::get<FlowId>(*s.line.begin()));
  s.line.erase(s.line.begin());
  const std::uint64_t bytes = message.offered - message.framed;
  message.framed = message.offered;
  s.framed += bytes;
  s.frames.push_back({.message = &message, .end = s.framed});
  return bytes;
}

void Streams::tell(Message& message) {
  const bool complete = message.received == message.spec.bytes;
  const std::uint32_t before = message.told;
  message.told =
      complete
          ? message.pieces
          : static_cast<std::uint32_t>(message.received / message.spec.transport->piece_bytes());
  if (message.told == before) return;
  message.spec.watcher->on_arrived(message.spec.cookie, {before, message.told});
}

std::optional<FlowProgress> Streams::progress_of(FlowId id) const {
  const auto found = messages_.find(id);
  if (found == messages_.end()) return std::nullopt;
  const Message& message = *found->second;
  return FlowProgress{message.spec, message.start, message.received};
}

void Streams::check_idle(std::vector<std::string>& violations) const {
  if (!messages_.empty()) return;
  for (const Stream& stream : streams_) {
    if (stream.line.empty() && stream.frames.empty()) continue;
    violations.push_back(
        fmt::format("stream {} keeps frames of messages that are over: {} of {} bytes arrived",
                    stream.carrier.value(), stream.received, stream.framed));
  }
}

}  // namespace thalweg::sim
