// Memory that two processes share, and connections that use it.
#include "net/group/shm/shared_rings.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "net/group/streams/connection.h"

namespace thalweg::net {
namespace {

std::unique_ptr<SharedRings> made(std::size_t ring_bytes = kLeastRingBytes) {
  return std::move(SharedRings::make(ring_bytes).value());
}

void send_through(SharedRings& from, SharedRings& to, std::string text) {
  const std::array<iovec, 1> pieces{{{text.data(), text.size()}}};
  ASSERT_EQ(from.out().write(pieces), text.size());
  const std::span<const std::byte> seen = to.in().peek();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(seen.data()), seen.size()), text);
  to.in().consume(seen.size());
}

TEST(SharedRings, open__both_ways_and_past_the_end) {
  const auto a = made();
  const auto b = std::move(SharedRings::open(a->offer()).value());
  a->close_offer();
  for (int i = 0; i < 10; ++i) {
    send_through(*a, *b, std::string(1000, static_cast<char>('a' + i)));
    send_through(*b, *a, std::string(3000, static_cast<char>('A' + i)));
  }
}

TEST(SharedRings, open__only_what_was_offered) {
  const auto rings = made();
  const SharedRings::Offer good = rings->offer();
  const auto refusal = [](const SharedRings::Offer& offer) {
    const auto opened = SharedRings::open(offer);
    return opened.ok() ? "opened" : opened.error().message();
  };
  EXPECT_NE(refusal({good.pid, good.fd, good.label + 1}).find("is not what was offered"),
            std::string::npos);
  EXPECT_NE(refusal({good.pid, 0, good.label}).find("is not what was offered"), std::string::npos);
  EXPECT_NE(refusal({good.pid, 1'000'000, good.label}).find("No such file"), std::string::npos);
  EXPECT_NE(refusal({0, good.fd, good.label}).find("No such file"), std::string::npos);
  rings->close_offer();
  EXPECT_NE(refusal(good), "opened");
}

TEST(SharedRings, open__a_file_that_could_shrink_or_has_another_size) {
  const auto refusal = [](std::size_t size, int seals) {
    const Fd file(
        memfd_create(fmt::format("thalweg-{:016x}", 5).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(size)), 0);
    EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
    const auto opened = SharedRings::open(
        {static_cast<std::uint32_t>(getpid()), static_cast<std::uint32_t>(file.get()), 5});
    return opened.ok() ? "opened" : opened.error().message();
  };
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_EQ(refusal(4096 + 2 * 4096, kAll), "opened");
  EXPECT_NE(refusal(4096 + 2 * 4096, F_SEAL_GROW | F_SEAL_SEAL).find("not sealed"),
            std::string::npos);
  for (const std::size_t size : {0U, 100U, 4096U, 4096U + 2 * 2048U, 4096U + 2 * 4095U, 8191U}) {
    EXPECT_NE(refusal(size, kAll).find("cannot be two rings"), std::string::npos) << size;
  }
}

// Records what arrives, and takes no data.
class Notes : public Connection::Handler {
 public:
  Streamed* on_data(Connection& connection, const wire::Frame& /*frame*/) override {
    connection.break_off("data");
    return nullptr;
  }
  void on_frame(Connection& /*connection*/, const wire::Frame& frame,
                const std::string& text) override {
    if (frame.kind != wire::FrameKind::kShared) heard.push_back(text);
  }
  void on_progress(Streamed& /*op*/) override {}
  void on_spoiled(Connection& /*connection*/) override { FAIL(); }
  bool next_data(Connection& /*connection*/, wire::Frame& /*frame*/,
                 Connection::Outgoing& /*out*/) override {
    return false;
  }
  std::vector<std::string> heard;
};

