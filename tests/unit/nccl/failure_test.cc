// What goes wrong: aborts in every phase, dead peers, foreigners at the port, other versions and
// keys. Nothing hangs, nothing is left, and NCCL's log says what happened.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "nccl/fake_nccl.h"
#include "nccl/greeting.h"
#include "nccl/nothing_left.h"
#include "net/io/fd.h"

namespace thalweg::nccl {
namespace {

// Steps until `over` or a failure, which is returned.
NcclResult step_until(Pair& pair, const std::function<bool()>& over) {
  const Patience patience;
  NcclResult result = NcclResult::kSuccess;
  while (result == NcclResult::kSuccess && !over() && !patience.over()) result = pair.step();
  EXPECT_FALSE(patience.over());
  return result;
}

net::Fd connect_to(const Pair& pair) {
  const auto decoded = decode_handle(std::span<const std::byte, kNcclHandleSize>(pair.handle));
  const net::SocketAddress address = std::get<Handle>(decoded).address;
  net::Fd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), address.get(), address.size()), 0);
  return fd;
}

TEST(nccl_failure, abort_in_every_phase__leaves_nothing) {
  const NothingLeft nothing_left;
  const Initialized initialized;
  std::vector<std::byte> data(4 << 20);
  std::vector<std::byte> into(4 << 20);
  {
    Pair never_used;
  }
  {
    Pair listening;
    ASSERT_EQ(listening.listen(), NcclResult::kSuccess);
  }
  {
    Pair open;
    ASSERT_EQ(open.open(), NcclResult::kSuccess);
    EXPECT_GT(workers(), 0U);
  }
  for (const bool sender_first : {true, false}) {
    Pair pair;
    ASSERT_EQ(pair.open(), NcclResult::kSuccess);
    // Both directions of every stream are busy or wait when they are closed.
    for (int i = 0; i < 8; ++i) post_send(pair.sender, data.data(), data.size());
    post_receive(pair.receiver, into.data(), into.size());
    if (sender_first) {
      newest().close_send(pair.sender);
      pair.sender = nullptr;
    } else {
      newest().close_receive(pair.receiver);
      pair.receiver = nullptr;
    }
  }
}

