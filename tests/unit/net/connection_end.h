// One end of a connection, whose one operation sends a tensor from rank 0 to rank 1.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/group/operation/stream_operation.h"
#include "net/group/streams/connection.h"

namespace thalweg::net {

// The longest frame that these tests send over lanes.
inline constexpr std::size_t kLaneFrame = std::size_t{128} << 10;

inline std::array<int, 2> stream_pair() {
  std::array<int, 2> fds{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()), 0);
  return fds;
}

// Names the instances of tests that run without checksums, with them, and sealed.
inline std::string name_of_check(const testing::TestParamInfo<wire::FrameCheck>& test) {
  if (test.param == wire::FrameCheck::kSealed) return "sealed";
  return test.param == wire::FrameCheck::kNone ? "plain" : "checked";
}
inline const auto kAllChecks = testing::Values(wire::FrameCheck::kNone, wire::FrameCheck::kChecksum,
                                               wire::FrameCheck::kSealed);

inline wire::StreamSecret secret_from(int rank) {
  wire::StreamSecret secret;
  secret.fill(static_cast<std::byte>(rank + 1));
  return secret;
}

class ConnectionEnd final : public Connection::Handler {
 public:
  static constexpr std::size_t kElements = (4 << 20) + 12'345;

  explicit ConnectionEnd(bool sends) : tensor(kElements), connection(Rank(sends ? 1 : 0)) {
    op.plan.emplace(exec::message_plan(static_cast<std::int64_t>(kElements), 1, sends));
    op.executor = std::make_unique<exec::StreamExecutor>();
    const std::array<std::byte*, 1> memory{tensor.data()};
    op.executor->start(*op.plan, DType::kInt8, ReduceOp::kSum, memory);
    for (std::size_t i = 0; sends && i < tensor.size(); ++i) {
      tensor[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
  }

  Streamed* on_data(Connection& /*connection*/, const wire::Frame& /*frame*/) override {
    return stalls ? nullptr : &op;
  }
  void on_frame(Connection& /*connection*/, const wire::Frame& frame,
                const std::string& text) override {
    last = frame;
    words.push_back(text);
  }
  void on_progress(Streamed& /*op*/) override {}
  void use(wire::FrameCheck check) {
    const int peer = connection.peer().value();
    auto seal = std::make_unique<wire::StreamSeal>(secret_from(1 - peer), secret_from(peer));
    if (check != wire::FrameCheck::kSealed) seal.reset();
    connection.set_check(check, std::move(seal));
    if (check != wire::FrameCheck::kNone) most = connection.longest_frame(SIZE_MAX);
  }
  void on_spoiled(Connection& from) override {
    spoiled.push_back(from.spoiled());
    if (answers_spoiled) from.queue({.kind = wire::FrameKind::kAbort}, from.spoiled());
  }
  bool next_data(Connection& from, wire::Frame& frame, Connection::Outgoing& out) override {
    if (dropped) return false;
    const auto bytes = op.executor->ready(0).subspan(from.lent(&op, 0));
    if (bytes.empty()) return false;
    out = {&op, 0, bytes.first(std::min(bytes.size(), from.has_lanes() ? kLaneFrame : most))};
    frame = {.operation = 1, .length = static_cast<std::uint32_t>(out.bytes.size())};
    return true;
  }

  void read_all() {
    while (connection.read(buffer_, *this)) {
    }
  }

  std::vector<std::byte> tensor;
  MessageOperation op;
  Connection connection;
  bool stalls = false;
  bool dropped = false;
  std::size_t most = kElements;  // most elements of a frame without lanes
  wire::Frame last;              // the last frame that was not data
  std::vector<std::string> words;
  std::vector<std::string> spoiled;  // what on_spoiled() was called for
  bool answers_spoiled = false;      // tells the peer

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(1 << 16);
};

}  // namespace thalweg::net
