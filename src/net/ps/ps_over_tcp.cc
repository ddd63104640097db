#include "net/ps/ps_over_tcp.h"

namespace thalweg::net {

Status PsOverTcp::push(const std::string& name, std::span<const float> gradient) {
  THALWEG_TRY_STATUS(stream_.send({.kind = wire::PsKind::kPush, .elements = gradient.size()}, name,
                                  std::as_bytes(gradient)));
  THALWEG_TRY([[maybe_unused]] const wire::PsHeader answer, stream_.value({}));
  return ok_status();
}

Result<std::uint64_t> PsOverTcp::pull(const std::string& name, std::span<float> values) {
  THALWEG_TRY_STATUS(stream_.send({.kind = wire::PsKind::kPull}, name));
  THALWEG_TRY(const wire::PsHeader answer, stream_.value(values));
  return answer.clock;
}

std::unique_ptr<PsTransport> make_ps_over_tcp(PsStream& stream) {
  return std::make_unique<PsOverTcp>(stream);
}

}  // namespace thalweg::net
