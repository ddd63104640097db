// An engine's listener and streams: strangers, nonsense, bytes that changed on their way, and ranks
// with another setting.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "net/group/drive/engine.h"
#include "net/net_pair.h"
#include "net/ranks.h"
#include "wire/frame.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

// An engine without other ranks, to which strangers make streams.
class EngineOfTwo : public testing::Test {
 protected:
  static constexpr std::uint64_t kSignature = 42;

  EngineOfTwo() { start(wire::FrameCheck::kChecksum); }

  // All streams of the engine are checked so.
  void start(wire::FrameCheck check) {
    options_check_ = check;
    start(check == wire::FrameCheck::kNone ? StreamChecks::kNone : StreamChecks::kAll);
  }
  void start(StreamChecks checks) {
    std::vector<Fd> listeners;
    listeners.push_back(std::move(listen_tcp("127.0.0.1:0").value()));
    address_ = SocketAddress::local_of(listeners.front().get()).to_string();
    EngineOptions options;
    JoinerOptions& joiner = options.streams.joiner;
    joiner.size = 2;
    joiner.signature = kSignature;
    joiner.checks = checks;
    joiner.on_spoiled_frame = [this] { ++spoiled_; };
    engine_ = Engine::make(std::move(options), std::move(listeners)).value();
  }

  [[nodiscard]] Fd stranger(std::span<const std::byte> bytes) const {
    Fd fd = std::move(connect_tcp(*SocketAddress::resolve(address_), address_,
                                  monotonic_now() + Duration::milliseconds(5000))
                          .value());
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return fd;
  }
  static wire::Frame hello(wire::FrameCheck check = wire::FrameCheck::kChecksum) {
    return {.kind = wire::FrameKind::kHello,
            .index = 2,
            .signature = kSignature,
            .rank = 1,
            .check = check};
  }
  // A frame with checksums.
  static std::vector<std::byte> bytes_of(wire::Frame frame, const std::string& text = "") {
    frame.length = static_cast<std::uint32_t>(text.size());
    const auto payload = std::as_bytes(std::span(text));
    const auto header = wire::encode_checked_frame(frame, wire::crc32c(payload));
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
  }
  static void say(const Fd& fd, std::span<const std::byte> bytes) {
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Why the engine is broken, as soon as it is.
  [[nodiscard]] std::optional<Error> broken_soon() const {
    const Time until = monotonic_now() + Duration::seconds(20);
    while (!engine_->broken() && monotonic_now() < until) std::this_thread::sleep_for(1ms);
    return engine_->broken();
  }
  static void receive(const Fd& fd, std::span<std::byte> out) {
    const Time until = monotonic_now() + Duration::seconds(20);
    while (!out.empty()) {
      ASSERT_TRUE(wait_for_socket(fd.get(), POLLIN, until));
      const ssize_t got = recv(fd.get(), out.data(), out.size(), 0);
      ASSERT_GT(got, 0);
      out = out.subspan(static_cast<std::size_t>(got));
    }
  }
  // The frame that the engine sends next, with its text; `check`: as on that stream.
  static std::pair<wire::Frame, std::string> heard(const Fd& fd, wire::FrameCheck check) {
    const bool checked = check == wire::FrameCheck::kChecksum;
    std::array<std::byte, wire::kCheckedFrameSize> header{};
    const std::span<std::byte, wire::kCheckedFrameSize> all(header);
    receive(fd, all.first(checked ? wire::kCheckedFrameSize : wire::kFrameSize));
    wire::Frame frame;
    std::uint32_t payload = 0;
    EXPECT_EQ(checked ? wire::decode_checked_frame(all, frame, payload)
                      : wire::decode_frame(all.first<wire::kFrameSize>(), frame),
              wire::WireError::kNone);
    std::string text(frame.length, '\0');
    receive(fd, std::as_writable_bytes(std::span(text)));
    return {frame, text};
  }
  // Whether the engine closes the stream within five seconds.
  static bool is_closed(const Fd& fd) {
    const Time until = monotonic_now() + Duration::milliseconds(5000);
    std::array<std::byte, 256> bytes;
    while (wait_for_socket(fd.get(), POLLIN, until)) {
      const ssize_t got = recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    }
    return false;
  }

  wire::FrameCheck options_check_ = wire::FrameCheck::kNone;
  std::atomic<int> spoiled_ = 0;
  std::string address_;
  std::shared_ptr<Engine> engine_;
};

TEST_F(EngineOfTwo, listener__closes_strangers_and_lives) {
  std::vector<wire::Frame> wrong(5, hello());
  wrong[0].signature = 43;
  wrong[1].index = 3;
  wrong[2].rank = 0;
  wrong[3].rank = 2;
  wrong[4].kind = wire::FrameKind::kStarted;
  for (const wire::Frame& frame : wrong) EXPECT_TRUE(is_closed(stranger(bytes_of(frame))));
  const std::uint64_t seed = test_seed();
  Prng prng(seed);
  for (int i = 0; i < 20; ++i) {
    std::array<std::byte, 100> nonsense;
    for (std::byte& byte : nonsense) byte = static_cast<std::byte>(prng.below(256));
    EXPECT_TRUE(is_closed(stranger(nonsense)));
  }
  EXPECT_FALSE(engine_->broken());
}

TEST_F(EngineOfTwo, listener__many_that_say_nothing_do_not_keep_a_rank_out) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  std::vector<Fd> silent;
  for (int i = 0; i < 1100; ++i) silent.push_back(stranger({}));
  EXPECT_TRUE(is_closed(silent.front()));
  // If the engine believes what this stream says, it took the stream for the rank's.
  const Fd rank = stranger(bytes_of(hello()));
  say(rank, bytes_of({.kind = wire::FrameKind::kAbort,
                      .index = static_cast<std::uint32_t>(ErrorCode::kNoResource),
                      .rank = 1},
                     "why"));
  const std::optional<Error> broken = broken_soon();
  ASSERT_TRUE(broken);
  EXPECT_EQ(broken->message(), "why");
  EXPECT_EQ(broken->code(), ErrorCode::kNoResource);
  EXPECT_EQ(broken->rank(), 1);
}

