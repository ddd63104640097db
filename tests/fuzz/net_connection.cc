// A stream of frames in pieces of any size, over a socket pair: every byte of a frame's payload
// arrives once and in order, whether it is taken at once, stalls first, or is dropped.
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "net/collective/connection.h"
#include "net/collective/operation.h"

namespace thalweg {
namespace {

constexpr std::int64_t kElements = 6000;

// Takes data of operation 1 into a tensor; stalls a frame of any other once, then breaks off.
class Receiver final : public Connection::Handler {
 public:
  Receiver() : tensor_(kElements) {
    op_.plan = std::make_shared<const RankPlan>(message_plan(kElements, 1, false));
    op_.executor = std::make_unique<Executor>();
    const std::array<std::byte*, 1> memory{tensor_.data()};
    op_.executor->start(*op_.plan, DType::kInt8, ReduceOp::kSum, memory);
  }

  Connection::Op* on_data(Connection& connection, const Frame& frame) override {
    CHECK(frame.kind == FrameKind::kData && frame.length > 0);
    if (frame.operation == 1 && frame.slot == 0 && frame.length <= op_.executor->outstanding(0)) {
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
  void on_frame(Connection& /*connection*/, const Frame& frame, const std::string& text) override {
    CHECK(frame.kind != FrameKind::kData && text.size() == frame.length);
  }
  void on_progress(Connection::Op& op) override {
    CHECK(&op == &op_);
    received_ = static_cast<std::size_t>(kElements) - op.executor->outstanding(0);
  }
  bool next_data(Connection& /*c*/, Frame& /*f*/, Connection::Outgoing& /*o*/) override {
    return false;
  }

 private:
  std::vector<std::byte> tensor_;
  Connection::Op op_;
  std::size_t received_ = 0;
};

}  // namespace
}  // namespace thalweg

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  // The first byte says in what pieces the rest comes, and how large the buffer is.
  if (size < 1 || size > 20'000) return 0;
  const std::size_t piece = 1 + data[0] % 64U * 37U;
  std::vector<std::byte> buffer(data[0] < 128 ? 64 : 8192);
  std::array<int, 2> ends{};
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  const Fd writer(ends[0]);
  Receiver receiver;
  Connection connection(Rank(1));
  connection.attach(Fd(ends[1]));
  for (std::span<const std::uint8_t> left(data + 1, size - 1); !left.empty();) {
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
