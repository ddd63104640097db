#include "net/parameter/tcp_lane.h"

namespace thalweg {

Status TcpLane::push(const std::string& name, std::span<const float> gradient) {
  THALWEG_TRY_STATUS(stream_.send({.kind = PsKind::kPush, .elements = gradient.size()}, name,
                                  std::as_bytes(gradient)));
  THALWEG_TRY([[maybe_unused]] const PsHeader answer, stream_.value({}));
  return ok_status();
}

Result<std::uint64_t> TcpLane::pull(const std::string& name, std::span<float> values) {
  THALWEG_TRY_STATUS(stream_.send({.kind = PsKind::kPull}, name));
  THALWEG_TRY(const PsHeader answer, stream_.value(values));
  return answer.clock;
}

std::unique_ptr<PsLane> make_tcp_lane(PsStream& stream) {
  return std::make_unique<TcpLane>(stream);
}

}  // namespace thalweg
