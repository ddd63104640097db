#include "ps/atp_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "net/atp/admission.h"
#include "net/parameter/words.h"
#include "net/system.h"

namespace thalweg {
namespace {

// All workers wait while a job is made, so the server may.
constexpr Duration kAdmissionTime = Duration::milliseconds(5'000);

AtpGroup::Replies refusal(std::uint32_t worker, std::string why) {
  return {{worker, PsKind::kError, std::move(why)}};
}

}  // namespace

AtpGroup::Replies AtpGroup::to_all(PsKind kind, const std::string& text) const {
  Replies replies;
  for (std::uint32_t w = 0; w < workers(); ++w) replies.push_back({w, kind, text});
  return replies;
}

AtpGroup::Replies AtpGroup::join(std::uint32_t worker, const std::string& address,
                                 const SocketAddress& local) {
  const auto parsed = SocketAddress::numeric(address);
  if (!parsed.ok()) return refusal(worker, parsed.error().message());
  if (parsed->port() == 0 || parsed->wildcard()) {
    return refusal(worker, fmt::format("'{}' is no address to send to", address));
  }
  if (!table_.left().empty()) {
    return refusal(worker, fmt::format("worker {} has left", *table_.left().begin()));
  }
  // It has no part in the group any more.
  Replies replies = node_ ? leave(worker) : Replies();
  joined_[worker] = address;
  if (joined_.size() < workers()) return replies;
  const Result<std::string> formed = form(local);
  joined_.clear();
  return formed.ok() ? to_all(PsKind::kGroup, *formed)
                     : to_all(PsKind::kError, formed.error().message());
}

Result<std::string> AtpGroup::form(const SocketAddress& local) {
  SocketAddress bound = local.unmapped();
  bound.set_port(0);
  THALWEG_TRY(std::unique_ptr<AtpNode> node, AtpNode::bind(bound));
  AtpGroupGrant group;
  group.number = ++number_;
  group.server = node->address().unmapped().to_string();
  JobRequest request;
  // A switch may have several servers.
  request.name = "ps " + group.server;
  request.servers = {group.server};
  request.window = AtpNodeOptions().window;
  for (const auto& [worker, address] : joined_) group.workers.push_back(address);
  request.workers = group.workers;
  THALWEG_TRY(AtpAdmission admission,
              admit_atp_job(config_.switch_address, config_.switch_token, request, config_.elements,
                            monotonic_now() + kAdmissionTime));
  group.job = admission.grant;
  AtpNodeOptions options;
  THALWEG_TRY_STATUS(fill_from(group, options));
  block_ = options.elements;
  sums_ = std::make_shared<AtpSums>(
      block_, config_.parameters.workers,
      [this, number = number_](std::vector<float> sum, bool saturated) {
        auto moved = std::make_shared<std::vector<float>>(std::move(sum));
        post_([this, number, moved, saturated] { end(number, std::move(*moved), saturated); });
      });
  options.on_sum = [sums = sums_](const AtpHeader& header, const std::int32_t* sum) {
    sums->on_sum(header, sum);
  };
  THALWEG_TRY_STATUS(node->join(options));
  lease_ = std::move(admission.lease);
  node_ = std::move(node);
  return to_text(group);
}

AtpGroup::Replies AtpGroup::push(std::uint32_t worker, const PsHeader& request,
                                 const std::string& name, std::span<const std::byte> exponents) {
  if (!node_ || request.clock != number_) return {{worker, PsKind::kJoinAgain}};
  if (const Status may = table_.may_push(worker, name, request.elements); !may.ok()) {
    return refusal(worker, may.error().message());
  }
  const std::uint64_t blocks = (request.elements + block_ - 1) / block_;
  if (exponents.size() != blocks) {
    return refusal(worker, fmt::format("'{}': {} exponents; {} blocks have one each", name,
                                       exponents.size(), blocks));
  }
  if (push_ && push_->name != name) {
    return refusal(worker, fmt::format("worker {} pushes '{}' and others '{}': over atp all push "
                                       "the same tensors in the same order",
                                       worker, name, push_->name));
  }
  if (!push_) push_ = Push{.name = name, .elements = request.elements};
  const auto* data = reinterpret_cast<const BlockExponent*>(exponents.data());
  push_->exponents[worker].assign(data, data + exponents.size());
  return push_->exponents.size() == workers() ? go() : Replies();
}

AtpGroup::Replies AtpGroup::go() {
  std::vector<BlockExponent> largest = push_->exponents.begin()->second;
  for (const auto& [worker, own] : push_->exponents) {
    std::ranges::transform(largest, own, largest.begin(),
                           [](BlockExponent a, BlockExponent b) { return std::max(a, b); });
  }
  push_->running = true;
  table_.begin_push(push_->name);
  const std::string text(reinterpret_cast<const char*>(largest.data()), largest.size());
  sums_->begin(push_->elements, std::move(largest));
  return to_all(PsKind::kGo, text);
}

void AtpGroup::end(std::uint64_t group, std::vector<float> sum, bool saturated) {
  if (!node_ || group != number_) return;
  const std::string name = std::move(push_->name);
  push_.reset();
  if (saturated) {
    table_.cancel_push(name);
    deliver_(to_all(PsKind::kError, fmt::format("'{}': a sum is beyond what 32 bits hold", name)));
    return;
  }
  table_.end_push(name, sum);
  deliver_(to_all(PsKind::kValue, {}));
}

AtpGroup::Replies AtpGroup::leave(std::uint32_t worker) {
  Replies replies;
  const auto tell = [&](std::uint32_t other) {
    if (other != worker) {
      replies.push_back({other, PsKind::kError, fmt::format("worker {} has left", worker)});
    }
  };
  for (const auto& [other, address] : joined_) tell(other);
  joined_.clear();
  if (push_) {
    for (const auto& [other, exponents] : push_->exponents) tell(other);
    if (push_->running) table_.cancel_push(push_->name);
  }
  dissolve();
  return replies;
}

void AtpGroup::dissolve() {
  bytes_ = bytes();
  push_.reset();
  node_.reset();
  lease_.reset();
}

std::uint64_t AtpGroup::bytes() { return bytes_ + (node_ ? node_->counters().server_bytes : 0); }

}  // namespace thalweg
