// Sends gradients and values over DLCP, each as one transfer that a message on the stream
// announces.
#include <chrono>
#include <utility>

#include "net/io/system.h"
#include "net/ps/ps_transport.h"

namespace thalweg::net {
namespace {

class PsOverDlcp final : public PsTransport {
 public:
  PsOverDlcp(PsStream& stream, PsWelcome welcome, Endpoint endpoint, Peer peer)
      : stream_(stream),
        welcome_(std::move(welcome)),
        endpoint_(std::move(endpoint)),
        peer_(std::move(peer)) {}

  Status push(const std::string& name, std::span<const float> gradient) override {
    const std::uint64_t key = ++last_key_;
    THALWEG_TRY_STATUS(stream_.send(
        {.kind = wire::PsKind::kPushTransfer, .elements = gradient.size(), .clock = key}, name));
    THALWEG_TRY(const Transfer transfer,
                peer_.send(TensorView::of(gradient),
                           {.key = key, .loss_bound = welcome_.push_loss, .deadline = left()}));
    const Result<wire::PsHeader> answer = stream_.value({});
    // The transfer reads the gradient until it is over.
    if (!answer.ok()) transfer.cancel();
    const Result<TransferReport> report = transfer.wait();
    if (!answer.ok()) return answer.error();
    if (!report.ok()) return report.error();
    return ok_status();
  }

  Result<std::uint64_t> pull(const std::string& name, std::span<float> values) override {
    const std::uint64_t key = ++last_key_;
    THALWEG_TRY_STATUS(stream_.send(
        {.kind = wire::PsKind::kPullTransfer, .elements = values.size(), .clock = key}, name));
    THALWEG_TRY(const wire::PsHeader answer, stream_.value({}));
    THALWEG_TRY(const Transfer transfer,
                peer_.recv(TensorSpan::of(values),
                           {.key = key, .loss_bound = welcome_.pull_loss, .deadline = left()}));
    THALWEG_TRY([[maybe_unused]] const TransferReport report, transfer.wait());
    return answer.clock;
  }

 private:
  [[nodiscard]] std::chrono::nanoseconds left() const {
    return std::chrono::nanoseconds(
        std::max<std::int64_t>(1, (stream_.limit() - monotonic_now()).ps() / 1000));
  }

  PsStream& stream_;
  PsWelcome welcome_;
  Endpoint endpoint_;
  Peer peer_;
  std::uint64_t last_key_ = 0;
};

}  // namespace

Result<std::unique_ptr<PsTransport>> make_ps_over_dlcp(PsStream& stream, const PsWelcome& welcome) {
  EndpointOptions options;
  options.job_token = welcome.token;
  options.name = welcome.name;
  options.job_key = welcome.key;
  THALWEG_TRY(Endpoint endpoint, Endpoint::create(options));
  SocketAddress remote = stream.remote();
  remote.set_port(welcome.port);
  const auto limit = std::chrono::nanoseconds((stream.limit() - monotonic_now()).ps() / 1000);
  Result<Peer> peer = endpoint.connect(remote.to_string(), limit);
  if (!peer.ok()) return peer.error().within(stream.name());
  return std::unique_ptr<PsTransport>(
      std::make_unique<PsOverDlcp>(stream, welcome, std::move(endpoint), std::move(*peer)));
}

}  // namespace thalweg::net