TEST_F(EngineOfTwo, stream__nonsense_ends_it_and_names_the_rank) {
  const Fd rank = stranger(bytes_of(hello()));
  say(rank, bytes_of({.kind = static_cast<wire::FrameKind>(wire::kFrameKindCount)}));
  EXPECT_TRUE(is_closed(rank));
  const std::optional<Error> broken = engine_->broken();
  ASSERT_TRUE(broken);
  EXPECT_TRUE(says(broken->message(), "rank 1 is lost"));
  EXPECT_TRUE(says(broken->message(), "not a frame"));
}

TEST_F(EngineOfTwo, stream__random_frames_never_crash_it) {
  const std::uint64_t seed = test_seed();
  Prng prng(seed);
  for (int i = 0; i < 30; ++i) {
    std::vector<std::byte> bytes;
    const auto append = [&](const auto& more) {
      bytes.insert(bytes.end(), more.begin(), more.end());
    };
    // Without checksums too, on streams of an engine that wants none.
    const bool checked = i % 2 == 0;
    start(checked ? wire::FrameCheck::kChecksum : wire::FrameCheck::kNone);
    append(bytes_of(hello(options_check_)));
    for (int f = 0; f < 20; ++f) {
      wire::Frame frame;
      frame.kind = static_cast<wire::FrameKind>(prng.below(wire::kFrameKindCount));
      frame.operation = static_cast<std::uint32_t>(prng.below(3));
      frame.index = static_cast<std::uint32_t>(prng.below(3));
      frame.length = static_cast<std::uint32_t>(prng.below(64));
      frame.started = static_cast<std::uint32_t>(prng.below(~std::uint32_t{0}));
      frame.rank = static_cast<std::uint32_t>(prng.below(4));
      const std::string text(frame.length, 'x');
      if (checked) {
        append(bytes_of(frame, text));
      } else {
        append(wire::encode_frame(frame));
        append(std::as_bytes(std::span(text)));
      }
    }
    const Fd fd = stranger(bytes);
    std::this_thread::sleep_for(2ms);
    engine_->leave();
    engine_.reset();
    EXPECT_TRUE(is_closed(fd));
  }
}

