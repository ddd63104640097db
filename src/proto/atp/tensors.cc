#include "proto/atp/tensors.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "proto/require.h"

namespace thalweg::proto {

Status check_tensor(const AtpTensorSpec& spec, std::size_t in_flight, std::uint32_t most) {
  THALWEG_TRY_STATUS(
      require(spec.elements > 0, "elements", std::to_string(spec.elements), "above 0"));
  THALWEG_TRY_STATUS(require_positive(spec.deadline, "deadline"));
  return require(in_flight < most, "tensors", std::to_string(in_flight + 1),
                 fmt::format("at most {} in flight", most).c_str());
}

std::string missing_workers(const wire::AtpHeader& abort) {
  std::string text;
  const auto add = [&](const std::string& name) { text += (text.empty() ? "" : ", ") + name; };
  for (unsigned g = 0; g < abort.group_count; ++g) {
    if ((abort.groups & wire::atp_bit(g)) != 0) add(fmt::format("all of group {}", g));
  }
  for (unsigned w = 0; w < abort.fan_in; ++w) {
    if ((abort.workers & wire::atp_bit(w)) != 0) add(fmt::format("{} of group {}", w, abort.group));
  }
  return text;
}

AtpTensorHandle AtpTensors::start(const AtpTensorSpec& spec, std::uint32_t elements_per_block,
                                  Time now, const AtpExponents::Call& call) {
  CHECK(spec.elements > 0 && elements_per_block > 0);
  Tensor tensor;
  tensor.outcome.handle = AtpTensorHandle{++last_handle_};
  tensor.outcome.cookie = spec.cookie;
  tensor.outcome.blocks = static_cast<std::uint64_t>((spec.elements - 1) / elements_per_block + 1);
  tensor.outcome.started = now;
  tensor.first = end_;
  tensor.left = tensor.outcome.blocks;
  tensor.elements = spec.elements;
  tensor.per_block = elements_per_block;
  tensor.scaling = spec.scaling;
  tensor.call = call;
  tensor.deadline = now + spec.deadline;
  end_ += tensor.outcome.blocks;
  tensors_.push_back(tensor);
  return tensor.outcome.handle;
}

std::size_t AtpTensors::find(std::uint64_t sequence) const {
  const auto after = std::ranges::upper_bound(tensors_, sequence, {}, &Tensor::first);
  CHECK(after != tensors_.begin() && sequence < end_, "sequence {} is of no tensor", sequence);
  return static_cast<std::size_t>(after - tensors_.begin()) - 1;
}

AtpBlock AtpTensors::block(std::uint64_t sequence) const {
  const Tensor& tensor = tensors_[find(sequence)];
  return block_of(tensor, sequence - tensor.first);
}

AtpBlock AtpTensors::ahead(std::uint64_t sequence, std::uint64_t distance) const {
  const Tensor& tensor = tensors_[find(sequence)];
  const std::uint64_t index = sequence - tensor.first + distance;
  return index < tensor.outcome.blocks ? block_of(tensor, index) : AtpBlock();
}

AtpBlock AtpTensors::block_of(const Tensor& tensor, std::uint64_t index) {
  AtpBlock block;
  block.handle = tensor.outcome.handle;
  block.cookie = tensor.outcome.cookie;
  block.index = index;
  block.first_element = static_cast<std::int64_t>(index) * tensor.per_block;
  block.elements = static_cast<std::uint16_t>(
      std::min<std::int64_t>(tensor.per_block, tensor.elements - block.first_element));
  block.scaling = tensor.scaling;
  block.call = tensor.call;
  return block;
}

void AtpTensors::done(std::uint64_t sequence, bool saturated, Time now) {
  Tensor& tensor = tensors_[find(sequence)];
  CHECK(tensor.left > 0);
  tensor.outcome.saturated |= saturated;
  if (--tensor.left > 0) return;
  end_tensor(tensor, now);
  while (!tensors_.empty() && tensors_.front().left == 0) tensors_.pop_front();
}

void AtpTensors::retransmitted(std::uint64_t sequence) {
  ++tensors_[find(sequence)].outcome.retransmissions;
}

std::optional<Time> AtpTensors::next_deadline() const {
  std::optional<Time> next;
  for (const Tensor& tensor : tensors_) {
    if (tensor.left > 0 && (!next || tensor.deadline < *next)) next = tensor.deadline;
  }
  return next;
}

void AtpTensors::end_tensor(Tensor& tensor, Time now) {
  tensor.left = 0;
  tensor.outcome.ended = now;
  events_.push(tensor.outcome);
}

void AtpTensors::fail_all(const Error& error, Time now) {
  for (Tensor& tensor : tensors_) {
    if (tensor.left == 0) continue;
    tensor.outcome.error = error.message();
    tensor.outcome.code = error.code();
    tensor.outcome.rank = error.rank();
    end_tensor(tensor, now);
  }
  tensors_.clear();
}

bool AtpTensors::poll_event(AtpOutcome& out) {
  if (events_.empty()) return false;
  out = events_.pop();
  return true;
}

}  // namespace thalweg::proto
