// The public API: checks the caller's arguments and hands transfers to the endpoint's thread.
#include <thalweg/endpoint.h>

#include <fmt/core.h>

#include <algorithm>
#include <future>
#include <utility>

#include "net/dlcp/endpoint_core.h"
#include "net/io/small_file.h"
#include "wire/authenticate.h"

namespace thalweg {
namespace {

// Options of both directions.
struct Common {
  std::uint64_t key = 0;
  double loss_bound = 0;
  std::chrono::nanoseconds deadline = {};
};

Result<std::shared_ptr<Transfer::State>> make_state(const std::shared_ptr<net::DlcpPeer>& peer,
                                                    proto::Direction direction, TensorView tensor,
                                                    const Common& common) {
  if (tensor.data == nullptr && tensor.elements > 0) {
    return Error(fmt::format("a tensor of {} elements without memory", tensor.elements));
  }
  THALWEG_TRY(const proto::LossBound bound, proto::LossBound::of(common.loss_bound));
  if (!bound.exact() && !is_floating(tensor.type)) {
    return Error(fmt::format("a loss bound of {} on elements of type {}: integers must be exact",
                             common.loss_bound, name_of(tensor.type)));
  }
  auto state = std::make_shared<Transfer::State>();
  state->peer = peer;
  state->loop = peer->loop();
  state->direction = direction;
  state->spec.key = common.key;
  state->spec.elements = tensor.elements;
  state->spec.type = tensor.type;
  state->spec.payload = Bytes(peer->payload());
  state->spec.bound = bound;
  state->spec.deadline = Duration::nanoseconds(common.deadline.count());
  THALWEG_TRY(const tensor::Partition partition,
              tensor::Partition::make(tensor.elements,
                                      Bytes(static_cast<std::int64_t>(size_of(tensor.type))),
                                      state->spec.payload));
  state->segment_size = partition.segment_size();
  return state;
}

Result<Transfer> launch(const std::shared_ptr<net::DlcpPeer>& peer,
                        const std::shared_ptr<Transfer::State>& state) {
  if (!peer->loop()->post([peer, state] { peer->start(state); })) {
    return Error(
        ErrorCode::kCancelled,
        fmt::format("the connection to {} is closed: the endpoint was closed", peer->name()));
  }
  return Transfer(state);
}

Result<SegmentTag> checked(PacketTag tag) {
  if (tag.priority < kPriorityCount) return SegmentTag{tag.priority, tag.important};
  return Error(
      fmt::format("a priority of {}: from 0 to {} are allowed", tag.priority, kPriorityCount - 1));
}

}  // namespace

Result<Transfer> Peer::send(TensorView tensor, const SendOptions& options) const {
  THALWEG_TRY_STATUS(state_->at_home());
  THALWEG_TRY(const auto state, make_state(state_->peer, proto::Direction::kSend, tensor,
                                           {options.key, options.loss_bound, options.deadline}));
  state->source = static_cast<const std::byte*>(tensor.data);
  state->spec.urgency = options.urgency;
  state->spec.gradual = options.gradual;
  if (!options.tag_of) {
    THALWEG_TRY(const SegmentTag tag, checked(options.tag));
    state->tags = {tag};
    return launch(state_->peer, state);
  }
  const std::int64_t each = state->segment_elements();
  for (std::int64_t first = 0; first < tensor.elements; first += each) {
    THALWEG_TRY(const SegmentTag tag,
                checked(options.tag_of(first, std::min(each, tensor.elements - first))));
    state->tags.push_back(tag);
  }
  return launch(state_->peer, state);
}

Result<Transfer> Peer::recv(TensorSpan tensor, const RecvOptions& options) const {
  THALWEG_TRY_STATUS(state_->at_home());
  THALWEG_TRY(const auto state, make_state(state_->peer, proto::Direction::kReceive, tensor,
                                           {options.key, options.loss_bound, options.deadline}));
  state->target = static_cast<std::byte*>(tensor.data);
  state->on_arrival = options.on_arrival;
  if (options.loss_target) {
    THALWEG_TRY(const proto::LossBound target, proto::LossBound::of(*options.loss_target));
    if (*options.loss_target > options.loss_bound) {
      return Error(fmt::format("a loss target of {}: at most the bound of {} is allowed",
                               *options.loss_target, options.loss_bound));
    }
    state->spec.target = target;
  }
  state->spec.urgency = options.urgency;
  return launch(state_->peer, state);
}

const std::string& Peer::name() const { return state_->peer->name(); }
std::size_t Peer::packet_payload() const { return state_->peer->payload(); }
bool Peer::connected() const { return state_->home.here() && state_->peer->connected(); }
bool Peer::data_vanishes() const { return state_->home.here() && state_->peer->data_vanishes(); }

void Peer::close() const {
  if (!state_->home.here()) return;
  state_->peer->loop()->post([peer = state_->peer] {
    peer->shut("the connection was closed");
    peer->close_when_settled();
  });
}

NetCounters Peer::counters() const {
  if (!state_->home.here()) return {};
  const auto answer = std::make_shared<std::promise<NetCounters>>();
  const bool posted = state_->peer->loop()->post([peer = state_->peer, answer] {
    answer->set_value(peer->lost() ? peer->counters_after_end() : peer->counters());
  });
  return posted ? answer->get_future().get() : state_->peer->counters_after_end();
}

Endpoint::Endpoint(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Endpoint::~Endpoint() { net::abandon_unless_home(core_); }
Endpoint::Endpoint(Endpoint&&) noexcept = default;
Endpoint& Endpoint::operator=(Endpoint&& other) noexcept {
  net::abandon_unless_home(core_);
  core_ = std::move(other.core_);
  return *this;
}

Result<std::string> read_job_key(const std::string& path) {
  THALWEG_TRY(const std::string text, net::read_small_file(path, "the job key", net::kMaxKeyFile));
  const std::string line(text.begin(), std::ranges::find(text, '\n'));
  if (const auto key = wire::JobKey::from_hex(line); !key.ok()) return key.error().within(path);
  return line;
}

Result<Endpoint> Endpoint::create(const EndpointOptions& options) {
  THALWEG_TRY(std::unique_ptr<Core> core, Core::make(options));
  return Endpoint(std::move(core));
}

const std::string& Endpoint::address() const { return core_->address(); }

Result<Peer> Endpoint::connect(const std::string& address, std::chrono::nanoseconds limit) const {
  return core_->connect(address, limit);
}

Result<Peer> Endpoint::accept(std::chrono::nanoseconds limit) const { return core_->accept(limit); }

NetCounters Endpoint::counters() const { return core_->counters(); }

}  // namespace thalweg