// The engine cannot know where the next frame begins, but still tells the other rank.
TEST_F(EngineOfTwo, stream__a_header_that_changed_is_said_to_both) {
  const Fd rank = stranger(bytes_of(hello()));
  std::vector<std::byte> frame = bytes_of({.kind = wire::FrameKind::kAsk, .operation = 1}, "call");
  frame[12] ^= std::byte{1};  // its length
  say(rank, frame);
  const std::optional<Error> broken = broken_soon();
  ASSERT_TRUE(broken);
  EXPECT_EQ(broken->code(), ErrorCode::kInternal);
  EXPECT_FALSE(broken->rank());
  EXPECT_TRUE(
      says(broken->message(), "bytes changed on the way from rank 1 to rank 0: the header"));
  const auto [abort, text] = heard(rank, wire::FrameCheck::kChecksum);
  EXPECT_EQ(abort.kind, wire::FrameKind::kAbort);
  EXPECT_EQ(abort.rank, wire::kNoFrameRank);
  EXPECT_EQ(text, broken->message());
  EXPECT_EQ(spoiled_, 1);
}

TEST_F(EngineOfTwo, stream__words_that_changed_are_not_believed) {
  const Fd rank = stranger(bytes_of(hello()));
  std::vector<std::byte> abort = bytes_of({.kind = wire::FrameKind::kAbort, .rank = 1}, "why");
  abort.back() ^= std::byte{1};
  say(rank, abort);
  const std::optional<Error> broken = broken_soon();
  ASSERT_TRUE(broken);
  EXPECT_TRUE(says(broken->message(), "bytes changed on the way from rank 1 to rank 0"));
}

TEST_F(EngineOfTwo, hello__that_changed_is_refused_in_words) {
  std::vector<std::byte> bytes = bytes_of(hello());
  bytes[28] ^= std::byte{1};  // its rank
  const Fd rank = stranger(bytes);
  const auto [abort, text] = heard(rank, wire::FrameCheck::kChecksum);
  EXPECT_EQ(abort.kind, wire::FrameKind::kAbort);
  EXPECT_TRUE(says(text, "bytes changed on the way to rank 0"));
  EXPECT_TRUE(is_closed(rank));
  EXPECT_FALSE(engine_->broken());
  EXPECT_EQ(spoiled_, 1);
}

// Each can read what the other sends, so both get words.
TEST_F(EngineOfTwo, hello__of_a_rank_with_another_setting_is_a_mismatch) {
  for (const auto own : {wire::FrameCheck::kChecksum, wire::FrameCheck::kNone}) {
    start(own);
    const auto other =
        own == wire::FrameCheck::kNone ? wire::FrameCheck::kChecksum : wire::FrameCheck::kNone;
    const Fd rank = stranger(bytes_of(hello(other)));
    const std::optional<Error> broken = broken_soon();
    ASSERT_TRUE(broken);
    EXPECT_EQ(broken->code(), ErrorCode::kMismatch);
    EXPECT_TRUE(says(broken->message(), "THALWEG_CHECKSUM"));
    const auto [abort, text] = heard(rank, other);
    EXPECT_EQ(abort.kind, wire::FrameKind::kAbort);
    EXPECT_EQ(text, broken->message());
  }
}

// It made the stream and says whether it has checksums, since a proxy may be between the two.
TEST_F(EngineOfTwo, hello__within_a_host_goes_by_the_rank_that_says_it) {
  for (const auto other : {wire::FrameCheck::kNone, wire::FrameCheck::kChecksum}) {
    start(StreamChecks::kBetweenHosts);
    const Fd rank = stranger(bytes_of(hello(other)));
    // An abort that is read as it was sent breaks the engine with its words.
    std::vector<std::byte> abort =
        bytes_of({.kind = wire::FrameKind::kAbort,
                  .index = static_cast<std::uint32_t>(ErrorCode::kInternal),
                  .rank = wire::kNoFrameRank},
                 "words");
    if (other == wire::FrameCheck::kNone) {
      abort.erase(abort.begin() + wire::kFrameSize, abort.begin() + wire::kCheckedFrameSize);
    }
    say(rank, abort);
    const std::optional<Error> broken = broken_soon();
    ASSERT_TRUE(broken);
    EXPECT_TRUE(says(broken->message(), "words")) << broken->message();
  }
}

}  // namespace
}  // namespace thalweg::net
