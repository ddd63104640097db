// The public API: checks what the caller says, and hands it to the endpoint's thread.
#include <thalweg/endpoint.h>

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <future>
#include <utility>

#include "net/endpoint_core.h"
#include "net/system.h"
#include "wire/authenticate.h"

namespace thalweg {
namespace {

// What both directions have in common.
struct Common {
  std::uint64_t key = 0;
  double loss_bound = 0;
  std::chrono::nanoseconds deadline = {};
};

Result<std::shared_ptr<Transfer::State>> make_state(const std::shared_ptr<Link>& link,
                                                    Direction direction, TensorView tensor,
                                                    const Common& common) {
  if (tensor.data == nullptr && tensor.elements > 0) {
    return Error(fmt::format("a tensor of {} elements without memory", tensor.elements));
  }
  THALWEG_TRY(const LossBound bound, LossBound::of(common.loss_bound));
  if (!bound.exact() && !is_floating(tensor.type)) {
    return Error(fmt::format("a loss bound of {} on elements of type {}: integers must be exact",
                             common.loss_bound, name_of(tensor.type)));
  }
  auto state = std::make_shared<Transfer::State>();
  state->link = link;
  state->loop = link->loop();
  state->direction = direction;
  state->spec.key = common.key;
  state->spec.elements = tensor.elements;
  state->spec.type = tensor.type;
  state->spec.payload = Bytes(link->payload());
  state->spec.bound = bound;
  state->spec.deadline = Duration::nanoseconds(common.deadline.count());
  THALWEG_TRY(
      const Partition partition,
      Partition::make(tensor.elements, Bytes(static_cast<std::int64_t>(size_of(tensor.type))),
                      state->spec.payload));
  state->segment_size = partition.segment_size();
  return state;
}

Result<Transfer> launch(const std::shared_ptr<Link>& link,
                        const std::shared_ptr<Transfer::State>& state) {
  if (!link->loop()->post([link, state] { link->start(state); })) {
    return Error(
        fmt::format("the connection to {} is closed: the endpoint was closed", link->name()));
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
  THALWEG_TRY(const auto state, make_state(state_->link, Direction::kSend, tensor,
                                           {options.key, options.loss_bound, options.deadline}));
  state->source = static_cast<const std::byte*>(tensor.data);
  state->spec.urgency = options.urgency;
  if (!options.tag_of) {
    THALWEG_TRY(const SegmentTag tag, checked(options.tag));
    state->tags = {tag};
    return launch(state_->link, state);
  }
  const std::int64_t each =
      state->segment_size.count() / static_cast<std::int64_t>(size_of(tensor.type));
  for (std::int64_t first = 0; first < tensor.elements; first += each) {
    THALWEG_TRY(const SegmentTag tag,
                checked(options.tag_of(first, std::min(each, tensor.elements - first))));
    state->tags.push_back(tag);
  }
  return launch(state_->link, state);
}

Result<Transfer> Peer::recv(TensorSpan tensor, const RecvOptions& options) const {
  THALWEG_TRY(const auto state, make_state(state_->link, Direction::kReceive,
                                           {tensor.data, tensor.elements, tensor.type},
                                           {options.key, options.loss_bound, options.deadline}));
  state->target = static_cast<std::byte*>(tensor.data);
  if (options.loss_target) {
    THALWEG_TRY(const LossBound target, LossBound::of(*options.loss_target));
    state->spec.target = target;
  }
  return launch(state_->link, state);
}

const std::string& Peer::name() const { return state_->link->name(); }
std::size_t Peer::packet_payload() const { return state_->link->payload(); }
bool Peer::connected() const { return state_->link->connected(); }

void Peer::close() const {
  state_->link->loop()->post([link = state_->link] {
    link->shut("the connection was closed");
    link->close_when_settled();
  });
}

NetCounters Peer::counters() const {
  const auto answer = std::make_shared<std::promise<NetCounters>>();
  const bool posted = state_->link->loop()->post([link = state_->link, answer] {
    answer->set_value(link->lost() ? link->counters_after_end() : link->counters());
  });
  return posted ? answer->get_future().get() : state_->link->counters_after_end();
}

Endpoint::Endpoint(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Endpoint::~Endpoint() = default;
Endpoint::Endpoint(Endpoint&&) noexcept = default;
Endpoint& Endpoint::operator=(Endpoint&&) noexcept = default;

Result<std::string> read_job_key(const std::string& path) {
  std::ifstream file(path);
  if (!file) return system_error(fmt::format("cannot read the job key from {}", path), errno);
  std::string line;
  std::getline(file, line);
  if (const auto key = JobKey::from_hex(line); !key.ok()) return key.error().within(path);
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
