#include <thalweg/parameter_client.h>

#include <fmt/format.h>

#include <utility>

#include "net/parameter/lane.h"
#include "net/parameter/stream.h"
#include "net/system.h"

namespace thalweg {

class ParameterClient::Core {
 public:
  Core(const ParameterClientOptions& options, PsStream stream)
      : timeout_(Duration::nanoseconds(options.timeout.count())), stream_(std::move(stream)) {}

  // Says who we are, and learns how tensors travel.
  Status greet(const ParameterClientOptions& options) {
    THALWEG_TRY_STATUS(stream_.send({.kind = PsKind::kHello, .worker = options.worker}));
    THALWEG_TRY(const std::string text, stream_.bytes(PsKind::kWelcome, kMaxPsWords));
    const Result<PsWelcome> welcome = ps_welcome_from(text);
    if (!welcome.ok()) return welcome.error().within(stream_.name());
    switch (welcome->transport) {
      case Transport::kTcp:
        lane_ = make_tcp_lane(stream_);
        break;
      case Transport::kDlcp: {
        THALWEG_TRY(lane_, make_dlcp_lane(stream_, *welcome, options.lose));
        break;
      }
      case Transport::kAtp:
        lane_ = make_atp_lane(stream_, options.worker);
        break;
      case Transport::kAuto:
        return Error(stream_.name() + ": it does not say how tensors travel");
    }
    return ok_status();
  }

  Status init(const std::string& name, std::span<float> values) {
    THALWEG_TRY_STATUS(begin(name, values.size()));
    THALWEG_TRY_STATUS(stream_.send({.kind = PsKind::kInit, .elements = values.size()}, name,
                                    std::as_bytes(values)));
    THALWEG_TRY([[maybe_unused]] const PsHeader answer, stream_.value(values));
    return ok_status();
  }
  Status push(const std::string& name, std::span<const float> gradient) {
    THALWEG_TRY_STATUS(begin(name, gradient.size()));
    return lane_->push(name, gradient);
  }
  Result<std::uint64_t> pull(const std::string& name, std::span<float> values) {
    THALWEG_TRY_STATUS(begin(name, values.size()));
    return lane_->pull(name, values);
  }

 private:
  Status begin(const std::string& name, std::size_t elements) {
    if (name.empty() || name.size() > kMaxPsText) {
      return Error(
          fmt::format("name: {} bytes; from 1 to {} are allowed", name.size(), kMaxPsText));
    }
    if (elements > kMaxPsElements) {
      return Error(fmt::format("tensor '{}': {} elements; at most {} are allowed", name, elements,
                               kMaxPsElements));
    }
    stream_.set_limit(monotonic_now() + timeout_);
    return ok_status();
  }

  Duration timeout_;
  PsStream stream_;
  std::unique_ptr<PsLane> lane_;
};

ParameterClient::ParameterClient(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ParameterClient::~ParameterClient() = default;
ParameterClient::ParameterClient(ParameterClient&&) noexcept = default;
ParameterClient& ParameterClient::operator=(ParameterClient&&) noexcept = default;

Result<ParameterClient> ParameterClient::connect(const ParameterClientOptions& options) {
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("timeout: {} ns; it must be above 0", options.timeout.count()));
  }
  const Time until = monotonic_now() + Duration::nanoseconds(options.timeout.count());
  THALWEG_TRY(PsStream stream, PsStream::connect(options.server, until));
  auto core = std::make_unique<Core>(options, std::move(stream));
  THALWEG_TRY_STATUS(core->greet(options));
  return ParameterClient(std::move(core));
}

Status ParameterClient::init(const std::string& name, std::span<float> values) {
  return core_->init(name, values);
}

Status ParameterClient::push(const std::string& name, std::span<const float> gradient) {
  return core_->push(name, gradient);
}

Result<std::uint64_t> ParameterClient::pull(const std::string& name, std::span<float> values) {
  return core_->pull(name, values);
}

}  // namespace thalweg
