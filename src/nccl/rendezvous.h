// How a connection comes about, in steps that never wait: NCCL calls again until it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "nccl/greeting.h"
#include "nccl/settings.h"
#include "net/auth/stream_key.h"
#include "net/io/fd.h"
#include "net/io/tcp_listener.h"

namespace thalweg::nccl {

// The streams of a connection that has come about.
struct Streams {
  std::vector<net::Fd> fds;
  std::string peer;  // its address, for messages
};

// The sender's side: connects all streams and checks the answers.
class Dial {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Dial>> start(const Handle& handle,
                                                           const Settings& settings,
                                                           const Device& device, Time now);
  // None: not yet.
  [[nodiscard]] Result<std::optional<Streams>> advance(Time now);
  [[nodiscard]] Time until() const { return until_; }

 private:
  struct Line {
    net::Fd fd;
    bool greeted = false;  // connected, hello sent
    wire::SessionProof expected = {};
    StreamAnswerBytes answer = {};
    std::size_t got = 0;  // bytes of the answer
  };

  Dial(const Handle& handle, Time until) : handle_(handle), until_(until) {}
  Status open(Line& line, const Device* from);
  Status greet(Line& line, std::size_t number);
  // Whether the answer is there and right.
  Result<bool> read_answer(Line& line);

  Handle handle_;
  Time until_;
  std::string peer_;
  std::optional<net::StreamKey> key_;
  std::uint64_t connection_ = 0;
  std::vector<Line> lines_;
};

// The receiver's side: takes streams, and puts those of one connection together. What is no stream
// of ours is closed and told of; it disturbs nobody.
class Listener {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Listener>> start(const Device& device,
                                                               const Settings& settings);
  [[nodiscard]] HandleBytes handle() const { return encode_handle(handle_); }
  // A connection that is complete; none: not yet.
  [[nodiscard]] Result<std::optional<Streams>> advance(Time now);

 private:
  struct Guest {
    net::Fd fd;
    Time until;
    StreamHelloBytes hello = {};
    std::size_t got = 0;
  };
  struct Arrival {
    std::vector<net::Fd> fds;  // by number; some not there yet
    std::size_t missing = 0;
  };
  enum class Verdict : std::uint8_t { kWait, kTaken, kClose };

  Listener(net::Fd fd, const Settings& settings);
  // Reads of a guest's hello what there is; an error ends the attempt.
  Result<Verdict> hear(Guest& guest, Time now);
  Result<Verdict> judge(Guest& guest, const StreamHello& hello);
  void dismiss(const Guest& guest, const std::string& why);

  net::TcpListener listener_;
  Duration timeout_;
  Handle handle_;
  std::optional<net::StreamKey> key_;
  std::optional<Time> until_;  // from the first advance()
  std::list<Guest> guests_;    // who connected and has not said hello
  std::map<std::uint64_t, Arrival> arrivals_;
  int dismissed_ = 0;
};

}  // namespace thalweg::nccl
