// How one client's gradients and values travel, once its stream stands: over the stream itself,
// over DLCP, or gradients over ATP.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <thalweg/endpoint.h>
#include <thalweg/result.h>

#include "net/parameter/stream.h"
#include "net/parameter/words.h"

namespace thalweg {

class PsLane {
 public:
  virtual ~PsLane() = default;
  [[nodiscard]] virtual Status push(const std::string& name, std::span<const float> gradient) = 0;
  // Returns how many steps are in the value.
  [[nodiscard]] virtual Result<std::uint64_t> pull(const std::string& name,
                                                   std::span<float> values) = 0;
};

// The stream outlives the lane.
[[nodiscard]] std::unique_ptr<PsLane> make_tcp_lane(PsStream& stream);
// `lose`: EndpointOptions::lose.
[[nodiscard]] Result<std::unique_ptr<PsLane>> make_dlcp_lane(
    PsStream& stream, const PsWelcome& welcome, std::function<bool(std::uint64_t)> lose);
[[nodiscard]] std::unique_ptr<PsLane> make_atp_lane(PsStream& stream, std::uint32_t worker);

}  // namespace thalweg
