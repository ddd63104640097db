// Carries one client's gradients and values after its stream is connected: over the stream itself,
// over DLCP, or with gradients over ATP and values over the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "net/ps/stream.h"
#include "net/ps/words.h"

namespace thalweg::net {

class PsTransport {
 public:
  virtual ~PsTransport() = default;
  [[nodiscard]] virtual Status push(const std::string& name, std::span<const float> gradient) = 0;
  // Returns the number of optimizer steps that the value includes.
  [[nodiscard]] virtual Result<std::uint64_t> pull(const std::string& name,
                                                   std::span<float> values) = 0;
};

// For all three: `stream` outlives the transport.
[[nodiscard]] std::unique_ptr<PsTransport> make_ps_over_tcp(PsStream& stream);
[[nodiscard]] Result<std::unique_ptr<PsTransport>> make_ps_over_dlcp(PsStream& stream,
                                                                     const PsWelcome& welcome);
[[nodiscard]] std::unique_ptr<PsTransport> make_ps_over_atp(PsStream& stream, std::uint32_t worker);

}  // namespace thalweg::net