class ConnectionPair : public testing::Test {
 protected:
  ConnectionPair() {
    std::array<int, 2> fds{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    a.attach(Fd(fds[0]));
    b.attach(Fd(fds[1]));
  }

  void share() {
    a.share(made());
    b.share(std::move(SharedRings::open(a.shared()->offer()).value()));
  }
  void say(const std::string& text) {
    a.queue({.kind = wire::FrameKind::kAsk}, text);
    a.flush(notes);
  }
  void use(Connection& side) {
    side.use_shared();
    side.flush(notes);
  }
  void read_b() {
    while (b.read(buffer, notes)) {
    }
  }

  Connection a{Rank(0)};
  Connection b{Rank(1)};
  Notes notes;
  std::vector<std::byte> buffer = std::vector<std::byte>(65536);
};

using RingWords = std::vector<std::string>;

TEST_F(ConnectionPair, use_shared__frames_keep_their_order) {
  say("socket");
  share();
  use(a);
  say("ring");
  EXPECT_TRUE(a.writes_shared());
  EXPECT_FALSE(a.reads_shared());
  read_b();
  EXPECT_TRUE(b.reads_shared());
  EXPECT_FALSE(b.writes_shared());
  EXPECT_EQ(notes.heard, (RingWords{"socket", "ring"}));
}

TEST_F(ConnectionPair, read__bells_are_not_taken_for_frames) {
  share();
  use(a);
  read_b();
  for (int i = 0; i < 5; ++i) {
    ASSERT_FALSE(b.prepare_sleep());
    say("wake up");
    EXPECT_GT(recv(b.fd(), buffer.data(), 1, MSG_PEEK), 0) << "a bell";
    b.hear_bells(buffer);
    EXPECT_LT(recv(b.fd(), buffer.data(), 1, MSG_PEEK), 0) << "heard";
    EXPECT_TRUE(b.prepare_sleep()) << "there is a frame";
    b.wake_up();
    read_b();
  }
  EXPECT_EQ(notes.heard.size(), 5U);
  say("no bell is needed");
  EXPECT_LT(recv(b.fd(), buffer.data(), 1, MSG_PEEK), 0);
  EXPECT_EQ(b.over(), "");
}

TEST_F(ConnectionPair, read__a_full_ring_rings_when_there_is_room) {
  share();
  use(a);
  use(b);
  read_b();
  while (a.read(buffer, notes)) {
  }
  while (!a.blocked()) say(std::string(wire::kMaxFrameText, 'x'));
  ASSERT_FALSE(a.prepare_sleep());
  read_b();
  EXPECT_GT(recv(a.fd(), buffer.data(), 1, MSG_PEEK), 0) << "a bell";
  const std::size_t before = notes.heard.size();
  a.hear_bells(buffer);
  a.flush(notes);
  read_b();
  EXPECT_GT(notes.heard.size(), before);
}

TEST_F(ConnectionPair, read__last_words_come_before_the_end) {
  share();
  use(a);
  read_b();
  say("last words");
  a.break_off("gone");
  b.hear_bells(buffer);
  EXPECT_TRUE(b.deaf());
  EXPECT_EQ(b.over(), "");
  EXPECT_TRUE(b.prepare_sleep());
  read_b();
  EXPECT_EQ(notes.heard, RingWords{"last words"});
  EXPECT_EQ(b.over(), "its connection closed");
}

TEST_F(ConnectionPair, read__shared_memory_that_there_is_not) {
  a.share(made());
  use(a);
  read_b();
  EXPECT_EQ(b.over(), "it uses shared memory that does not exist");
}

TEST_F(ConnectionPair, read__noise_in_the_ring_ends_the_connection) {
  share();
  use(a);
  read_b();
  std::string noise(100, '\xff');
  const std::array<iovec, 1> pieces{{{noise.data(), noise.size()}}};
  ASSERT_EQ(a.shared()->out().write(pieces), noise.size());
  read_b();
  EXPECT_NE(b.over().find("not a frame"), std::string::npos) << b.over();
}

}  // namespace
}  // namespace thalweg::net
