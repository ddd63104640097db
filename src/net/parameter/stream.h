// A client's end of the stream to a parameter server: a request and its answer in turn. For one
// thread at a time. After an error of the connection every call fails with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/address.h"
#include "net/fd.h"
#include "wire/ps_message.h"

namespace thalweg {

class PsStream {
 public:
  // `server`: "host:port".
  [[nodiscard]] static Result<PsStream> connect(const std::string& server, Time until);

  // Until when calls may take.
  void set_limit(Time until) { until_ = until; }
  [[nodiscard]] Time limit() const { return until_; }
  [[nodiscard]] SocketAddress local() const { return SocketAddress::local_of(fd_.get()); }
  [[nodiscard]] SocketAddress remote() const { return SocketAddress::remote_of(fd_.get()); }
  // "the server at host:port".
  [[nodiscard]] const std::string& name() const { return name_; }

  // Fills in the length of the text; the body's is the caller's.
  [[nodiscard]] Status send(PsHeader header, const std::string& text = {},
                            std::span<const std::byte> body = {});
  // The header of the answer, whose body the caller must receive. The server's refusal is an error,
  // and not one of the connection.
  [[nodiscard]] Result<PsHeader> answer();
  [[nodiscard]] Status receive(std::span<std::byte> bytes);
  // The same for an answer of this kind, with so many elements; others end the connection.
  [[nodiscard]] Result<PsHeader> value(std::span<float> elements);
  [[nodiscard]] Result<std::string> bytes(PsKind kind, std::size_t most);
  // Ends the connection.
  Error fail(const std::string& why);

 private:
  PsStream(Fd fd, std::string name, Time until)
      : fd_(std::move(fd)), name_(std::move(name)), until_(until) {}
  Status send_all(std::span<const std::byte> bytes);

  Fd fd_;
  std::string name_;
  Time until_;
  std::string failed_;  // why; empty: it has not
};

}  // namespace thalweg
