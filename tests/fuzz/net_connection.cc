// Sends a stream of frames in pieces of any size over a socket pair. Every byte of a frame's
// payload must arrive once and in order, whether it is taken at once, stalls first, or is dropped.
// With checksums, and sealed, only whole payloads may arrive, and nothing after one that is wrong.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "net/group/operation/stream_operation.h"
#include "net/group/streams/connection.h"

namespace thalweg::net {
namespace {

constexpr std::int64_t kElements = 6000;

// Takes data of operation 1 into a tensor; stalls a frame of any other once, then breaks off.
class Receiver final : public Connection::Handler {
 public:
  Receiver() : tensor_(kElements) {
    op_.plan.emplace(exec::message_plan(kElements, 1, false));
    op_.executor = std::make_unique<exec::StreamExecutor>();
    const std::array<std::byte*, 1> memory{tensor_.data()};
    op_.executor->start(*op_.plan, DType::kInt8, ReduceOp::kSum, memory);
  }

  Streamed* on_data(Connection& connection, const wire::Frame& frame) override {
    CHECK(frame.kind == wire::FrameKind::kData && frame.length > 0 && !spoiled_);
    if (frame.operation == 1 && frame.index == 0 && frame.length <= op_.executor->outstanding(0)) {
      return &op_;
    }
    if (frame.operation == 2 && !connection.stalled()) return nullptr;
    if (frame.operation == 3) {
      connection.drop_arrivals();
    } else {
      connection.break_off("nobody wants it");
    }
    return nullptr;
  }
  void on_frame(Connection& /*connection*/, const wire::Frame& frame,
                const std::string& text) override {
    CHECK(frame.kind != wire::FrameKind::kData && text.size() == frame.length && !spoiled_);
  }
  void on_progress(Streamed& op) override {
    CHECK(&op == &op_ && !spoiled_);
    received_ = static_cast<std::size_t>(kElements) - op.executor->outstanding(0);
  }
  void on_spoiled(Connection& connection) override {
    CHECK(!connection.spoiled().empty() && !spoiled_);
    spoiled_ = true;
  }
  bool next_data(Connection& /*c*/, wire::Frame& /*f*/, Connection::Outgoing& /*o*/) override {
    return false;
  }

 private:
  std::vector<std::byte> tensor_;
  MessageOperation op_;
  std::size_t received_ = 0;
  bool spoiled_ = false;
};

// Makes a stream with checksums from headers without: each is followed by a byte that says which of
// its checksums are wrong, and by its payload.
std::vector<std::byte> with_checksums(std::span<const std::byte> in) {
  std::vector<std::byte> out;
  while (in.size() > wire::kFrameSize) {
    wire::Frame frame;
    const bool is_frame =
        wire::decode_frame(in.first<wire::kFrameSize>(), frame) == wire::WireError::kNone;
    const auto wrong = static_cast<unsigned>(in[wire::kFrameSize]);
    in = in.subspan(wire::kFrameSize + 1);
    if (!is_frame) continue;
    const auto payload = in.first(std::min<std::size_t>(in.size(), frame.length));
    in = in.subspan(payload.size());
    auto header = wire::encode_checked_frame(frame, wire::crc32c(payload) ^ (wrong & 1U));
    header.back() ^= static_cast<std::byte>(wrong & 2U);
    out.insert(out.end(), header.begin(), header.end());
    out.insert(out.end(), payload.begin(), payload.end());
  }
  return out;
}

wire::StreamSecret fuzz_secret() {
  wire::StreamSecret secret;
  secret.fill(std::byte{0x5a});
  return secret;
}

// The same for a sealed stream.
std::vector<std::byte> with_seals(std::span<const std::byte> in) {
  wire::FrameSealer sealer(fuzz_secret());
  std::vector<std::byte> out;
  while (in.size() > wire::kFrameSize) {
    wire::Frame frame;
    const bool is_frame =
        wire::decode_frame(in.first<wire::kFrameSize>(), frame) == wire::WireError::kNone;
    const auto wrong = static_cast<unsigned>(in[wire::kFrameSize]);
    in = in.subspan(wire::kFrameSize + 1);
    if (!is_frame || frame.length > wire::kMaxCheckedData) continue;
    const auto part = in.first(std::min<std::size_t>(in.size(), frame.length));
    in = in.subspan(part.size());
    frame.length = static_cast<std::uint32_t>(part.size());
    if (part.empty() && frame.kind == wire::FrameKind::kData) continue;
    std::vector<std::byte> payload(part.begin(), part.end());
    wire::FrameSealer::Ticket ticket = sealer.next();
    if (!payload.empty()) sealer.seal_payload(ticket, payload, payload);
    auto header = sealer.seal_header(std::move(ticket), frame);
    header.back() ^= static_cast<std::byte>(wrong & 2U);
    if (!payload.empty()) payload.back() ^= static_cast<std::byte>(wrong & 1U);
    out.insert(out.end(), header.begin(), header.end());
    out.insert(out.end(), payload.begin(), payload.end());
  }
  return out;
}

}  // namespace
}  // namespace thalweg::net

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::net;
  // The first byte gives the size of the pieces in which the rest arrives, and of the buffer.
  if (size < 1 || size > 20'000) return 0;
  const std::size_t piece = 1 + data[0] % 64U * 37U;
  std::vector<std::byte> buffer(data[0] < 128 ? 64 : 8192);
  std::array<int, 2> ends{};
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  const Fd writer(ends[0]);
  Receiver receiver;
  Connection connection(Rank(1));
  connection.attach(Fd(ends[1]));
  std::vector<std::byte> stream(size - 1);
  std::ranges::copy(std::as_bytes(std::span(data + 1, size - 1)), stream.begin());
  if (data[0] % 128 >= 96) {
    connection.set_check(wire::FrameCheck::kSealed,
                         std::make_unique<wire::StreamSeal>(fuzz_secret(), fuzz_secret()));
    stream = with_seals(stream);
  } else if (data[0] % 128 >= 64) {
    connection.set_check(wire::FrameCheck::kChecksum);
    stream = with_checksums(stream);
  }
  for (std::span<const std::byte> left(stream); !left.empty();) {
    const auto part = left.first(std::min(piece, left.size()));
    left = left.subspan(part.size());
    if (send(writer.get(), part.data(), part.size(), MSG_NOSIGNAL) < 0) break;
    while (connection.read(buffer, receiver)) {
    }
    connection.resume(receiver);
  }
  while (connection.read(buffer, receiver)) {
  }
  if (size % 2 == 0) connection.drop_data(receiver);
  connection.flush(receiver);
  return 0;
}
