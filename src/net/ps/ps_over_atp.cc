// Sends gradients over ATP, so that switches sum those of all workers on their way, and values over
// the stream. The workers and the server form a group, which ends when one of them leaves; a worker
// then joins the next before it pushes.
#include <fmt/core.h>

#include <optional>
#include <utility>
#include <vector>

#include "net/atp/node.h"
#include "net/io/system.h"
#include "net/ps/ps_over_tcp.h"
#include "tensor/fixed_point.h"

namespace thalweg::net {
namespace {

class PsOverAtp final : public PsOverTcp {
 public:
  PsOverAtp(PsStream& stream, std::uint32_t worker) : PsOverTcp(stream), worker_(worker) {}

  Status push(const std::string& name, std::span<const float> gradient) override {
    while (true) {
      if (!node_) THALWEG_TRY_STATUS(join());
      THALWEG_TRY(std::optional<std::vector<tensor::BlockExponent>> exponents,
                  agree(name, gradient));
      if (exponents) return send(gradient, std::move(*exponents));
      node_.reset();
    }
  }

 private:
  Status join() {
    SocketAddress local = stream().local();
    local.set_port(0);
    THALWEG_TRY(std::unique_ptr<AtpNode> node, AtpNode::bind(local));
    THALWEG_TRY_STATUS(
        stream().send({.kind = wire::PsKind::kJoin}, node->address().unmapped().to_string()));
    THALWEG_TRY(const std::string text, stream().bytes(wire::PsKind::kGroup, kMaxPsWords));
    const Result<AtpGroupGrant> group = atp_group_from(text);
    if (!group.ok()) return group.error().within(stream().name());
    AtpNodeOptions options;
    options.rank = static_cast<int>(worker_);
    THALWEG_TRY_STATUS(fill_from(*group, options));
    THALWEG_TRY_STATUS(node->join(options));
    node_ = std::move(node);
    group_ = group->number;
    block_ = options.elements;
    return ok_status();
  }

  // Sends our exponents and returns those agreed among all workers. None: the group has ended.
  Result<std::optional<std::vector<tensor::BlockExponent>>> agree(const std::string& name,
                                                                  std::span<const float> gradient) {
    std::vector<tensor::BlockExponent> exponents((gradient.size() + block_ - 1) / block_);
    if (exponents.empty()) return Error(fmt::format("'{}': a gradient of 0 elements", name));
    tensor::block_exponents(DType::kFloat32, gradient.data(), gradient.size(), block_, exponents);
    const wire::PsHeader request{.kind = wire::PsKind::kPushSum,
                                 .bytes = static_cast<std::uint32_t>(exponents.size()),
                                 .elements = gradient.size(),
                                 .clock = group_};
    THALWEG_TRY_STATUS(stream().send(request, name, std::as_bytes(std::span(exponents))));
    THALWEG_TRY(const wire::PsHeader go, stream().answer());
    if (go.kind == wire::PsKind::kJoinAgain)
      return std::optional<std::vector<tensor::BlockExponent>>();
    if (go.kind != wire::PsKind::kGo || go.bytes != exponents.size()) {
      return stream().fail(ErrorCode::kInternal, "answered something else than that all are there");
    }
    THALWEG_TRY_STATUS(stream().receive(std::as_writable_bytes(std::span(exponents))));
    return std::optional(std::move(exponents));
  }

  Status send(std::span<const float> gradient, std::vector<tensor::BlockExponent> exponents) {
    // The node replaces the gradient by the sums, perhaps only after the server has answered, so it
    // needs a copy that outlives this call.
    auto memory = std::make_shared<std::vector<float>>(gradient.begin(), gradient.end());
    node_->reduce({.type = DType::kFloat32,
                   .data = reinterpret_cast<std::byte*>(memory->data()),
                   .elements = static_cast<std::int64_t>(memory->size()),
                   .exponents = std::move(exponents),
                   .deadline = stream().limit() - monotonic_now(),
                   .done = [memory](const Status& /*status*/) {}});
    const Result<wire::PsHeader> done = stream().value({});
    if (done.ok()) return ok_status();
    // No one waits for the node's reduction any more.
    node_.reset();
    return done.error();
  }

  std::uint32_t worker_;
  std::unique_ptr<AtpNode> node_;
  std::uint64_t group_ = 0;
  std::uint32_t block_ = 0;
};

}  // namespace

std::unique_ptr<PsTransport> make_ps_over_atp(PsStream& stream, std::uint32_t worker) {
  return std::make_unique<PsOverAtp>(stream, worker);
}

}  // namespace thalweg::net