TEST(nccl_failure, attempts_that_nobody_asks_for_again__end) {
  const NothingLeft nothing_left;
  const Initialized initialized(Variables{{"THALWEG_NCCL_TIMEOUT", "1"}});
  Pair pair;
  ASSERT_EQ(pair.listen(), NcclResult::kSuccess);
  void* offload = nullptr;
  ASSERT_EQ(newest().connect(nullptr, 0, pair.handle, &pair.sender, &offload),
            NcclResult::kSuccess);
  EXPECT_EQ(pair.sender, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(newest().finalize(nullptr), NcclResult::kSuccess);
}

TEST(nccl_failure, nobody_comes__accept_and_connect_end_in_time) {
  const Initialized initialized(Variables{{"THALWEG_NCCL_TIMEOUT", "1"}});
  Pair pair;
  ASSERT_EQ(pair.listen(), NcclResult::kSuccess);
  void* offload = nullptr;
  take_log();
  NcclResult result = NcclResult::kSuccess;
  for (const Patience patience; result == NcclResult::kSuccess && !patience.over();) {
    result = newest().accept(pair.listener, &pair.receiver, &offload);
  }
  EXPECT_EQ(result, NcclResult::kRemoteError);
  EXPECT_NE(take_log().find("nobody connected to 127.0.0.1:"), std::string::npos);
  // The listener is there, but nobody calls accept().
  Pair silent;
  ASSERT_EQ(silent.listen(), NcclResult::kSuccess);
  result = NcclResult::kSuccess;
  for (const Patience patience; result == NcclResult::kSuccess && !patience.over();) {
    result = newest().connect(nullptr, 0, silent.handle, &silent.sender, &offload);
  }
  EXPECT_EQ(result, NcclResult::kRemoteError);
  EXPECT_NE(take_log().find("did not answer in time"), std::string::npos);
}

TEST(nccl_failure, listener_is_gone__connect_fails_at_once) {
  const NothingLeft nothing_left;
  const Initialized initialized;
  Pair pair;
  ASSERT_EQ(pair.listen(), NcclResult::kSuccess);
  newest().close_listen(std::exchange(pair.listener, nullptr));
  void* offload = nullptr;
  NcclResult result = NcclResult::kSuccess;
  for (const Patience patience; result == NcclResult::kSuccess && !patience.over();) {
    result = newest().connect(nullptr, 0, pair.handle, &pair.sender, &offload);
  }
  EXPECT_EQ(result, NcclResult::kRemoteError);
  EXPECT_NE(take_log().find("Connection refused"), std::string::npos);
}

TEST(nccl_failure, peer_closes__what_waits_ends_with_an_error) {
  const NothingLeft nothing_left;
  const Initialized initialized;
  std::vector<std::byte> data(64 << 20);
  std::vector<std::byte> into(1000);
  {
    Pair pair;
    ASSERT_EQ(pair.open(), NcclResult::kSuccess);
    void* const receive = post_receive(pair.receiver, into.data(), into.size());
    newest().close_send(std::exchange(pair.sender, nullptr));
    EXPECT_EQ(finish({receive}), NcclResult::kRemoteError);
    EXPECT_NE(take_log().find("has closed the connection"), std::string::npos);
  }
  {
    Pair pair;
    ASSERT_EQ(pair.open(), NcclResult::kSuccess);
    void* const send = post_send(pair.sender, data.data(), data.size());
    newest().close_receive(std::exchange(pair.receiver, nullptr));
    EXPECT_EQ(finish({send}), NcclResult::kRemoteError);
    // Nothing more can be sent, and no request is given.
    void* request = &data;
    EXPECT_EQ(newest().isend(pair.sender, data.data(), 1, 0, nullptr, nullptr, &request),
              NcclResult::kRemoteError);
    EXPECT_EQ(request, nullptr);
  }
}

TEST(nccl_failure, messages_before_the_end__still_arrive) {
  const Initialized initialized;
  Pair pair;
  ASSERT_EQ(pair.open(), NcclResult::kSuccess);
  for (std::size_t size : {100UL, 200'000UL}) {
    std::vector<std::byte> sent = pattern(size, size);
    ASSERT_EQ(finish({post_send(pair.sender, sent.data(), size)}), NcclResult::kSuccess);
  }
  newest().close_send(std::exchange(pair.sender, nullptr));
  for (std::size_t size : {100UL, 200'000UL}) {
    std::vector<std::byte> got(size);
    EXPECT_EQ(finish({post_receive(pair.receiver, got.data(), size)}), NcclResult::kSuccess)
        << take_log();
    EXPECT_EQ(got, pattern(size, size));
  }
  std::byte none{};
  void* request = nullptr;
  void* data = &none;
  std::size_t size = 1;
  const NcclResult posted =
      newest().irecv(pair.receiver, 1, &data, &size, nullptr, nullptr, nullptr, &request);
  EXPECT_EQ(posted == NcclResult::kSuccess ? finish({request}) : posted, NcclResult::kRemoteError);
}

// A rank that is killed: its half of the connection is in a child, made while this process has one
// thread.
TEST(nccl_failure, killed_peer__is_noticed_in_the_middle_of_a_message) {
  const NothingLeft nothing_left;
  const Initialized initialized;
  Pair pair;
  ASSERT_EQ(pair.listen(), NcclResult::kSuccess);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    void* offload = nullptr;
    while (pair.sender == nullptr)
      newest().connect(nullptr, 0, pair.handle, &pair.sender, &offload);
    std::vector<std::byte> much(256 << 20);
    void* const request = post_send(pair.sender, much.data(), much.size());
    while (true) {
      bool done = false;
      test_once(request, done);
    }
  }
  void* offload = nullptr;
  for (const Patience patience; pair.receiver == nullptr && !patience.over();) {
    ASSERT_EQ(newest().accept(pair.listener, &pair.receiver, &offload), NcclResult::kSuccess);
  }
  std::vector<std::byte> into(256 << 20);
  void* const request = post_receive(pair.receiver, into.data(), into.size());
  kill(child, SIGKILL);
  take_log();
  EXPECT_EQ(finish({request}), NcclResult::kRemoteError);
  EXPECT_NE(take_log().find("WARN NET/Thalweg"), std::string::npos);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
}

TEST(nccl_failure, garbage_at_the_port__disturbs_nobody) {
  const NothingLeft nothing_left;
  const Initialized initialized;
  Pair pair;
  ASSERT_EQ(pair.listen(), NcclResult::kSuccess);
  std::vector<net::Fd> foreigners;
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("THALW"), std::string(),
        std::string(1000, '\xff'), std::string("THALWEGS\x01\0\x07", 11) + std::string(80, 'g')}) {
    foreigners.push_back(connect_to(pair));
    EXPECT_EQ(send(foreigners.back().get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  foreigners.push_back(connect_to(pair));
  foreigners.pop_back();
  take_log();
  ASSERT_EQ(step_until(pair, [&] { return pair.complete(); }), NcclResult::kSuccess);
  EXPECT_NE(take_log().find("it is no Thalweg plugin"), std::string::npos);
  std::byte sent{9};
  std::byte got{};
  EXPECT_EQ(finish({post_receive(pair.receiver, &got, 1), post_send(pair.sender, &sent, 1)}),
            NcclResult::kSuccess);
  EXPECT_EQ(got, sent);
}

TEST(nccl_failure, another_version__is_an_error_on_both_sides) {
  const Initialized initialized;
  Pair pair;
  ASSERT_EQ(pair.listen(), NcclResult::kSuccess);
  take_log();
  // A sender of another version at our listener.
  StreamHelloBytes hello = encode_hello({});
  hello[8] = std::byte{99};
  const net::Fd other = connect_to(pair);
  ASSERT_EQ(send(other.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(hello.size()));
  NcclResult result = NcclResult::kSuccess;
  void* offload = nullptr;
  for (const Patience patience; result == NcclResult::kSuccess && !patience.over();) {
    result = newest().accept(pair.listener, &pair.receiver, &offload);
  }
  EXPECT_EQ(result, NcclResult::kInvalidUsage);
  EXPECT_NE(take_log().find("another version of the plugin"), std::string::npos);
  StreamAnswerBytes answer;
  ASSERT_EQ(recv(other.get(), answer.data(), answer.size(), MSG_WAITALL),
            static_cast<ssize_t>(answer.size()));
  const auto said = decode_answer(answer);
  EXPECT_EQ(std::get<StreamAnswer>(said).status, GreetingStatus::kWrongVersion);
  // A handle of another version, and one of NCCL's own sockets, which begins with an address.
  pair.handle[8] = std::byte{99};
  EXPECT_EQ(newest().connect(nullptr, 0, pair.handle, &pair.sender, &offload),
            NcclResult::kInvalidUsage);
  EXPECT_NE(take_log().find("another version of the plugin"), std::string::npos);
  std::ranges::fill(pair.handle, std::byte{0});
  pair.handle[0] = std::byte{AF_INET};
  EXPECT_EQ(newest().connect(nullptr, 0, pair.handle, &pair.sender, &offload),
            NcclResult::kInvalidUsage);
  EXPECT_NE(take_log().find("set NCCL_NET_PLUGIN=thalweg on all ranks"), std::string::npos);
}

TEST(nccl_failure, a_message_that_is_too_long__is_an_error) {
  const Initialized initialized;
  Pair pair;
  ASSERT_EQ(pair.open(), NcclResult::kSuccess);
  std::byte sent[8] = {};
  std::byte got[4] = {};
  void* const receive = post_receive(pair.receiver, got, sizeof(got));
  post_send(pair.sender, sent, sizeof(sent));
  EXPECT_EQ(finish({receive}), NcclResult::kInvalidUsage);
  EXPECT_NE(take_log().find("sent 8 bytes where 4 were asked for"), std::string::npos);
}

class NcclKey : public testing::Test {
 protected:
  static std::string key_file(const std::string& name, const std::string& digits) {
    const std::string path = testing::TempDir() + "/" + name + std::to_string(getpid());
    std::ofstream(path) << digits << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return path;
  }
  const std::string first_ = key_file("nccl-key-1-", "00112233445566778899aabbccddeeff");
  const std::string second_ = key_file("nccl-key-2-", "ffeeddccbbaa99887766554433221100");
  void TearDown() override {
    std::filesystem::remove(first_);
    std::filesystem::remove(second_);
  }
};

TEST_F(NcclKey, same_key__connects) {
  const Initialized initialized(Variables{{"THALWEG_KEY_FILE", first_}});
  ASSERT_EQ(initialized.result(), NcclResult::kSuccess) << take_log();
  Pair pair;
  ASSERT_EQ(pair.open(), NcclResult::kSuccess) << take_log();
  std::vector<std::byte> sent = pattern(100'000, 1);
  std::vector<std::byte> got(sent.size());
  EXPECT_EQ(finish({post_receive(pair.receiver, got.data(), got.size()),
                    post_send(pair.sender, sent.data(), sent.size())}),
            NcclResult::kSuccess);
  EXPECT_EQ(got, sent);
}

TEST_F(NcclKey, other_key_or_none__is_an_error) {
  Pair pair;
  const auto listener = std::make_unique<Initialized>(Variables{{"THALWEG_KEY_FILE", first_}});
  ASSERT_EQ(pair.listen(), NcclResult::kSuccess);
  void* offload = nullptr;
  {
    // The environment is read by init(): this process is now a rank with another key.
    unsetenv("THALWEG_KEY_FILE");
    const Initialized other(Variables{{"THALWEG_KEY_FILE", second_}});
    take_log();
    EXPECT_EQ(step_until(pair, [&] { return pair.sender != nullptr; }), NcclResult::kInvalidUsage);
    const std::string log = take_log();
    EXPECT_NE(log.find("wrong key: the job key that it holds is not ours"), std::string::npos)
        << log;
    EXPECT_EQ(pair.receiver, nullptr);
  }
  Pair keyless;
  std::ranges::copy(pair.handle, keyless.handle);
  const Initialized none;
  EXPECT_EQ(newest().connect(nullptr, 0, keyless.handle, &keyless.sender, &offload),
            NcclResult::kInvalidUsage);
  EXPECT_NE(take_log().find("holds a job key, and this process does not"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::nccl
