#include <thalweg/parameter_client.h>

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "net/io/home_process.h"
#include "net/io/system.h"
#include "net/job/environment.h"
#include "net/ps/ps_transport.h"
#include "net/ps/stream.h"

namespace thalweg {

class ParameterClient::Core {
 public:
  Core(const ParameterClientOptions& options, net::PsStream stream)
      : timeout_(Duration::nanoseconds(options.timeout.count())), stream_(std::move(stream)) {}

  [[nodiscard]] const net::HomeProcess& home() const { return home_; }

  // Sends our worker number and makes the transport that the server names.
  Status greet(const ParameterClientOptions& options) {
    THALWEG_TRY_STATUS(stream_.send({.kind = wire::PsKind::kHello, .worker = options.worker}));
    THALWEG_TRY(const std::string text, stream_.bytes(wire::PsKind::kWelcome, net::kMaxPsWords));
    const Result<net::PsWelcome> welcome = net::ps_welcome_from(text);
    if (!welcome.ok()) return welcome.error().within(stream_.name());
    switch (welcome->transport) {
      case Transport::kTcp:
        transport_ = net::make_ps_over_tcp(stream_);
        break;
      case Transport::kDlcp: {
        THALWEG_TRY(transport_, net::make_ps_over_dlcp(stream_, *welcome));
        break;
      }
      case Transport::kAtp:
        transport_ = net::make_ps_over_atp(stream_, options.worker);
        break;
      case Transport::kAuto:
        return Error(ErrorCode::kInternal, stream_.name() + ": it does not say how tensors travel");
    }
    return ok_status();
  }

  Status init(const std::string& name, std::span<float> values) {
    THALWEG_TRY_STATUS(begin(name, values.size()));
    THALWEG_TRY_STATUS(stream_.send({.kind = wire::PsKind::kInit, .elements = values.size()}, name,
                                    std::as_bytes(values)));
    THALWEG_TRY([[maybe_unused]] const wire::PsHeader answer, stream_.value(values));
    return ok_status();
  }
  Status push(const std::string& name, std::span<const float> gradient) {
    THALWEG_TRY_STATUS(begin(name, gradient.size()));
    return transport_->push(name, gradient);
  }
  Result<std::uint64_t> pull(const std::string& name, std::span<float> values) {
    THALWEG_TRY_STATUS(begin(name, values.size()));
    return transport_->pull(name, values);
  }

 private:
  Status begin(const std::string& name, std::size_t elements) {
    THALWEG_TRY_STATUS(home_.check("the parameter client"));
    if (name.empty() || name.size() > wire::kMaxPsText) {
      return Error(
          fmt::format("name: {} bytes; from 1 to {} are allowed", name.size(), wire::kMaxPsText));
    }
    if (elements > wire::kMaxPsElements) {
      return Error(fmt::format("tensor '{}': {} elements; at most {} are allowed", name, elements,
                               wire::kMaxPsElements));
    }
    stream_.set_limit(net::monotonic_now() + timeout_);
    return ok_status();
  }

  net::HomeProcess home_;
  Duration timeout_;
  net::PsStream stream_;
  std::unique_ptr<net::PsTransport> transport_;
};

ParameterClient::ParameterClient(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ParameterClient::~ParameterClient() { net::abandon_unless_home(core_); }
ParameterClient::ParameterClient(ParameterClient&&) noexcept = default;
ParameterClient& ParameterClient::operator=(ParameterClient&& other) noexcept {
  net::abandon_unless_home(core_);
  core_ = std::move(other.core_);
  return *this;
}

Result<ParameterClient> ParameterClient::connect(const ParameterClientOptions& options) {
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("timeout: {} ns; it must be above 0", options.timeout.count()));
  }
  const Time until = net::monotonic_now() + Duration::nanoseconds(options.timeout.count());
  THALWEG_TRY(const net::StreamChecks checks, net::stream_checks_from(net::process_environment()));
  THALWEG_TRY(const std::optional<wire::JobKey> key, net::job_key_from(net::process_environment()));
  THALWEG_TRY(net::PsStream stream, net::PsStream::connect(options.server, until, checks, key));
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
