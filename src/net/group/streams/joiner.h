// Joiner: the beginning of streams between ranks. It greets on streams that this rank makes, and
// reads the hello of those that others make. What a hello means is decided by proto::Joining.
//
// With a job key, an opening with a proof comes before the hello (net/auth/stream_key.h).
//
// Its owner's mutex guards it. Its sockets, until they have joined, are in the owner's epoll.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <thalweg/result.h>

#include "net/auth/stream_key.h"
#include "net/group/streams/stream_checks.h"
#include "net/io/fd.h"
#include "net/io/tcp_listener.h"
#include "proto/collective/joining.h"
#include "wire/sealed_frame.h"

namespace thalweg::net {

struct JoinerOptions {
  int rank = 0;
  int size = 1;
  // Identifies job and group. Both ends of a stream must send the same.
  std::uint64_t signature = 0;
  // Which streams have checksums, unless they are sealed. Both ends of a stream must want the same.
  StreamChecks checks = StreamChecks::kBetweenHosts;
  // Authenticates the beginning of streams if ranks hold the job key, and says whether they are
  // sealed. Null: there is no key.
  std::shared_ptr<StreamKey> key = {};
  // Called when a frame changed on its way. The owner's mutex is held, so it must only take note.
  std::function<void()> on_spoiled_frame = {};
};

class Joiner {
 public:
  // A stream that another rank has made and said hello on.
  struct Joined {
    proto::HelloFrame hello;
    CheckedStream stream;
    std::optional<Error> mismatch;  // the ranks check their frames in different ways
  };
  using OnJoined = std::function<void(Joined joined)>;

  // Takes listening, non-blocking sockets.
  Joiner(const JoinerOptions& options, int epoll, std::vector<Fd> listeners);

  // Says hello on a stream that this rank has made. None: the system takes no bytes (errno).
  [[nodiscard]] std::optional<GreetedStream> greet(DialedStream dialed,
                                                   proto::HelloFrame::Purpose purpose,
                                                   std::uint32_t number) const;
  // Whether this rank has several interfaces.
  [[nodiscard]] bool has_several_ways() const { return listeners_.size() > 1; }

  // Handles an event of this descriptor. False: it is not one of the joiner's. Streams that have
  // joined are no longer in the epoll.
  bool on_event(int fd, const OnJoined& on_joined);
  // Some streams have not said whose they are.
  [[nodiscard]] bool has_newcomers() const { return !newcomers_.empty(); }
  // Tells the other end of a stream why it is not taken, as the last frame.
  void refuse(const CheckedStream& stream, const Error& why) const;

 private:
  // When there are more streams that have not said whose they are, the oldest is dropped.
  static constexpr std::size_t kMaxNewcomers = 1024;

  // A stream that was accepted and whose hello is not complete.
  struct Newcomer {
    Fd fd;
    // kOpeningSize bytes only with a key, and a hello with checksums or sealed.
    std::array<std::byte, StreamKey::kOpeningSize + wire::kSealedFrameSize> bytes = {};
    std::size_t size = 0;
    bool over = false;
    std::unique_ptr<wire::StreamSeal> seal = {};  // as the opening says
  };

  void accept(TcpListener& listener, const OnJoined& on_joined);
  void read(Newcomer& newcomer, const OnJoined& on_joined);
  // Reads the opening and the hello, and nothing beyond. True: it has both.
  [[nodiscard]] bool read_first(Newcomer& newcomer) const;
  // Whether the newcomer holds the job key. If so, it is sent the proof that this rank does.
  [[nodiscard]] bool admit(Newcomer& newcomer) const;
  // None: it is not the hello of a rank. If it changed on its way, the other end is told.
  [[nodiscard]] std::optional<proto::HelloFrame> hello_of(const Newcomer& newcomer) const;
  // How this rank checks the frames of a stream.
  [[nodiscard]] wire::FrameCheck own_check(int fd) const;
  void refuse(int fd, wire::FrameCheck check, wire::StreamSeal* seal, const Error& why) const;

  JoinerOptions options_;
  proto::Joining joining_;
  int epoll_;
  std::vector<TcpListener> listeners_;  // one per interface
  std::deque<Newcomer> newcomers_;
};

}  // namespace thalweg::net
