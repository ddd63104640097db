// Everything over the stream.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "net/parameter/lane.h"

namespace thalweg {

class TcpLane : public PsLane {
 public:
  explicit TcpLane(PsStream& stream) : stream_(stream) {}
  [[nodiscard]] Status push(const std::string& name, std::span<const float> gradient) override;
  [[nodiscard]] Result<std::uint64_t> pull(const std::string& name,
                                           std::span<float> values) override;

 protected:
  [[nodiscard]] PsStream& stream() { return stream_; }

 private:
  PsStream& stream_;
};

}  // namespace thalweg
