#include "ps/parameter_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace thalweg::ps {

Status ParameterTable::may_init(const std::string& name, std::uint64_t elements) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) {
    if (found->second.values.size() == elements) return ok_status();
    return Error(ErrorCode::kMismatch, fmt::format("'{}' has {} elements, not {}", name,
                                                   found->second.values.size(), elements));
  }
  if (elements == 0) return Error(fmt::format("'{}': 0 elements; above 0 is allowed", name));
  const std::uint64_t left = options_.max_elements - elements_;
  if (elements <= left) return ok_status();
  return Error(ErrorCode::kNoResource, fmt::format("'{}': {} elements; {} of {} are left", name,
                                                   elements, left, options_.max_elements));
}

Result<ParameterTable::View> ParameterTable::init(const std::string& name,
                                                  std::span<const float> values) {
  THALWEG_TRY_STATUS(may_init(name, values.size()));
  const auto [found, made] = tensors_.try_emplace(name);
  Tensor& tensor = found->second;
  if (made) {
    elements_ += values.size();
    tensor.values.assign(values.begin(), values.end());
    if (options_.optimizer != PsOptimizer::kSgd) tensor.first.resize(values.size());
    if (options_.optimizer == PsOptimizer::kAdam) tensor.second.resize(values.size());
    const auto workers = static_cast<std::size_t>(options_.workers);
    tensor.pushes.resize(workers);
    tensor.gradients.resize(workers);
    tensor.missing.resize(workers);
  }
  return View{tensor.values, tensor.steps};
}

Result<const ParameterTable::Tensor*> ParameterTable::find(std::uint32_t worker,
                                                           const std::string& name) const {
  if (worker >= static_cast<std::uint32_t>(options_.workers)) {
    return Error(fmt::format("worker: {}; from 0 to {} are allowed", worker, options_.workers - 1));
  }
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return Error(fmt::format("there is no tensor '{}'", name));
  return &found->second;
}

Status ParameterTable::may_push(std::uint32_t worker, const std::string& name,
                                std::uint64_t elements) const {
  THALWEG_TRY(const Tensor* const tensor, find(worker, name));
  if (elements != tensor->values.size()) {
    return Error(ErrorCode::kMismatch, fmt::format("'{}' has {} elements, not {}", name,
                                                   tensor->values.size(), elements));
  }
  if (options_.mode == PsMode::kSynchronous && tensor->pushes[worker] > tensor->steps) {
    return Error(fmt::format("worker {} has pushed '{}' for step {} already, and others have not",
                             worker, name, tensor->steps));
  }
  return ok_status();
}

Status ParameterTable::push(std::uint32_t worker, const std::string& name,
                            std::span<const float> gradient,
                            std::span<const ElementRange> missing) {
  THALWEG_TRY_STATUS(may_push(worker, name, gradient.size()));
  Tensor& tensor = tensors_.at(name);
  ++tensor.pushes[worker];
  if (options_.mode != PsMode::kSynchronous) {
    step(tensor, gradient);
    ++tensor.steps;
    return ok_status();
  }
  tensor.gradients[worker].assign(gradient.begin(), gradient.end());
  tensor.missing[worker].assign(missing.begin(), missing.end());
  if (std::ranges::all_of(tensor.pushes, [&](auto p) { return p > tensor.steps; })) {
    step_together(tensor);
  }
  return ok_status();
}

void ParameterTable::step_together(Tensor& tensor) const {
  std::vector<float>& sum = tensor.gradients.front();
  for (std::size_t w = 1; w < tensor.gradients.size(); ++w) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += tensor.gradients[w][i];
  }
  const auto workers = static_cast<float>(options_.workers);
  if (std::ranges::all_of(tensor.missing, [](const auto& ranges) { return ranges.empty(); })) {
    for (float& value : sum) value /= workers;
  } else {
    std::vector<float> there(sum.size(), workers);
    for (const auto& ranges : tensor.missing) {
      for (const auto& [begin, end] : ranges) {
        for (auto i = begin; i < end; ++i) --there[static_cast<std::size_t>(i)];
      }
    }
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] /= std::max(1.F, there[i]);
  }
  step(tensor, sum);
  ++tensor.steps;
}

