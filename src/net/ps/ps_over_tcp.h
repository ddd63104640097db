// Sends gradients and values over the stream itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "net/ps/ps_transport.h"

namespace thalweg::net {

class PsOverTcp : public PsTransport {
 public:
  explicit PsOverTcp(PsStream& stream) : stream_(stream) {}
  [[nodiscard]] Status push(const std::string& name, std::span<const float> gradient) override;
  [[nodiscard]] Result<std::uint64_t> pull(const std::string& name,
                                           std::span<float> values) override;

 protected:
  [[nodiscard]] PsStream& stream() { return stream_; }

 private:
  PsStream& stream_;
};

}  // namespace thalweg::net
