// Gradients over ATP, so that switches sum those of all workers on their way; values over the
// stream. The workers and the server are a group, which is over when one of them leaves; a worker
// then joins the next before it pushes.
#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "net/atp/node.h"
#include "net/parameter/tcp_lane.h"
#include "net/system.h"
#include "tensor/fixed_point.h"

namespace thalweg {
namespace {

class AtpLane final : public TcpLane {
 public:
  AtpLane(PsStream& stream, std::uint32_t worker) : TcpLane(stream), worker_(worker) {}

  Status push(const std::string& name, std::span<const float> gradient) override {
    while (true) {
      if (!node_) THALWEG_TRY_STATUS(join());
      THALWEG_TRY(std::optional<std::vector<BlockExponent>> exponents, agree(name, gradient));
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
        stream().send({.kind = PsKind::kJoin}, node->address().unmapped().to_string()));
    THALWEG_TRY(const std::string text, stream().bytes(PsKind::kGroup, kMaxPsWords));
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

  // The exponents of all workers together. None: the group is over.
  Result<std::optional<std::vector<BlockExponent>>> agree(const std::string& name,
                                                          std::span<const float> gradient) {
    std::vector<BlockExponent> exponents((gradient.size() + block_ - 1) / block_);
    if (exponents.empty()) return Error(fmt::format("'{}': a gradient of 0 elements", name));
    block_exponents(DType::kFloat32, gradient.data(), gradient.size(), block_, exponents);
    const PsHeader request{.kind = PsKind::kPushSum,
                           .bytes = static_cast<std::uint32_t>(exponents.size()),
                           .elements = gradient.size(),
                           .clock = group_};
    THALWEG_TRY_STATUS(stream().send(request, name, std::as_bytes(std::span(exponents))));
    THALWEG_TRY(const PsHeader go, stream().answer());
    if (go.kind == PsKind::kJoinAgain) return std::optional<std::vector<BlockExponent>>();
    if (go.kind != PsKind::kGo || go.bytes != exponents.size()) {
      return stream().fail("answered something else than that all are there");
    }
    THALWEG_TRY_STATUS(stream().receive(std::as_writable_bytes(std::span(exponents))));
    return std::optional(std::move(exponents));
  }

  Status send(std::span<const float> gradient, std::vector<BlockExponent> exponents) {
    // The sums come back in place of the gradient, perhaps after the server has said that it has
    // them: they need memory of their own.
    auto memory = std::make_shared<std::vector<float>>(gradient.begin(), gradient.end());
    node_->reduce({.type = DType::kFloat32,
                   .data = reinterpret_cast<std::byte*>(memory->data()),
                   .elements = static_cast<std::int64_t>(memory->size()),
                   .exponents = std::move(exponents),
                   .deadline = stream().limit() - monotonic_now(),
                   .done = [memory](const Status& /*status*/) {}});
    const Result<PsHeader> done = stream().value({});
    if (done.ok()) return ok_status();
    // What the node has in flight nobody waits for any more.
    node_.reset();
    return done.error();
  }

  std::uint32_t worker_;
  std::unique_ptr<AtpNode> node_;
  std::uint64_t group_ = 0;
  std::uint32_t block_ = 0;
};

}  // namespace

std::unique_ptr<PsLane> make_atp_lane(PsStream& stream, std::uint32_t worker) {
  return std::make_unique<AtpLane>(stream, worker);
}

}  // namespace thalweg