void ParameterTable::begin_push(const std::string& name) {
  for (std::uint64_t& pushes : tensors_.at(name).pushes) ++pushes;
}

void ParameterTable::end_push(const std::string& name, std::span<float> sum) {
  Tensor& tensor = tensors_.at(name);
  for (float& value : sum) value /= static_cast<float>(options_.workers);
  step(tensor, sum);
  ++tensor.steps;
}

void ParameterTable::cancel_push(const std::string& name) {
  for (std::uint64_t& pushes : tensors_.at(name).pushes) --pushes;
}

void ParameterTable::come(std::uint32_t worker) {
  if (left_.erase(worker) == 0 || options_.mode != PsMode::kStale) return;
  for (auto& [name, tensor] : tensors_) {
    std::optional<std::uint64_t> slowest;
    for (std::uint32_t w = 0; w < tensor.pushes.size(); ++w) {
      if (w == worker || left_.contains(w)) continue;
      slowest = std::min(slowest.value_or(tensor.pushes[w]), tensor.pushes[w]);
    }
    tensor.pushes[worker] = std::max(tensor.pushes[worker], slowest.value_or(0));
  }
}

void ParameterTable::step(Tensor& tensor, std::span<const float> gradient) const {
  std::vector<float>& w = tensor.values;
  std::vector<float>& m = tensor.first;
  std::vector<float>& v = tensor.second;
  switch (options_.optimizer) {
    case PsOptimizer::kSgd:
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= options_.rate * gradient[i];
      return;
    case PsOptimizer::kMomentum:
      for (std::size_t i = 0; i < w.size(); ++i) {
        m[i] = options_.momentum * m[i] + gradient[i];
        w[i] -= options_.rate * m[i];
      }
      return;
    case PsOptimizer::kAdam: {
      const auto t = static_cast<float>(tensor.steps + 1);
      const float mean_scale = 1 / (1 - std::pow(options_.beta1, t));
      const float square_scale = 1 / (1 - std::pow(options_.beta2, t));
      for (std::size_t i = 0; i < w.size(); ++i) {
        m[i] = options_.beta1 * m[i] + (1 - options_.beta1) * gradient[i];
        v[i] = options_.beta2 * v[i] + (1 - options_.beta2) * gradient[i] * gradient[i];
        w[i] -=
            options_.rate * m[i] * mean_scale / (std::sqrt(v[i] * square_scale) + options_.epsilon);
      }
      return;
    }
  }
}

Result<std::optional<ParameterTable::View>> ParameterTable::pull(std::uint32_t worker,
                                                                 const std::string& name) const {
  THALWEG_TRY(const Tensor* const tensor, find(worker, name));
  const std::uint64_t own = tensor->pushes[worker];
  const std::optional<View> view = View{tensor->values, tensor->steps};
  switch (options_.mode) {
    case PsMode::kAsynchronous:
      return view;
    case PsMode::kSynchronous:
      if (tensor->steps >= own) return view;
      for (const std::uint32_t gone : left_) {
        if (gone < tensor->pushes.size() && tensor->pushes[gone] < own) {
          return Error(ErrorCode::kPeerLost,
                       fmt::format("'{}': worker {} has left before step {}", name, gone, own),
                       static_cast<int>(gone));
        }
      }
      return std::optional<View>();
    case PsMode::kStale:
      for (std::uint32_t w = 0; w < tensor->pushes.size(); ++w) {
        if (!left_.contains(w) && tensor->pushes[w] + options_.staleness < own) {
          return std::optional<View>();
        }
      }
      return view;
  }
  return view;
}

}  // namespace thalweg::ps
