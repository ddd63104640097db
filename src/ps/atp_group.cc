#include "ps/atp_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "net/atp/admission.h"
#include "net/io/system.h"
#include "net/ps/words.h"

namespace thalweg::ps {
namespace {

// The server blocks for at most this long. It may, because all workers wait for the job anyway.
constexpr Duration kAdmissionTime = Duration::milliseconds(5'000);

AtpGroup::Reply refusal(std::uint32_t worker, const Error& why) {
  return {worker, wire::PsKind::kError, why.message(), why.code(), why.rank()};
}

Error gone(std::uint32_t worker) {
  return {ErrorCode::kPeerLost, fmt::format("worker {} has left", worker),
          static_cast<int>(worker)};
}

}  // namespace

AtpGroup::Replies AtpGroup::to_all(wire::PsKind kind, const std::string& text) const {
  Replies replies;
  for (std::uint32_t w = 0; w < workers(); ++w) replies.push_back({w, kind, text});
  return replies;
}

AtpGroup::Replies AtpGroup::refuse_all(const Error& why) const {
  Replies replies;
  for (std::uint32_t w = 0; w < workers(); ++w) replies.push_back(refusal(w, why));
  return replies;
}

AtpGroup::Replies AtpGroup::join(std::uint32_t worker, const std::string& address,
                                 const net::SocketAddress& local) {
  const auto parsed = net::SocketAddress::numeric(address);
  if (!parsed.ok()) return {refusal(worker, parsed.error())};
  if (parsed->port() == 0 || parsed->wildcard()) {
    return {refusal(worker, Error(fmt::format("'{}' is no address to send to", address)))};
  }
  if (!table_.left().empty()) {
    return {refusal(worker, gone(*table_.left().begin()))};
  }
  // A worker that joins again has left the current group.
  Replies replies = node_ ? leave(worker) : Replies();
  joined_[worker] = address;
  if (joined_.size() < workers()) return replies;
  const Result<std::string> formed = form(local);
  joined_.clear();
  return formed.ok() ? to_all(wire::PsKind::kGroup, *formed) : refuse_all(formed.error());
}

Result<std::string> AtpGroup::form(const net::SocketAddress& local) {
  net::SocketAddress bound = local.unmapped();
  bound.set_port(0);
  THALWEG_TRY(std::unique_ptr<net::AtpNode> node, net::AtpNode::bind(bound));
  net::AtpGroupGrant group;
  group.number = ++number_;
  group.server = node->address().unmapped().to_string();
  net::JobRequest request;
  // The name tells this server from others at the same switch.
  request.name = "ps " + group.server;
  request.servers = {group.server};
  request.window = net::AtpNodeOptions().window;
  for (const auto& [worker, address] : joined_) group.workers.push_back(address);
  request.workers = group.workers;
  // The workers learn it on their sealed streams.
  request.keyed = config_.key.has_value();
  if (request.keyed) {
    request.key = fmt::format("{:016x}{:016x}", net::random_number(), net::random_number());
  }
  THALWEG_TRY(net::AtpAdmission admission,
              net::admit_atp_job(config_.switch_address,
                                 {.token = config_.switch_token, .key = config_.switch_key},
                                 request, config_.elements, net::monotonic_now() + kAdmissionTime));
  if (!admission.without_room.empty()) {
    fmt::print(stderr, "thalweg: warning: the job '{}' goes on without a switch: {}\n",
               request.name, admission.without_room);
  }
  group.job = admission.grant;
  group.job.key = request.key;
  net::AtpNodeOptions options;
  THALWEG_TRY_STATUS(net::fill_from(group, options));
  block_ = options.elements;
  sums_ = std::make_shared<AtpSums>(
      block_, config_.parameters.workers,
      [this, number = number_](std::vector<float> sum, bool saturated) {
        auto moved = std::make_shared<std::vector<float>>(std::move(sum));
        post_([this, number, moved, saturated] { end(number, std::move(*moved), saturated); });
      });
  options.on_sum = [sums = sums_](const wire::AtpHeader& header, const std::int32_t* sum) {
    sums->on_sum(header, sum);
  };
  THALWEG_TRY_STATUS(node->join(options));
  lease_ = std::move(admission.lease);
  node_ = std::move(node);
  return net::to_text(group);
}

AtpGroup::Replies AtpGroup::push(std::uint32_t worker, const wire::PsHeader& request,
                                 const std::string& name, std::span<const std::byte> exponents) {
  if (!node_ || request.clock != number_) return {{worker, wire::PsKind::kJoinAgain}};
  if (const Status may = table_.may_push(worker, name, request.elements); !may.ok()) {
    return {refusal(worker, may.error())};
  }
  const std::uint64_t blocks = (request.elements + block_ - 1) / block_;
  if (exponents.size() != blocks) {
    return {refusal(worker, Error(fmt::format("'{}': {} exponents; {} blocks have one each", name,
                                              exponents.size(), blocks)))};
  }
  if (push_ && push_->name != name) {
    return {refusal(worker, {ErrorCode::kMismatch,
                             fmt::format("worker {} pushes '{}' and others '{}': over atp all push "
                                         "the same tensors in the same order",
                                         worker, name, push_->name)})};
  }
  if (!push_) push_ = Push{.name = name, .elements = request.elements};
  const auto* data = reinterpret_cast<const tensor::BlockExponent*>(exponents.data());
  push_->exponents[worker].assign(data, data + exponents.size());
  return push_->exponents.size() == workers() ? go() : Replies();
}

AtpGroup::Replies AtpGroup::go() {
  std::vector<tensor::BlockExponent> largest = push_->exponents.begin()->second;
  for (const auto& [worker, own] : push_->exponents) {
    std::ranges::transform(
        largest, own, largest.begin(),
        [](tensor::BlockExponent a, tensor::BlockExponent b) { return std::max(a, b); });
  }
  push_->running = true;
  table_.begin_push(push_->name);
  const std::string text(reinterpret_cast<const char*>(largest.data()), largest.size());
  sums_->begin(push_->elements, std::move(largest));
  return to_all(wire::PsKind::kGo, text);
}

void AtpGroup::end(std::uint64_t group, std::vector<float> sum, bool saturated) {
  if (!node_ || group != number_) return;
  const std::string name = std::move(push_->name);
  push_.reset();
  if (saturated) {
    table_.cancel_push(name);
    deliver_(refuse_all(Error(fmt::format("'{}': a sum is beyond what 32 bits hold", name))));
    return;
  }
  table_.end_push(name, sum);
  deliver_(to_all(wire::PsKind::kValue, {}));
}

AtpGroup::Replies AtpGroup::leave(std::uint32_t worker) {
  Replies replies;
  const auto tell = [&](std::uint32_t other) {
    if (other != worker) replies.push_back(refusal(other, gone(worker)));
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

}  // namespace thalweg::ps
