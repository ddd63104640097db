// A client's end of the stream to a parameter server: each request is answered in turn. Not
// thread-safe. After an error of the connection every call fails with that error.
//
// On a stream with checksums (wire/ps_message.h) the last receive() of an answer fails if the
// answer changed on its way. What was received of it before must not be used until then.
//
// With a key both ends prove that they hold it before the hello, and all that follows is sealed
// (net/auth/greeting.h); a seal takes the place of the checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/io/address.h"
#include "net/io/fd.h"
#include "net/io/stream_check.h"
#include "wire/authenticate.h"
#include "wire/checksum.h"
#include "wire/ps_message.h"
#include "wire/sealed_bytes.h"

namespace thalweg::net {

class PsStream {
 public:
  // `server`: "host:port".
  [[nodiscard]] static Result<PsStream> connect(const std::string& server, Time until,
                                                StreamChecks checks,
                                                const std::optional<wire::JobKey>& key = {});

  // The time at which calls end with an error.
  void set_limit(Time until) { until_ = until; }
  [[nodiscard]] Time limit() const { return until_; }
  [[nodiscard]] SocketAddress local() const { return SocketAddress::local_of(fd_.get()); }
  [[nodiscard]] SocketAddress remote() const { return SocketAddress::remote_of(fd_.get()); }
  // "the server at host:port".
  [[nodiscard]] const std::string& name() const { return name_; }

  // Sends header, text and body. Sets header.text to the length of `text`, and in a hello whether
  // the stream has checksums; the caller sets the fields for the body.
  [[nodiscard]] Status send(wire::PsHeader header, const std::string& text = {},
                            std::span<const std::byte> body = {});
  // Returns the header of the answer; the caller must then receive() its body. A refusal by the
  // server is an error, but the connection remains usable.
  [[nodiscard]] Result<wire::PsHeader> answer();
  [[nodiscard]] Status receive(std::span<std::byte> bytes);
  // Receives a value with exactly this many elements. Any other answer ends the connection.
  [[nodiscard]] Result<wire::PsHeader> value(std::span<float> elements);
  // Receives an answer of this kind with at most `most` bytes. Any other answer ends the
  // connection.
  [[nodiscard]] Result<std::string> bytes(wire::PsKind kind, std::size_t most);
  // Ends the connection: every further call fails with `why`. Returns that error.
  Error fail(ErrorCode code, const std::string& why);

 private:
  PsStream(Fd fd, std::string name, Time until, bool checks)
      : fd_(std::move(fd)), name_(std::move(name)), until_(until), checks_(checks) {}
  Status send_all(std::span<const std::byte> bytes);
  // Sends bytes as they are.
  Status send_raw(std::span<const std::byte> bytes);
  Status receive_all(std::span<std::byte> bytes);
  // Receives at least one byte, and returns how many.
  Result<std::size_t> receive_some(std::span<std::byte> bytes);
  // Receives and opens bytes until opened_ holds one that was not taken.
  Status open_more();
  Result<wire::PsHeader> receive_header();
  Error changed();

  Fd fd_;
  std::string name_;
  Time until_;
  std::unique_ptr<wire::BytesSeal> seal_;  // null without a key
  std::vector<std::byte> sealed_;          // where bytes are received to be opened
  std::size_t unopened_ = 0;               // how many of them wait at its beginning
  std::vector<std::byte> opened_;          // and those that were, of which `taken_` have been taken
  std::size_t taken_ = 0;
  bool checks_;           // of messages after the hello and its answer, which always have checksums
  bool greeted_ = false;  // the hello was sent
  bool answered_ = false;  // its answer has come
  // The answer that is received: its bytes that are still to come, the checksum that its header has
  // of them, and theirs so far. None: it has no checksums.
  struct Payload {
    std::size_t left = 0;
    std::uint32_t expected = 0;
    wire::Crc32c sum = {};
  };
  std::optional<Payload> payload_;
  std::optional<Error> failed_;  // why the connection failed; none while it works
};

}  // namespace thalweg::net
