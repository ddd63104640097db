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
#include <vector>

#include "net/collective/connection.h"
#include "net/collective/operation.h"

namespace thalweg {

inline std::array<int, 2> stream_pair() {
  std::array<int, 2> fds{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()), 0);
  return fds;
}

class ConnectionEnd final : public Connection::Handler {
 public:
  static constexpr std::size_t kElements = (4 << 20) + 12'345;

  explicit ConnectionEnd(bool sends) : tensor(kElements), connection(Rank(sends ? 1 : 0)) {
    op.plan = std::make_shared<const RankPlan>(
        message_plan(static_cast<std::int64_t>(kElements), 1, sends));
    op.executor = std::make_unique<Executor>();
    const std::array<std::byte*, 1> memory{tensor.data()};
    op.executor->start(*op.plan, DType::kInt8, ReduceOp::kSum, memory);
    for (std::size_t i = 0; sends && i < tensor.size(); ++i) {
      tensor[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
  }

  Connection::Op* on_data(Connection& /*connection*/, const Frame& /*frame*/) override {
    return stalls ? nullptr : &op;
  }
  void on_frame(Connection& /*connection*/, const Frame& frame, const std::string& text) override {
    last = frame;
    words.push_back(text);
  }
  void on_progress(Connection::Op& /*op*/) override {}
  bool next_data(Connection& from, Frame& frame, Connection::Outgoing& out) override {
    const auto bytes = op.executor->ready(0).subspan(from.lent(&op, 0));
    if (dropped || bytes.empty()) return false;
    out = {&op, 0, bytes.first(std::min(bytes.size(), from.has_lanes() ? kLaneFrame : most))};
    frame = {.operation = 1, .length = static_cast<std::uint32_t>(out.bytes.size())};
    return true;
  }

  void read_all() {
    while (connection.read(buffer_, *this)) {
    }
  }

  std::vector<std::byte> tensor;
  Connection::Op op;
  Connection connection;
  bool stalls = false;
  bool dropped = false;
  std::size_t most = kElements;  // of a frame, as long as there are no lanes
  Frame last;                    // of those that are not data
  std::vector<std::string> words;

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(1 << 16);
};

}  // namespace thalweg
