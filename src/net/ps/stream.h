// A client's end of the stream to a parameter server: each request is answered in turn. Not
// thread-safe. After an error of the connection every call fails with that error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/io/address.h"
#include "net/io/fd.h"
#include "wire/ps_message.h"

namespace thalweg::net {

class PsStream {
 public:
  // `server`: "host:port".
  [[nodiscard]] static Result<PsStream> connect(const std::string& server, Time until);

  // The time at which calls end with an error.
  void set_limit(Time until) { until_ = until; }
  [[nodiscard]] Time limit() const { return until_; }
  [[nodiscard]] SocketAddress local() const { return SocketAddress::local_of(fd_.get()); }
  [[nodiscard]] SocketAddress remote() const { return SocketAddress::remote_of(fd_.get()); }
  // "the server at host:port".
  [[nodiscard]] const std::string& name() const { return name_; }

  // Sends header, text and body. Sets header.text to the length of `text`; the caller sets the
  // fields for the body.
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
  PsStream(Fd fd, std::string name, Time until)
      : fd_(std::move(fd)), name_(std::move(name)), until_(until) {}
  Status send_all(std::span<const std::byte> bytes);

  Fd fd_;
  std::string name_;
  Time until_;
  std::optional<Error> failed_;  // why the connection failed; none while it works
};

}  // namespace thalweg::net
